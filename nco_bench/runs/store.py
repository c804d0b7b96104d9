"""Writing a run: append-only files, whole lines, synchronised to disk in time but not for every instance."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nco_bench import __version__
from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.names import stream_of
from nco_bench.errors import ResultsError
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import (
    SCHEMA,
    SUBMISSIONS,
    Cell,
    Record,
    dump_line,
    solution_bytes,
    solution_sha256,
)
from nco_bench.runs.stored_run import Run
from nco_bench.seals import seal_document

if TYPE_CHECKING:
    from nco_bench.runs.closed import Held

SYNC_SECONDS = 0.5
"""Lines reach the operating system at once (a killed process loses nothing) and the disk at this interval."""
REFERENCES = "references"
"""The folder of the instances folder where references are computed, see `references`."""
CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system says where a folder may be read and not written."""
STAMP_FORMAT = "%Y%m%d-%H%M%S-%f"
STAMP = re.compile(r"\d{8}-\d{6}-\d{6}(?=-)")

DONE = frozenset({"ok", "infeasible", "timeout", "oom"})
"""Results; a crash (``failed``) is none, so the next start tries it again."""


class RunWriter:
    """A new run's folder, open for appending.

    Parameters
    ----------
    results
        Folder of all runs; made if absent.
    info
        Facts for ``run.json``: command, seed, environment.

    Raises
    ------
    ResultsError
        When the folder cannot be written, here and later (disk full); for a read-only folder of runs, when a cell starts.
    """

    def __init__(self, results: Path, info: dict[str, Any]) -> None:
        self.run_id = f"{_stamp(results)}-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = results / self.run_id
        self._last_sync = time.monotonic()
        self._offset = 0
        self._unwritten: list[bytes] = []
        self._files: dict[str, int] = {}
        self._has_cells = False
        self.written: Counter[int] = Counter()
        """Number of records by cell."""
        self._new: list[Path] = []
        self._held = _held(results)
        # What is stored is found all the same; that something is missing shows when a cell starts.
        self._refusal = ""
        if results.suffix == ".parquet" and results.is_file():
            self._refusal = (
                f"{results}: an archive is never added to, and something is not in it yet. Name the folder that it "
                "lies in with --results: its records count there, and new ones stand beside it."
            )
            return
        self._new += [parent for parent in (results, *results.parents) if not parent.exists()]
        try:
            self.folder.mkdir(parents=True)
            for name in ("solutions.bin", "cells.jsonl", "records.jsonl"):
                self._open(name)
            self._write_info(info)
        except OSError as error:
            self._release()
            self._leave_nothing()
            self._refusal = (
                f"{results}: cannot be written ({error.strerror}); choose another folder with "
                f"{'--instances' if results.name == REFERENCES else '--results'}."
            )
            if error.errno not in CLOSED or not find_runs(results):
                raise ResultsError(self._refusal) from error

    @property
    def adds(self) -> bool:
        """Whether anything can be added: an archive stays as it is, and so does a folder of runs that is read-only."""
        return not self._refusal

    def describe(self, info: dict[str, Any]) -> None:
        """Replace the facts in ``run.json``."""
        if self._refusal:
            return
        try:
            self._write_info(info)
        except OSError as error:
            raise self._failed(error) from error

    def _write_info(self, info: dict[str, Any]) -> None:
        """Write ``run.json`` beside its place and rename it; `sync` brings it to disk with the rest, before the records."""
        document = {"schema": SCHEMA, "version": __version__, "run_id": self.run_id, **info}
        part = self._open("run.json.part", os.O_TRUNC)
        _write_all(part, seal_document(document, indent=2))
        os.replace(self.folder / "run.json.part", self.folder / "run.json")

    def _open(self, name: str, flags: int = os.O_APPEND) -> int:
        """Open a file for writing; a file of this name that was open before is closed."""
        if name in self._files:
            os.close(self._files.pop(name))
        self._files[name] = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        return self._files[name]

    def cell(self, cell: Cell | dict[str, Any]) -> None:
        """Append a cell's facts, or further facts of a cell that was written before."""
        if self._refusal:
            raise ResultsError(self._refusal)
        self._has_cells = True
        if self._held is not None:
            facts = asdict(cell) if isinstance(cell, Cell) else cell
            if "config_sha256" in facts:
                self._held.cells[facts["cell"]] = facts["config_sha256"], facts["seed"]
        self._write("cells.jsonl", dump_line(cell))

    def store(self, solution: NDArray[np.integer]) -> tuple[tuple[int, int], str]:
        """Take one solution, to be written before the next records; return its (offset, length) in integers and hash."""
        raw = solution_bytes(solution)
        place = (self._offset, len(raw) // 4)
        self._unwritten.append(raw)
        self._offset += place[1]
        return place, solution_sha256(raw)

    def trace(self, key: str, points: tuple[tuple[float, float], ...]) -> None:
        """Append how an anytime solver's cost fell over time: (seconds, cost as the solver sees it) pairs."""
        self._write("traces.jsonl", dump_line({"key": key, "points": points}))

    def append(self, records: list[Record]) -> None:
        """Append records, after the solutions that were stored for them."""
        if self._unwritten:
            self._write("solutions.bin", b"".join(self._unwritten))
            self._unwritten.clear()
        if records:
            self._write("records.jsonl", b"".join(map(dump_line, records)))
            self.written.update(record.cell for record in records)
            if self._held is not None:
                for record in records:
                    self._held.record(record.cell, record.instance)
        if time.monotonic() - self._last_sync > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Force everything to disk, the records last: what they speak of must be there when they are."""
        try:
            for name in sorted(self._files, key=lambda name: name == "records.jsonl"):
                os.fsync(self._files[name])
            if "run.json.part" in self._files:
                os.close(self._files.pop("run.json.part"))
        except OSError as error:
            raise self._failed(error) from error
        self._last_sync = time.monotonic()

    def close(self) -> None:
        """Synchronise and close; a run without any cell leaves no folder behind."""
        try:
            if self._has_cells:
                self.sync()
                if self._held is not None:
                    self._held.tell(self.folder.parent, self.run_id)
        finally:
            self._release()
            if not self._has_cells:
                self._leave_nothing()

    def _leave_nothing(self) -> None:
        """Remove the run's folder, and the folders above it that were made for it alone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # another run is in it
            for folder in self._new:
                folder.rmdir()

    def _release(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def _write(self, name: str, data: bytes) -> None:
        try:
            _write_all(self._files[name] if name in self._files else self._open(name), data)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> ResultsError:
        remedy = "free some space and start the same command again" if error.errno == errno.ENOSPC else ""
        return ResultsError(
            f"{self.folder}: cannot be written ({error.strerror}); what was written before is kept. {remedy}".rstrip()
        )

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _held(results: Path) -> Held | None:
    """Return what notes which records a run holds, for the jobs of a folder that jobs are submitted from."""
    if not (results / SUBMISSIONS).is_dir():
        return None
    from nco_bench.runs.closed import Held

    return Held()


def _write_all(handle: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


def _stamp(results: Path) -> str:
    """Return the time of now to the microsecond, or a later one where that is not after all runs that are there.

    Folders are read in order of their names, and the latest record of a key counts. So their order must be that in
    which runs started, even if the clock was set back in between.
    """
    now = datetime.now(UTC)
    try:
        stamps = [found[0] for name in os.listdir(results) if (found := STAMP.match(name))]
    except OSError:
        stamps = []
    if stamps and max(stamps) >= now.strftime(STAMP_FORMAT):
        try:
            latest = datetime.strptime(max(stamps), STAMP_FORMAT).replace(tzinfo=UTC)
        except ValueError:  # digits, but no time
            return now.strftime(STAMP_FORMAT)
        now = latest + timedelta(microseconds=1)
    return now.strftime(STAMP_FORMAT)


def is_called(results: Path, cell: Cell, dataset: Dataset) -> bool:
    """Whether a stored cell answers to all the names of this one, so that tables that ask for any of them find it."""
    # The name of a generated set means its instances, whatever was run.
    generated = stream_of(cell.source) is not None

    def answers(other: Cell) -> bool:
        same = (other.config_sha256, other.seed, other.label) == (cell.config_sha256, cell.seed, cell.label)
        named = generated or (other.source, other.dataset) == (cell.source, cell.dataset)
        # A file that has got references since is as good as another: reports look for them where a cell says so.
        told = generated or cell.reference_solver is None or other.reference_solver is not None
        return same and named and told and other.is_of(dataset)

    return any(answers(other) for run in find_runs(results) for other in run.cells())


def done(
    results: Path, config_sha256: str, seed: int, dataset: Dataset
) -> dict[tuple[int, int], float | None]:
    """Collect the costs, by (repeat, index), of what is stored of a cell, whoever wrote it and whatever the set was called.

    Only runs that hold a cell of this configuration on a set that begins as this one are read, and of those that
    `nco_bench.runs.closed` knows only the ones with records of these instances.
    """
    found: dict[tuple[int, int], float | None] = {}
    for run, cells in _holding(results, config_sha256, seed, dataset):
        found |= run.solved({cell.cell for cell in cells}, dataset, DONE)
    return found


def batch_sizes(results: Path, config_sha256: str, seed: int, dataset: Dataset) -> dict[tuple[int, int], int]:
    """Return in batches of how many instances what `done` finds was solved, by (repeat, index)."""
    found: dict[tuple[int, int], int] = {}
    for run, cells in _holding(results, config_sha256, seed, dataset):
        for cell in cells:
            found |= dict.fromkeys(run.solved({cell.cell}, dataset, DONE), cell.batch_size)
    return found


def _holding(
    results: Path, config_sha256: str, seed: int, dataset: Dataset
) -> Iterator[tuple[Run, list[Cell]]]:
    """Yield the runs that may hold records of a cell, each with its cells that are like it; the latest last."""
    instances = range(dataset.first_index, dataset.first_index + len(dataset))
    without: frozenset[str] = frozenset()
    if (results / SUBMISSIONS).is_dir():
        from nco_bench.runs.closed import others

        without = others(results, config_sha256, seed, instances)
    for run in find_runs(results, without=without):
        cells = cells_of(run, config_sha256, seed, dataset)
        if cells:
            yield run, cells


def cells_of(run: Run, config_sha256: str, seed: int, dataset: Dataset) -> list[Cell]:
    """Return the cells of a run that are of this configuration, on a set that begins as this one."""
    return [
        cell
        for cell in run.cells()
        if cell.config_sha256 == config_sha256 and cell.seed == seed and cell.is_of(dataset)
    ]
