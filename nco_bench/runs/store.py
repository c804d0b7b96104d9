"""Writing a run: append-only files, whole lines, synchronised to disk in time but not for every instance."""

from __future__ import annotations

import errno
import os
import secrets
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench import __version__
from nco_bench.errors import ResultsError
from nco_bench.runs.records import (
    SCHEMA,
    Cell,
    Record,
    dump_line,
    find_runs,
    solution_bytes,
    solution_sha256,
)

SYNC_SECONDS = 0.5
"""Lines reach the operating system at once (a killed process loses nothing) and the disk at this interval."""


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
        When the folder cannot be written, here and later (disk full).
    """

    def __init__(self, results: Path, info: dict[str, Any]) -> None:
        # Folders are read in order of their names, and the latest record of a key counts: the order must be that of time.
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
        self.run_id = f"{stamp}-{os.getpid()}-{secrets.token_hex(3)}"
        self.folder = results / self.run_id
        self._last_sync = time.monotonic()
        self._offset = 0
        self._traces: int | None = None
        self._unwritten: list[bytes] = []
        try:
            self.folder.mkdir(parents=True)
            self._cells = _open(self.folder / "cells.jsonl")
            self._records = _open(self.folder / "records.jsonl")
            self._solutions = _open(self.folder / "solutions.bin")
            document = {"schema": SCHEMA, "version": __version__, "run_id": self.run_id, **info}
            temporary = self.folder / "run.json.part"
            temporary.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
            temporary.replace(self.folder / "run.json")
        except OSError as error:
            raise ResultsError(
                f"{results}: cannot be written ({error.strerror}); choose another folder with --results."
            ) from error

    def cell(self, cell: Cell | dict[str, Any]) -> None:
        """Append a cell's facts, or further facts of a cell that was written before."""
        self._write(self._cells, dump_line(asdict(cell) if isinstance(cell, Cell) else cell))

    def store(self, solution: NDArray[np.integer]) -> tuple[tuple[int, int], str]:
        """Take one solution, to be written before the next records; return its (offset, length) in integers and hash."""
        raw = solution_bytes(solution)
        place = (self._offset, len(raw) // 4)
        self._unwritten.append(raw)
        self._offset += place[1]
        return place, solution_sha256(raw)

    def trace(self, key: str, points: tuple[tuple[float, float], ...]) -> None:
        """Append how an anytime solver's cost fell over time: (seconds, cost as the solver sees it) pairs."""
        if self._traces is None:
            self._traces = _open(self.folder / "traces.jsonl")
        self._write(self._traces, dump_line({"key": key, "points": points}))

    def append(self, records: list[Record]) -> None:
        """Append records, after the solutions that were stored for them."""
        if self._unwritten:
            self._write(self._solutions, b"".join(self._unwritten))
            self._unwritten.clear()
        if records:
            self._write(self._records, b"".join(dump_line(r) for r in records))
        if time.monotonic() - self._last_sync > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Force everything to disk, solutions first."""
        try:
            for handle in (self._solutions, self._records, self._cells):
                os.fsync(handle)
        except OSError as error:
            raise self._failed(error) from error
        self._last_sync = time.monotonic()

    def close(self) -> None:
        """Synchronise and close; a run without any cell leaves no folder behind."""
        self.sync()
        for handle in (self._solutions, self._records, self._cells, self._traces):
            if handle is not None:
                os.close(handle)
        if not (self.folder / "cells.jsonl").stat().st_size:
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

    def _write(self, handle: int, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
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


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def done_keys(results: Path, config_sha256: str, dataset_sha256: str) -> set[str]:
    """Collect the keys of stored records of a cell, whichever process wrote them.

    Only runs that hold a cell of this configuration and dataset are read.
    """
    keys: set[str] = set()
    for run in find_runs(results):
        cells = {
            c.cell
            for c in run.cells()
            if c.config_sha256 == config_sha256 and c.dataset_sha256 == dataset_sha256
        }
        if cells:
            keys.update(
                line["key"] for line in run.raw_records() if line["cell"] in cells and line["status"] in DONE
            )
    return keys
