"""From runs to an archive and back: what is packed is read again from the disk before it takes its name."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench import __version__, files
from nco_bench.errors import ResultsError
from nco_bench.progress import tracked
from nco_bench.runs.archive_check import OF_CELL, archive_schema
from nco_bench.runs.archives import (
    FACTS,
    FORMAT,
    HASH,
    NO_HASH,
    RUNS,
    Archive,
    digest,
    needs_pyarrow,
    revision_of,
)
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell, Record, dump_line, solution_bytes, solution_sha256
from nco_bench.runs.stored_run import Run
from nco_bench.seals import seal_document

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_INTEGERS = 8 << 20
"""Of solutions in a row group, about: to read one solution is to read its group (32 MiB, or one longer solution)."""
PAGE_BYTES = 1 << 30
"""More than a row group has: zstd finds repeats within a page only, such as what two tours of an instance share."""
GROUP_ROWS = 1 << 16
NOT_REPEATED = ("key", "solution_sha256", "cost", "seconds", "solution")
"""Columns that a dictionary would make longer."""


def pack(
    runs: Sequence[Run],
    out: Path,
    revision: dict[str, Any],
    *,
    allow_dirty: bool = False,
    largest: int | None = None,
    without: Collection[str] = (),
) -> None:
    """Write runs as an archive, whole or not at all; the same runs and commit give the same bytes.

    Parameters
    ----------
    runs
        From folders or other archives.
    out
        The file, ``.parquet``; an archive that stood there is replaced where all its runs are packed again.
    revision
        ``commit`` and ``dirty`` of this nco-bench's checkout, from `nco_bench.runs.environment.code_revision`; or empty.
    allow_dirty
        Pack from a changed checkout, too; the archive is marked then.
    largest
        Of instances with more nodes than this the solution's hash alone is kept, unless the course of a search goes with it;
        None keeps all.
    without
        Ids of runs that an archive in the place may lose.

    Raises
    ------
    ResultsError
        For a dirty checkout, another ending, a damaged run, a file whose runs would be lost, or a place that cannot be
        written.
    MissingDependencyError
        Without pyarrow.
    """
    needs_pyarrow(out)
    if out.suffix != ".parquet":
        raise ResultsError(f"{out}: expected a name that ends in .parquet.")
    if revision.get("dirty") and not allow_dirty:
        raise ResultsError(
            f"{out}: not packed: the checkout of nco-bench has changes that are not committed, so no commit says what made "
            "the archive. Commit them, or add --allow-dirty to mark it."
        )
    ordered = sorted({run.run_id: run for run in runs}.values(), key=lambda run: run.run_id)
    if out.exists():
        _refuse_loss(out, {run.run_id for run in ordered}.union(without))
    with files.replacing(out, mode=files.READABLE) as temporary:
        _write(temporary, ordered, revision, largest)
        temporary.write_bytes(_sealed(temporary.read_bytes()))
        _check(Archive(temporary, temporary.read_bytes()), ordered, largest)


def _refuse_loss(out: Path, packed: set[str]) -> None:
    """Refuse to replace an archive that holds other runs; raises `ResultsError`."""
    lost = [run.run_id for run in find_runs(out) if run.run_id not in packed]
    if lost:
        some = f"{lost[0]} and {len(lost) - 1} more" if len(lost) > 1 else lost[0]
        raise ResultsError(
            f"{out}: holds runs that are not packed now ({some}) and would be lost; choose another --out, or pack them "
            f"along with --results {out}."
        )


def _write(path: Path, runs: Sequence[Run], revision: dict[str, Any], largest: int | None) -> None:
    import pyarrow.parquet as pq

    schema = archive_schema()
    repeated = [name for name in schema.names if name not in NOT_REPEATED]
    with pq.ParquetWriter(
        path, schema, compression="zstd", compression_level=19, store_schema=False, write_statistics=False,
        use_dictionary=repeated, column_encoding={"solution.list.element": "BYTE_STREAM_SPLIT"}, data_page_size=PAGE_BYTES,
    ) as writer:  # fmt: skip
        rows = _Rows(writer, schema)
        described: list[dict[str, Any]] = []
        for run in tracked(runs, "run"):
            described.append(
                {
                    "id": run.run_id,
                    "records": rows.add(run, largest),
                    "info": run.info,
                    "cells": list(run.lines("cells.jsonl")),
                    "traces": list(run.lines("traces.jsonl")),
                }
            )
        rows.flush()
        facts = {
            "format": FORMAT, "version": __version__, "revision": revision,
            "runs": len(described), "records": sum(one["records"] for one in described),
        }  # fmt: skip
        once = base64.b64encode(zlib.compress(orjson.dumps(described), 9))
        writer.add_key_value_metadata({FACTS: orjson.dumps(facts), RUNS: once, HASH: NO_HASH})


@dataclass
class _Rows:
    """Rows on their way to a file, a group at a time."""

    writer: pq.ParquetWriter
    schema: pa.Schema

    def __post_init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._integers = 0

    def add(self, run: Run, largest: int | None) -> int:
        """Add a run's records; return how many."""
        cells = {cell.cell: _of_cell(cell) for cell in run.cells()}
        revision = revision_of(run.info)
        of_run = {
            "run": run.run_id, "version": str(run.info.get("version") or ""),
            "commit": revision.get("commit"), "dirty": revision.get("dirty"),
        }  # fmt: skip
        count = 0
        for record in _kept(run, largest):
            if record.cell not in cells:
                raise ResultsError(
                    f"{run.folder}: record {record.key} belongs to cell {record.cell}, which the run has not."
                )
            self._rows.append({**of_run, **cells[record.cell], **_of_record(run, record)})
            self._integers += record.solution[1] if record.solution else 0
            count += 1
            if self._integers >= GROUP_INTEGERS or len(self._rows) >= GROUP_ROWS:
                self.flush()
        return count

    def flush(self) -> None:
        """Write what is there as a row group."""
        import pyarrow as pa

        if self._rows:
            columns = {name: [row[name] for row in self._rows] for name in self.schema.names}
            self.writer.write_table(pa.table(columns, schema=self.schema), row_group_size=len(self._rows))
        self._rows, self._integers = [], 0


