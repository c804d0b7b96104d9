"""Result records: one line per (solver, decoding, dataset, instance, repeat), in a folder per run.

A run's folder holds four files, append-only, so that a killed run loses at most the line it was writing:

``run.json``
    Facts that stand once: schema, command, seed, environment. Written first.
``cells.jsonl``
    One line per cell (solver x decoding x dataset) when it starts and one when it ends; later lines add to earlier ones.
``records.jsonl``
    One `Record` per line.
``solutions.bin``
    The solutions as little-endian int32, one after the other; a record holds offset and number of integers.

Anytime solvers leave their cost against time in ``traces.jsonl`` beside these.

Every line ends with its CRC-32 and ``run.json`` with a hash of its bytes (`nco_bench.seals`); those of before have none.
Solutions are written before their record, so a record that can be read has its solution.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.identity import whole_of, whole_of_set
from nco_bench.errors import ResultsError
from nco_bench.seals import BrokenSealError, seal_line, unseal_document, unseal_line

SCHEMA = 2
READABLE = (1, 2)
"""Schemas that are read. Records of schema 1 hold gaps, which nothing reads any more, and do not know their instance's hash:
their keys are made of the dataset's."""
STATUSES = ("ok", "infeasible", "failed", "timeout", "oom")


@dataclass(slots=True)
class Record:
    """What became of one instance.

    Attributes
    ----------
    key
        Hash of solver configuration, weights, instance, decoding, seed, repeat and versions; see `key_of`.
    cell
        Index of the cell in this run's ``cells.jsonl``.
    instance, name, n
        Index in the whole dataset, name, size.
    repeat, seed
        Repeat number from 0, and the seed this instance was solved with.
    status
        One of `STATUSES`.
    cost
        Recomputed by nco-bench; None unless status is ``ok``.
    reference
        Cost of the reference solution when the record was made, or None. Gaps are not stored: tables compute them from the
        best reference that is known when they are made.
    seconds
        Wall time of this instance; its share of the batch where a batch was solved at once.
    optimal
        The solver's own proof of optimality.
    solution
        (offset, length) in ``solutions.bin`` in integers, or None.
    solution_sha256
        Hash of the little-endian int32 bytes of the solution, first 16 hex digits.
    convention
        Scoring rule of this instance.
    message
        Violations or error, one line; empty for ``ok``.
    instance_sha256
        Content hash of the instance alone, first 16 hex digits; empty in records of schema 1.
    counts
        What metrics that are not means over instances are pooled from (true positives, squared error, ...), for problems
        whose referee counts them; None otherwise, and then not written.
    """

    key: str
    cell: int
    instance: int
    name: str
    n: int
    repeat: int
    seed: int
    status: str
    cost: float | None
    reference: float | None
    seconds: float
    optimal: bool
    solution: tuple[int, int] | None
    solution_sha256: str | None
    convention: str
    message: str = ""
    instance_sha256: str = ""
    counts: dict[str, float] | None = None


INTEGERS = np.dtype("<i4")
"""Of stored solutions."""
NO_COUNTS = b',"counts":null}\n'
"""How the line of a record without counts ends before they are left out."""


@dataclass
class Cell:
    """Facts shared by all records of one solver, decoding and dataset.

    Attributes
    ----------
    cell
        Index within the run.
    solver, label, solver_version, decoding, kind
        ``solver`` is the registry name, ``label`` what a table prints (the name with its options).
    options
        All settings as given and resolved (params, logit scale, coordinate scale, time limit, batch size).
    config_sha256
        Hash of everything above that can move a number.
    weights
        None, or name, sha256 and the manifest's summary (steps, samples, training size and distribution, share of
        the paper's budget).
    dataset, dataset_sha256, problem, problem_version, objective, convention, origin
        As in `nco_bench.datasets`; objective is ``min`` or ``max``.
    reference_solver
        Who made the references, or None.
    device, batch_size
        Where and in which portions.
    latency_seconds
        Median wall time of one instance alone (batch size 1) after warm-up, None where not measured.
    seconds_total
        Wall time of all timed solve calls of this cell in this run.
    peak_memory_mb, memory_before_mb, peak_device_memory_mb
        Peak memory of the process and its children while solving, what the process held before the solver was prepared
        (None in records of version 0.1), and the peak of the device.
    notes
        What the solver says about itself, such as which backend it used.
    source
        The dataset as it was asked for: a name, or the path of a file.
    asked
        First and last + 1 of the instances that the command asked for, all its jobs together; None in records of schema 1.
    """

    cell: int
    solver: str
    label: str
    solver_version: str
    decoding: str
    kind: str
    options: dict[str, Any]
    config_sha256: str
    weights: dict[str, Any] | None
    dataset: str
    dataset_sha256: str
    problem: str
    problem_version: str
    objective: str
    convention: str
    origin: dict[str, Any]
    instances: int
    repeats: int
    seed: int
    reference_solver: str | None
    device: str
    batch_size: int
    latency_seconds: float | None = None
    seconds_total: float | None = None
    peak_memory_mb: float | None = None
    memory_before_mb: float | None = None
    peak_device_memory_mb: float | None = None
    notes: list[str] = field(default_factory=list)
    source: str = ""
    asked: tuple[int, int] | None = None

    @property
    def whole(self) -> str:
        """Identity of the longest set that the dataset is the beginning of, see `nco_bench.datasets.identity`."""
        return whole_of(
            self.dataset,
            str(self.origin.get("generator")),
            str(self.origin.get("version")),
            self.dataset_sha256,
        )

    def is_of(self, dataset: Dataset) -> bool:
        """Whether records of this cell are records of a dataset, by the same index, as far as both reach."""
        if dataset.name == self.dataset or whole_of_set(dataset) != self.whole:
            return dataset.sha256 == self.dataset_sha256
        return True

    @property
    def own_memory_mb(self) -> float | None:
        """Peak memory that the solver itself took: beyond what other solvers had loaded, where the record says that."""
        if self.peak_memory_mb is None:
            return None
        return max(0.0, round(self.peak_memory_mb - (self.memory_before_mb or 0.0), 1))


