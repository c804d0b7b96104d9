"""Runs as one file that travels: Parquet (zstd), one row per instance with all its identities and its solution.

What stands once per run (``run.json``, the lines of cells and traces) is in the file's metadata, and so is what the
archive itself is: its format, the commit of the nco-bench that packed it, and the SHA-256 of the whole file, taken with
that hash's own digits as zeros. Every reader checks the hash before it believes a byte. Runs keep what they say of
themselves, such as that they were made from a dirty tree. The live store stays folders of lines: an archive is
written once and never appended to.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.errors import MissingDependencyError, ResultsError
from nco_bench.runs.archive_check import refuse_other_columns, runs_described
from nco_bench.runs.codes import unified
from nco_bench.runs.stored_run import Damaged, Run

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = 1
FACTS, RUNS, HASH = b"nco-bench.archive", b"nco-bench.runs", b"nco-bench.sha256"
"""Keys of the file's metadata."""
NO_HASH = b"0" * 64
KEPT_OPEN = 16
"""Archives whose bytes stay in memory between calls."""
RECORD_COLUMNS = (
    "key", "cell", "instance", "name", "n", "repeat", "seed", "status", "cost", "reference", "seconds", "optimal",
    "solution", "solution_sha256", "convention", "message", "instance_sha256",
)  # fmt: skip
"""Fields of a record's line, in their order; those of a solution and of counts are stored otherwise."""
CODED = ("name", "convention", "message", "status")
"""Fields whose texts many records share."""


@dataclass(frozen=True)
class ArchiveFacts:
    """What an archive says of itself.

    Attributes
    ----------
    path
        Where it is.
    version, commit, dirty
        Of the nco-bench that packed it; the commit is None where that was no checkout.
    runs, records
        How many.
    dirty_runs
        Ids of the runs that were made from a changed tree.
    """

    path: str
    version: str
    commit: str | None
    dirty: bool
    runs: int
    records: int
    dirty_runs: tuple[str, ...]