def _of_cell(cell: Cell) -> dict[str, Any]:
    weights = cell.weights or {}
    facts = {name: getattr(cell, name) for name in OF_CELL}
    return {**facts, "weights": weights.get("name"), "weights_sha256": weights.get("sha256")}


def _of_record(run: Run, record: Record) -> dict[str, Any]:
    row = {name: getattr(record, name) for name in Record.__slots__}  # type: ignore[attr-defined]
    row["counts"] = None if record.counts is None else orjson.dumps(record.counts).decode()
    row["solution"], row["solution_length"] = None, None
    if record.solution is not None:
        solution = checked_solution(run, record)
        row["solution"], row["solution_length"] = solution, len(solution)
    return row


def checked_solution(run: Run, record: Record) -> NDArray[np.int32]:
    """Read a record's solution; raises `ResultsError` where it is not what its hash says."""
    solution = run.solution(record)
    if solution_sha256(solution_bytes(solution)) != record.solution_sha256:
        raise ResultsError(
            f"{run.folder}: the stored solution of {record.name} (record {record.key}) is not what its hash says; "
            "see 'nco-bench verify'."
        )
    return solution


def _sealed(data: bytes) -> bytes:
    """Return a file's bytes with their hash in the place that was left for it."""
    place = data.rfind(NO_HASH)
    return data[:place] + digest(data, NO_HASH) + data[place + len(NO_HASH) :]


def _kept(run: Run, largest: int | None) -> Iterator[Record]:
    """Yield a run's records, those of larger instances without their solutions.

    A course is found by its solution, so that stays; what a search began with is no course.
    """
    courses = set() if largest is None else {
        line.get("key") for line in run.lines("traces.jsonl") if len(line.get("points", ())) > 1
    }  # fmt: skip
    for record in run.records():
        if largest is not None and record.n > largest and record.key not in courses:
            record.solution = None
        yield record


def _check(archive: Archive, runs: Sequence[Run], largest: int | None) -> None:
    """Hold what was written against what it was made of."""
    for packed, run in zip(archive.all_runs(), runs, strict=True):
        if contents(packed) != contents(run, largest):
            raise ResultsError(
                f"{run.folder}: does not read back from an archive as it is; nothing was written."
            )


def contents(run: Run, largest: int | None = None) -> dict[str, bytes]:
    """Return a run's files as they are written out anew; equal runs have equal contents, folders or not.

    Solutions stand one after the other in the order of the records; torn lines are left out, and so are gaps, which
    records of schema 1 held and nothing reads. `largest` as in `pack`.
    """
    lines, solutions, offset = [], [], 0
    for record in _kept(run, largest):
        if record.solution is not None:
            solutions.append(solution_bytes(run.solution(record)))
            record.solution = (offset, record.solution[1])
            offset += record.solution[1]
        lines.append(dump_line(record))
    found = {"records.jsonl": b"".join(lines)}
    for name in ("traces.jsonl", "cells.jsonl"):
        found[name] = b"".join(map(dump_line, run.lines(name)))
    found["solutions.bin"] = b"".join(solutions)
    found["run.json"] = seal_document(run.info, indent=2)
    return found


def write_folder(run: Run, folder: Path) -> None:
    """Write a run's contents into an empty folder, which must not be where readers look."""
    for name, content in contents(run).items():
        if content or name != "traces.jsonl":
            (folder / name).write_bytes(content)
