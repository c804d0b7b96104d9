"""Records of many runs as NumPy columns: the blocks of their files and archives, one after the other.

A million records must load in seconds, so no `Record` object is made.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from nco_bench.progress import opened
from nco_bench.reports.frame.blocks import CODE_TYPES, CODED, COUNT_PREFIX, PLAIN, Block
from nco_bench.reports.frame.lines import Piece, decoded, pieces_of
from nco_bench.runs.codes import Codes
from nco_bench.runs.stored_run import Run

_ORDER = (
    "run", "group", "name", "status", "convention", "message", "solution_offset", "solution_length",
    "content", *(name for name, _ in PLAIN),
)  # fmt: skip


@dataclass(frozen=True)
class Archived:
    """All records of a run in an archive; the rest as in `Piece`."""

    rows: Run
    run: int
    groups: Mapping[int, int]


@dataclass(frozen=True)
class Columns:
    """All records: a frame, and what its codes stand for."""

    records: pd.DataFrame
    names: tuple[str, ...]
    conventions: tuple[str, ...]
    messages: tuple[str, ...]


def read_columns(files: Sequence[tuple[Path | Run, Mapping[int, int]]]) -> Columns:
    """Read the records of all runs.

    Parameters
    ----------
    files
        For each run itself, or a ``records.jsonl``, which may be absent; and its cells as groups.

    Raises
    ------
    ResultsError
        When a file cannot be read, or a line is damaged or belongs to none of its run's cells.
    """
    pieces: list[Piece | Archived] = []
    for run, (rows, groups) in enumerate(files):
        if isinstance(rows, Path):
            pieces += pieces_of(rows, run, groups)
        elif rows.archived:
            pieces.append(Archived(rows, run, groups))
        else:
            pieces += pieces_of(rows.folder / "records.jsonl", run, groups, sealed=rows.sealed)
    with _without_gc():
        parts = sum(one.rows.parts if isinstance(one, Archived) else 1 for one in pieces)
        expected = sum(one.rows.count() for one in pieces if isinstance(one, Archived))
        return _joined(_told(_blocks(pieces), parts), expected)


def _blocks(pieces: Sequence[Piece | Archived]) -> Iterator[Block]:
    """Blocks in the order of their pieces."""
    for archived, stretch in groupby(pieces, lambda piece: isinstance(piece, Archived)):
        if archived:
            from nco_bench.reports.frame.archived import blocks_of

            for one in stretch:
                assert isinstance(one, Archived)
                yield from blocks_of(one.rows, one.run, one.groups)
        else:
            yield from decoded([piece for piece in stretch if isinstance(piece, Piece)])


def _told(blocks: Iterable[Block], pieces: int) -> Iterator[Block]:
    """Let whoever listens know how many pieces are read; those without a whole line are not counted."""
    with opened("part", pieces) as level:
        for count, block in enumerate(blocks, start=1):
            yield block
            level.reach(count)


class _Column:
    """A column put together from pieces, without room for two of it; `expected` is its length, where that is known."""

    def __init__(self, dtype: np.dtype[Any], expected: int) -> None:
        self._values, self._length = np.empty(expected, dtype), 0

    def add(self, values: NDArray[Any]) -> None:
        end = self._length + len(values)
        if end > len(self._values):
            self._values.resize(max(end, len(self._values) * 5 // 4), refcheck=False)
        self._values[self._length : end] = values
        self._length = end

    def whole(self) -> NDArray[Any]:
        self._values.resize(self._length, refcheck=False)
        return self._values


def _joined(blocks: Iterable[Block], expected: int) -> Columns:
    """Put the blocks one after the other, their strings numbered in the order in which they were first seen."""
    codes = {name: Codes() for name in CODED}
    shared: dict[tuple[str, int], tuple[object, NDArray[Any]]] = {}
    """Codes by the identity of strings, which are kept: what blocks of one archive share is looked up once."""
    joined: dict[str, _Column] = {}
    counts, total = dict[str, list[tuple[int, NDArray[np.float64]]]](), 0
    for block in blocks:
        length = len(block.columns["group"])
        for name, values in {"run": np.full(length, block.run, np.int32), **block.columns}.items():
            if name in CODED:
                texts = block.strings[name]
                if (name, id(texts)) in shared:
                    _, lookup = shared[name, id(texts)]
                else:
                    strings = orjson.loads(texts) if isinstance(texts, bytes) else texts
                    lookup = codes[name].numbers(strings, CODE_TYPES[name])
                if block.shared:
                    shared[name, id(texts)] = texts, lookup
                values = lookup[values]
            if name not in joined:
                joined[name] = _Column(values.dtype, expected)
            joined[name].add(values)
        for name, values in block.counts.items():
            counts.setdefault(name, []).append((total, values))
        total += length
    columns = {name: joined.pop(name).whole() for name in _ORDER if name in joined}
    for name, found in counts.items():
        columns[f"{COUNT_PREFIX}{name}"] = column = np.full(total, np.nan)
        for start, values in found:
            column[start : start + len(values)] = values
    return Columns(pd.DataFrame(columns, copy=False), *(tuple(codes[name]) for name in CODED))


@contextmanager
def _without_gc() -> Iterator[None]:
    """Hold the cycle collector off: millions of short-lived dicts make it run all the time, and there are no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
