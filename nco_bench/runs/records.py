"""Result records: one line per (solver, decoding, dataset, instance, repeat), in a folder per run (`stored_run` reads it).

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
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.names import whole_of, whole_of_set
from nco_bench.seals import seal_body, seal_line

SUBMISSIONS = "slurm"
"""Folder of a results folder that jobs are submitted from."""

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
LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY


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
        Wall time of all timed solve calls of this cell in this run; 0 where all its records were stored before under other
        names, and the cell only adds its own.
    peak_memory_mb, memory_before_mb, peak_device_memory_mb
        Peak memory of the process and its children while solving, what the process held before the solver was prepared
        (None in records of version 0.1), and the peak of the device.
    notes
        What the solver says about itself, such as which backend it used.
    source
        The dataset as it was asked for: a name, or the path of a file.
    asked
        First and last + 1 of the instances that the command asked for, all its jobs together; None in records of schema 1.
    records
        How many this run wrote of the cell, told when it ends; None where it did not end, or in runs of before.
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
    records: int | None = None

    @property
    def whole(self) -> str:
        """Identity of the longest set that the dataset is the beginning of, see `nco_bench.datasets.names`."""
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


def dump_line(value: Record | Cell | dict[str, Any]) -> bytes:
    """Serialise one line of a ``.jsonl`` file."""
    line = orjson.dumps(value, option=LINE)
    if isinstance(value, Record) and value.counts is None:
        return seal_body(line.removesuffix(NO_COUNTS))
    return seal_line(line)
