"""A stored run, read lazily; `records` says which files its folder holds, `finding` which runs a folder has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import ResultsError
from nco_bench.runs.records import READABLE, Cell, Record
from nco_bench.seals import BrokenSealError, is_sealed_document, unseal_document, unseal_line

Damaged = Callable[[ResultsError], object]
"""Takes what is wrong with a line."""


class Run:
    """A stored run, read lazily: a folder here, rows of a file in `nco_bench.runs.archives.ArchivedRun`.

    Parameters
    ----------
    folder
        Folder with ``run.json``.
    """

    archived = False
    """Whether it stands in an archive."""
    parts = 1
    """In how many pieces an archive's columns are read."""
    sealed = False
    """Whether its lines must have checksums: the version that wrote them sealed ``run.json``, too."""

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
        document, self.sealed = _read_json(self.folder / "run.json")
        return document

    def lines(self, name: str, damaged: Damaged | None = None) -> Iterator[dict[str, Any]]:
        """Yield the lines of one of the run's ``.jsonl`` files; none where it has no such file, see `read_lines`."""
        return read_lines(self.folder / name, sealed=self.sealed, damaged=damaged)

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
            if not merged and self.count():
                raise ResultsError(
                    f"{self.folder}: its cells.jsonl is gone; bring it back, or move the folder away."
                )
            return [Cell(**merged[index]) for index in sorted(merged)]
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise self._unknown("cells.jsonl", "cells", error) from error

    def records(self, damaged: Damaged | None = None) -> Iterator[Record]:
        """Yield the records in the order they were written; a torn last line is left out, see `read_lines`."""
        for line in self.lines("records.jsonl", damaged):
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
            kept = "no solution" if record.solution_sha256 is None else "the hash of its solution alone"
            raise ResultsError(f"{self.folder}: record {record.key} ({record.name}) has {kept}.")
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


def _read_json(path: Path) -> tuple[dict[str, Any], bool]:
    """Return what a document says, and whether it is sealed."""
    try:
        raw = path.read_bytes()
        document = unseal_document(raw)
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise ResultsError(f"{path}: damaged ({error}); move the run's folder away.") from error
    if not isinstance(document, dict):
        raise ResultsError(f"{path}: damaged (not an object); move the run's folder away.")
    return document, is_sealed_document(raw)


def read_lines(path: Path, *, sealed: bool, damaged: Damaged | None = None) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a file; a torn last line (killed while writing) is skipped, others are errors.

    So is a line without a checksum where all are `sealed`. With `damaged` the errors go there, and the lines after them
    are read.
    """
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
                yield orjson.loads(unseal_line(line, sealed=sealed))
            except (orjson.JSONDecodeError, BrokenSealError) as error:
                fault = ResultsError(
                    f"{path}:{number}: damaged record ({error}); remove the line, or move the run's folder away."
                )
                if damaged is None:
                    raise fault from error
                damaged(fault)
