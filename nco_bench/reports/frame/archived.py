"""The columns of a run in an archive: taken as they stand there, no line is decoded."""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.blocks import CODED, PLAIN, STATUS_CODES, Block, counted
from nco_bench.runs.archives import ArchivedRun
from nco_bench.runs.stored_run import Run

NEEDED = ("cell", "instance_sha256", "solution_length", "counts", *(name for name, _ in PLAIN))
NO_HASH = "0" * 16


def blocks_of(run: Run, index: int, groups: Mapping[int, int]) -> Iterator[Block]:
    """Yield the columns of a run, a row group of its archive at a time.

    Parameters
    ----------
    run
        In its archive.
    index
        Of the run, in the frame.
    groups
        The run's cells, as groups.

    Raises
    ------
    ResultsError
        When a record belongs to none of the run's cells.
    """
    assert isinstance(run, ArchivedRun)
    done = integers = 0
    for rows in run.stretches(NEEDED):
        part = slice(done, done := done + rows.num_rows)
        try:
            columns, integers = _columns(rows, groups, integers)
            codes, words = run.coded("status")
            columns["status"] = np.array([STATUS_CODES[word] for word in words], np.int8)[codes[part]]
            strings = {}
            for name in CODED:
                codes, strings[name] = run.coded(name)
                columns[name] = codes[part]
            yield Block(index, columns, strings, _counts(rows["counts"]), shared=True)
        except (KeyError, ValueError) as error:
            raise ResultsError(
                f"{run.folder}: a record does not fit its run ({type(error).__name__}: {error}); move the archive away."
            ) from error


def _counts(column: Any) -> dict[str, NDArray[np.float64]]:
    if column.null_count == len(column):
        return {}
    return counted([orjson.loads(text) if text else {} for text in column.to_pylist()])


def _columns(rows: Any, groups: Mapping[int, int], integers: int) -> tuple[dict[str, NDArray[Any]], int]:
    """Return columns of some rows, and where the solutions of the next begin among the run's integers."""
    cells = rows["cell"].combine_chunks().dictionary_encode()
    columns: dict[str, NDArray[Any]] = {
        "group": np.array([groups[cell] for cell in cells.dictionary.to_pylist()], np.int32)[
            cells.indices.to_numpy()
        ],
        "content": _contents(rows["instance_sha256"]),
    }
    lengths = rows["solution_length"].fill_null(-1).to_numpy().astype(np.int32)
    ends = integers + np.cumsum(np.maximum(lengths, 0), dtype=np.int64)
    columns["solution_offset"] = np.where(lengths < 0, -1, ends - lengths)
    columns["solution_length"] = lengths
    for name, dtype in PLAIN:
        columns[name] = rows[name].to_numpy().astype(dtype)
    return columns, int(ends[-1])


def _contents(column: Any) -> NDArray[np.uint64]:
    """Return hashes of 16 hex digits as numbers, 0 where there is none."""
    import pyarrow.compute as pc

    texts = column.combine_chunks()
    texts = pc.if_else(pc.equal(texts, ""), NO_HASH, texts)
    if texts.null_count or pc.any(pc.not_equal(pc.binary_length(texts), len(NO_HASH))).as_py():
        raise ValueError("an instance's hash does not have 16 digits")
    start, stop = len(NO_HASH) * texts.offset, len(NO_HASH) * (texts.offset + len(texts))
    return np.frombuffer(unhexlify(texts.buffers()[2][start:stop]), dtype=">u8").astype(np.uint64)