def record_key(parts: dict[str, Any]) -> str:
    """Hash the parts that identify a record, order-independently, to 32 hex digits."""
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]


def settings_of(cell: Cell) -> str:
    """Return a cell's parameters in a line, for a reference that it found."""
    return ";".join(f"{key}={value}" for key, value in cell.options["params"].items())


def key_of(cell: Cell, record: Record) -> str:
    """Return the key that a record must have."""
    identity = (
        {"instance_sha256": record.instance_sha256}
        if record.instance_sha256
        else {"dataset": cell.dataset_sha256}
    )
    place = {"seed": cell.seed, "instance": record.instance, "repeat": record.repeat}
    return record_key({"config": cell.config_sha256, **identity, **place})


def record_keys(config: str, hashes: Sequence[str], seed: int, indices: range, repeat: int) -> list[str]:
    """Return the keys of neighbouring instances: what `record_key` gives for their parts, at a fraction of the time."""
    parts = {"config": config, "instance": 0, "instance_sha256": "", "repeat": repeat, "seed": seed}
    before, after = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS).split(b'0,"instance_sha256":""', 1)
    return [
        hashlib.sha256(
            b'%b%d,"instance_sha256":"%b"%b' % (before, index, content.encode(), after)
        ).hexdigest()[:32]
        for index, content in zip(indices, hashes, strict=True)
    ]


def solution_bytes(solution: NDArray[np.integer]) -> bytes:
    """Return a solution's canonical bytes: little-endian int32."""
    if solution.dtype != INTEGERS:  # asked, since a conversion to the type that it has takes a microsecond
        solution = solution.astype(INTEGERS)
    return solution.tobytes()


def solution_sha256(raw: bytes) -> str:
    """Return the first 16 hex digits of the SHA-256 of a solution's bytes."""
    return hashlib.sha256(raw).hexdigest()[:16]