class ArchivedRun(Run):
    """A run in an archive; ``folder`` is the archive's path with the run's id below it, for messages."""

    archived = True

    def __init__(self, archive: Archive, index: int, start: int, stop: int) -> None:
        self.archive, self._start, self._stop = archive, start, stop
        self._facts = archive.runs[index]
        self.parts = len(archive.groups(start, stop))
        super().__init__(archive.path / str(self._facts["id"]))

    def _document(self) -> dict[str, Any]:
        return dict(self._facts["info"])

    def lines(self, name: str, damaged: Damaged | None = None) -> Iterator[dict[str, Any]]:
        """Yield the lines of one of the files that the run had as a folder; none is damaged, for the archive is sound."""
        if name == "records.jsonl":
            return self._record_lines()
        return iter(self._facts.get(name.removesuffix(".jsonl"), ()))

    def rows(self) -> pa.Table:
        """Return the records as columns, without the solutions."""
        return self.archive.rows.slice(self._start, self._stop - self._start)

    def stretches(self, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """Yield some columns of the records, a row group at a time, so that the rest is not in memory."""
        return self.archive.stretches(self._start, self._stop, names)

    def coded(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Return a column of the records as numbers, and what they stand for, see `Archive.coded`."""
        codes, texts = self.archive.coded(name)
        return codes[self._start : self._stop], texts

    def size(self) -> int:
        """Return the run's share of the archive's bytes, by its records."""
        return round(self.archive.size * (self._stop - self._start) / max(1, self.archive.rows.num_rows))

    def count(self) -> int:
        """Return the number of its records."""
        return self._stop - self._start

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each record's solution begins among the integers of the run, ``(M + 1,)``."""
        lengths = self.rows()["solution_length"].fill_null(0).to_numpy()
        return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def _record_lines(self) -> Iterator[dict[str, Any]]:
        for row, offset in zip(self.rows().to_pylist(), self.offsets.tolist(), strict=False):
            length, counts = row["solution_length"], row["counts"]
            row["solution"] = None if length is None else [offset, length]
            line = {name: row[name] for name in RECORD_COLUMNS}
            if counts is not None:
                line["counts"] = orjson.loads(counts)
            yield line

    def integers(self, offset: int, length: int, whose: str) -> NDArray[np.int32]:
        """Read integers of the stored solutions, see `Run.integers`."""
        if length == 0:
            return np.zeros(0, dtype="<i4")
        row = int(np.searchsorted(self.offsets, offset, side="right")) - 1
        if row >= self.count() or self.offsets[row] != offset or self.offsets[row + 1] != offset + length:
            raise ResultsError(f"{self.folder}: has no solution of {whose}.")
        return self.archive.solution(self._start + row)


class Archive:
    """An archive in memory: its hash is checked, its columns are read when they are asked for."""

    def __init__(self, path: Path, data: bytes) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path, self.size = path, len(data)
        self._data = data
        self._coded: dict[str, tuple[NDArray[np.int32], list[str]]] = {}
        try:
            self._file: pq.ParquetFile = pq.ParquetFile(pa.BufferReader(data))
            metadata = self._file.metadata.metadata or {}
        except (pa.ArrowException, OSError, ValueError) as error:
            raise ResultsError(f"{path}: damaged, or no Parquet file ({_first_line(error)}).") from error
        self.is_archive = any(key in metadata for key in (FACTS, RUNS, HASH))
        if not self.is_archive:
            if HASH in data:
                raise ResultsError(f"{path}: damaged: it has lost what it says of itself; fetch it again.")
            return
        if not _is_sound(data, metadata.get(HASH)):
            raise ResultsError(f"{path}: damaged: its content is not what its SHA-256 says; fetch it again.")
        self.facts: dict[str, Any] = _facts(path, metadata.get(FACTS, b""))
        if self.facts.get("format") != FORMAT:
            raise ResultsError(
                f"{path}: an archive of format {self.facts.get('format')}, this version reads {FORMAT}; "
                f"install the nco-bench that packed it ({self.facts.get('version')})."
            )
        refuse_other_columns(path, self._file, len(data))
        self.runs: list[dict[str, Any]] = runs_described(
            path, metadata.get(RUNS, b""), self._file.metadata.num_rows
        )
        self._group: tuple[int, NDArray[np.int32], NDArray[np.int64]] | None = None
        self._read: tuple[int, tuple[str, ...], pa.Table] | None = None

    @cached_property
    def rows(self) -> pa.Table:
        """All records, a row each, without the solutions."""
        names = [name for name in self._file.schema_arrow.names if name != "solution"]
        with self._reading():
            return self._file.read(columns=names).combine_chunks()

    def stretches(self, start: int, stop: int, names: tuple[str, ...]) -> Iterator[pa.Table]:
        """Yield some columns of rows ``start .. stop - 1``, a row group at a time."""
        for number in self.groups(start, stop):
            first = int(self._group_starts[number])
            begin = max(start - first, 0)
            yield self._columns(number, names).slice(begin, stop - first - begin)

    def coded(self, name: str) -> tuple[NDArray[np.int32], list[str]]:
        """Return a column of `CODED` in all rows as numbers, and what they stand for, each once; always the same object.

        Raises
        ------
        ResultsError
            When it is damaged, or a row has none.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if name not in self._coded:
            with self._reading():
                file = pq.ParquetFile(pa.BufferReader(self._data), read_dictionary=[name])
                groups = (file.read_row_group(i, columns=[name])[name] for i in range(file.num_row_groups))
                self._coded[name] = unified(groups, file.metadata.num_rows)
        return self._coded[name]

    def groups(self, start: int, stop: int) -> range:
        """Return the numbers of the row groups that hold rows ``start .. stop - 1``."""
        if start == stop:
            return range(0)
        first, last = np.searchsorted(self._group_starts, (start, stop - 1), side="right") - 1
        return range(int(first), int(last) + 1)

    def _columns(self, number: int, names: tuple[str, ...]) -> pa.Table:
        """Read columns of a row group; they are kept for the next run, which may stand in the same."""
        if self._read is None or self._read[:2] != (number, names):
            with self._reading():
                self._read = number, names, self._file.read_row_group(number, columns=list(names))
        return self._read[2]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise ResultsError(f"{self.path}: damaged ({_first_line(error)}).") from None

    @cached_property
    def _group_starts(self) -> NDArray[np.int64]:
        meta = self._file.metadata
        counts = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    def solution(self, row: int) -> NDArray[np.int32]:
        """Return the solution of a row, ``(K,)``; the row group that it is in is kept for the next."""
        number = int(np.searchsorted(self._group_starts, row, side="right")) - 1
        if self._group is None or self._group[0] != number:
            with self._reading():
                lists = self._file.read_row_group(number, columns=["solution"])["solution"].combine_chunks()
            lengths = lists.value_lengths().fill_null(0).to_numpy()
            values = lists.flatten().to_numpy().astype("<i4", copy=False)
            self._group = number, values, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        _, values, offsets = self._group
        place = row - int(self._group_starts[number])
        return values[offsets[place] : offsets[place + 1]]

    def all_runs(self) -> list[ArchivedRun]:
        """Return the runs, by name."""
        ends = np.cumsum([0, *(run["records"] for run in self.runs)]).tolist()
        return [ArchivedRun(self, i, ends[i], ends[i + 1]) for i in range(len(self.runs))]


def _facts(path: Path, content: bytes) -> dict[str, Any]:
    try:
        facts = orjson.loads(content)
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not isinstance(facts.get("revision") or {}, dict):
        raise ResultsError(f"{path}: damaged: what it says of itself cannot be read.")
    return facts


def archived_runs(path: Path, *, named: bool = True) -> list[ArchivedRun]:
    """Return the runs of an archive.

    Parameters
    ----------
    path
        The file.
    named
        Whether it was asked for by name; another Parquet file that lies in a results folder (an export) has no runs.

    Raises
    ------
    ResultsError
        If the file cannot be read, is damaged, or is no archive but was asked for.
    MissingDependencyError
        Without pyarrow.
    """
    archive = _open(path)
    if archive.is_archive:
        return archive.all_runs()
    if named:
        raise ResultsError(f"{path}: no archive of runs; 'nco-bench runs pack' makes them.")
    return []


def facts_of_archive(path: Path) -> ArchiveFacts:
    """Return what an archive says of itself; raises as `archived_runs` does."""
    runs = archived_runs(path)
    facts = _open(path).facts
    revision = facts.get("revision") or {}
    marked = tuple(run.run_id for run in runs if revision_of(run.info).get("dirty"))
    return ArchiveFacts(
        str(path), str(facts.get("version")), revision.get("commit"), bool(revision.get("dirty")), len(runs),
        sum(run.count() for run in runs), marked,
    )  # fmt: skip


def digest(data: bytes, digits: bytes) -> bytes:
    """Return the SHA-256, as hex digits, of a file whose own hash stands in its metadata, with zeros in that place."""
    place, view = data.rfind(digits), memoryview(data)  # a view of it: slices would be copies
    content = hashlib.sha256(view[:place])
    content.update(NO_HASH)
    content.update(view[place + len(digits) :])
    return content.hexdigest().encode()


def _is_sound(data: bytes, digits: bytes | None) -> bool:
    return digits is not None and len(digits) == len(NO_HASH) and digest(data, digits) == digits


def revision_of(info: dict[str, Any]) -> dict[str, Any]:
    """Return commit and dirty flag of the checkout that made a run; empty where it does not say."""
    environment = info.get("environment")
    revision = environment.get("revision") if isinstance(environment, dict) else None
    return revision if isinstance(revision, dict) else {}


def _open(path: Path) -> Archive:
    try:
        found = path.stat()
        return _opened(path, (found.st_ino, found.st_size, found.st_mtime_ns))
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error


@lru_cache(maxsize=KEPT_OPEN)
def _opened(path: Path, _state: tuple[int, ...]) -> Archive:
    needs_pyarrow(path)
    return Archive(path, path.read_bytes())


def needs_pyarrow(path: Path) -> None:
    """Raise `MissingDependencyError` for a file that cannot be read or written here."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            f"{path}: archives of runs need pyarrow: pip install 'nco-bench[parquet]'."
        ) from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