class Run:
    """A stored run, read lazily: a folder here, rows of a file in `nco_bench.runs.archives.ArchivedRun`.

    Parameters
    ----------
    folder
        Folder with ``run.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info: dict[str, Any] = self._document()
        schema = self.info.get("schema")
        if schema not in READABLE:
            raise ResultsError(
                f"{folder}: records of schema {schema}, this version reads {' and '.join(map(str, READABLE))}; "
                f"install the nco-bench that wrote them ({self.info.get('version', 'unknown')}) or move the folder away."
            )

    @property
    def run_id(self) -> str:
        """Name of the folder."""
        return self.folder.name

    def _document(self) -> dict[str, Any]:
        return _read_json(self.folder / "run.json")

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the lines of one of the run's ``.jsonl`` files; none where it has no such file."""
        return read_lines(self.folder / name)

    def size(self) -> int:
        """Return the bytes that the run takes on the disk."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

    def count(self) -> int:
        """Return the number of its records, counted as lines."""
        path = self.folder / "records.jsonl"
        return path.read_bytes().count(b"\n") if path.is_file() else 0

    def cells(self) -> list[Cell]:
        """Return the cells, later lines merged over earlier ones."""
        merged: dict[int, dict[str, Any]] = {}
        try:
            for line in self.lines("cells.jsonl"):
                merged.setdefault(line["cell"], {}).update(line)
            return [Cell(**merged[index]) for index in sorted(merged)]
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise self._unknown("cells.jsonl", "cells", error) from error

    def records(self) -> Iterator[Record]:
        """Yield the records in the order they were written; a torn last line is left out."""
        for line in self.lines("records.jsonl"):
            try:
                line.pop("gap_percent", None)
                record = Record(**line)
            except (TypeError, AttributeError) as error:
                raise self._unknown("records.jsonl", "records", error) from error
            yield record

    def raw_records(self) -> Iterator[dict[str, Any]]:
        """Yield the records as plain dicts, for bulk readers."""
        return self.lines("records.jsonl")

    def solved(
        self, cells: Collection[int], dataset: Dataset, statuses: Collection[str]
    ) -> dict[tuple[int, int], float | None]:
        """Return the costs, by repeat and index, of the records of some cells with some statuses that are of a dataset.

        Raises
        ------
        ResultsError
            If a line is no record.
        """
        try:
            return {
                (line["repeat"], line["instance"]): line["cost"]
                for line in self.raw_records()
                if line["cell"] in cells
                and line["status"] in statuses
                and dataset.holds(line["instance"], line.get("instance_sha256", ""))
            }
        except (TypeError, KeyError) as error:
            raise self._unknown("records.jsonl", "records", error) from error

    def _unknown(self, file: str, what: str, error: Exception) -> ResultsError:
        return ResultsError(
            f"{self.folder / file}: not the {what} of this version ({type(error).__name__}: {error}); "
            "move the run's folder away."
        )

    def solution(self, record: Record) -> NDArray[np.int32]:
        """Read the stored solution of a record.

        Raises
        ------
        ResultsError
            If the solutions file is shorter than the record says.
        """
        if record.solution is None:
            raise ResultsError(f"{self.folder}: record {record.key} ({record.name}) has no solution.")
        return self.integers(*record.solution, f"{record.name} (record {record.key})")

    def integers(self, offset: int, length: int, whose: str) -> NDArray[np.int32]:
        """Read integers of the stored solutions.

        Parameters
        ----------
        offset, length
            Where they are, in integers.
        whose
            For the message: of which instance they are.

        Raises
        ------
        ResultsError
            If there are not as many.
        """
        path = self.folder / "solutions.bin"
        try:
            with path.open("rb") as file:
                file.seek(4 * offset)
                raw = file.read(4 * length)
        except OSError as error:
            raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error
        if len(raw) != 4 * length:
            raise ResultsError(f"{path}: ends before the solution of {whose}.")
        return np.frombuffer(raw, dtype="<i4")


def find_runs(results: Path, damaged: Callable[[Path, ResultsError], object] | None = None) -> list[Run]:
    """Return all runs below a results folder, by name; an absent folder has none.

    Runs are folders with a ``run.json``, or stand in archives (``*.parquet``) that lie in the folder; `results` may be an
    archive itself. A run that stands in several places counts once, as a folder first: there it may have gone on.

    Parameters
    ----------
    results
        The folder, or an archive.
    damaged
        Called with each run or archive that cannot be read; None raises.

    Raises
    ------
    ResultsError
        If a run or an archive is damaged, or of an unknown schema.
    """

    def refuse(path: Path, error: ResultsError) -> None:
        if damaged is None:
            raise error
        damaged(path, error)

    found: dict[str, Run] = {}
    for path in sorted(results.glob("*/run.json")) if results.is_dir() else ():
        try:
            found[path.parent.name] = Run(path.parent)
        except ResultsError as error:
            # Another process takes its folder away when it finds nothing to do.
            if path.exists():
                refuse(path.parent, error)
    alone = results.suffix == ".parquet" and results.is_file()
    archives = sorted(results.glob("*.parquet")) if results.is_dir() else [results] if alone else []
    for path in archives:
        from nco_bench.runs.archives import archived_runs

        try:
            runs = archived_runs(path, named=path == results)
        except ResultsError as error:
            refuse(path, error)
        else:
            for run in runs:
                found.setdefault(run.run_id, run)
    return [found[name] for name in sorted(found)]


def dump_line(value: Record | Cell | dict[str, Any]) -> bytes:
    """Serialise one line of a ``.jsonl`` file."""
    line = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    if isinstance(value, Record) and value.counts is None:
        line = line.removesuffix(NO_COUNTS) + b"}\n"
    return seal_line(line)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = unseal_document(path.read_bytes())
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: damaged ({error}); move the run's folder away.") from error
    if not isinstance(document, dict):
        raise ResultsError(f"{path}: damaged (not an object); move the run's folder away.")
    return document


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a file; a torn last line (killed while writing) is skipped, others are errors."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error
    with file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield orjson.loads(unseal_line(line))
            except (orjson.JSONDecodeError, BrokenSealError) as error:
                raise ResultsError(
                    f"{path}:{number}: damaged record ({error}); remove the line, or move the run's folder away."
                ) from error
