"""Records of many runs as NumPy columns: pieces of their files, decoded one by one or in several processes.

A million records must load in seconds, so lines go straight into columns; no `Record` object is made. The files are cut
into pieces of whole lines. Where there are many, forks of this process decode them; the columns are the same either way,
since every piece numbers its strings itself and the pieces are joined in their order.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.interrupts import ignore_interrupts, interrupts_held
from nco_bench.progress import opened
from nco_bench.reports.frame.blocks import (
    CODE_TYPES,
    CODED,
    COUNT_PREFIX,
    PLAIN,
    STATUS_CODES,
    Block,
    array,
    coded,
    contents,
    counted,
)
from nco_bench.runs.codes import Codes
from nco_bench.runs.stored_run import Run
from nco_bench.seals import first_broken

PIECE_BYTES = 4 << 20
"""Of a file that are decoded at a time; larger pieces gain nothing and hold more at once."""
PARALLEL_BYTES = 100 << 20
"""From here on several processes decode: below, starting them takes as long as they save."""
MOST_PROCESSES = 4
"""More are no faster: joining what they send is the work of one."""

HASHED = b'"instance_sha256":"'
"""What stands in the line of every record of schema 2."""

_NAMES = ("cell", "status", "solution", *CODED, *(name for name, _ in PLAIN))
_FIELDS, _FIELDS_HASHED = itemgetter("cell", *_NAMES), itemgetter("instance_sha256", *_NAMES)
_ORDER = (
    "run", "group", "name", "status", "convention", "message", "solution_offset", "solution_length",
    "content", *(name for name, _ in PLAIN),
)  # fmt: skip


@dataclass(frozen=True)
class Piece:
    """Whole lines of one run's records: bytes ``start .. stop - 1`` of the file.

    Attributes
    ----------
    path, start, stop
        Where they are. A last line without its end is left out: its writer was killed, or is still writing.
    run
        Index of the run.
    groups
        The run's cells, as groups.
    sealed
        Whether every line must have its checksum.
    """

    path: Path
    start: int
    stop: int
    run: int
    groups: Mapping[int, int]
    sealed: bool = False


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
            pieces += _pieces(rows, run, groups)
        elif rows.archived:
            pieces.append(Archived(rows, run, groups))
        else:
            pieces += _pieces(rows.folder / "records.jsonl", run, groups, sealed=rows.sealed)
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
            yield from _decoded([piece for piece in stretch if isinstance(piece, Piece)])


def _told(blocks: Iterable[Block], pieces: int) -> Iterator[Block]:
    """Let whoever listens know how many pieces are read; those without a whole line are not counted."""
    with opened("part", pieces) as level:
        for count, block in enumerate(blocks, start=1):
            yield block
            level.reach(count)


def _pieces(path: Path, run: int, groups: Mapping[int, int], *, sealed: bool = False) -> list[Piece]:
    """Cut a file after whole lines."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            cuts = [0]
            while cuts[-1] + PIECE_BYTES < size:
                file.seek(cuts[-1] + PIECE_BYTES)
                file.readline()
                cuts.append(file.tell())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ResultsError(f"{path}: cannot be read ({error.strerror}).") from error
    return [
        Piece(path, start, stop, run, groups, sealed)
        for start, stop in zip(cuts, [*cuts[1:], size], strict=True)
        if start < stop
    ]


def _decoded(pieces: Sequence[Piece]) -> Iterable[Block]:
    """Decode pieces in their order, in several processes where that is faster."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if cores > 1 and sum(piece.stop - piece.start for piece in pieces) >= PARALLEL_BYTES:
        from nco_bench.isolation.start import may_fork

        if may_fork():
            return decoded_by(min(cores, MOST_PROCESSES), pieces)
    return filter(None, map(decode, pieces))


def decoded_by(processes: int, pieces: Sequence[Piece]) -> Iterator[Block]:
    """Decode in forks of this process, which start at once since everything is imported already.

    Where there is no memory for them, or one is killed, the rest is decoded here.

    Parameters
    ----------
    processes
        How many.
    pieces
        In the order in which their blocks are wanted.
    """
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    done = 0
    try:
        forks = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(processes, mp_context=forks, initializer=ignore_interrupts) as pool:
            with warnings.catch_warnings(), interrupts_held():
                warnings.simplefilter("ignore", DeprecationWarning)  # of threads: `may_fork` looks for them
                blocks = pool.map(decode, pieces)
            try:
                for block in blocks:
                    done += 1
                    if block is not None:
                        yield block
            except BaseException:  # leaving the pool would wait until all pieces are decoded
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except (BrokenProcessPool, OSError):
        yield from filter(None, map(decode, pieces[done:]))


def decode(piece: Piece) -> Block | None:
    """Decode one piece; None where it has no whole line.

    Raises
    ------
    ResultsError
        When it cannot be read, or a line is damaged or belongs to none of its run's cells.
    """
    try:
        with piece.path.open("rb") as file:
            file.seek(piece.start)
            data = file.read(piece.stop - piece.start)
    except OSError as error:
        raise ResultsError(f"{piece.path}: cannot be read ({error.strerror}).") from error
    lines = data.split(b"\n")
    broken = first_broken(lines[:-1], sealed=piece.sealed)
    if broken is not None:
        raise _damaged("it does not have its checksum", piece, broken)
    try:
        return _block(lines[:-1], piece, data) if len(lines) > 1 else None
    except orjson.JSONDecodeError:
        raise _not_json(lines, piece) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ResultsError(
            f"{piece.path}: a record does not fit its run ({type(error).__name__}: {error}); "
            f"move the run's folder away."
        ) from error


def _not_json(lines: Sequence[bytes], piece: Piece) -> ResultsError:
    """Name the first line that is no JSON."""
    for number, line in enumerate(lines):
        try:
            orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return _damaged(str(error), piece, number)
    raise AssertionError("a damaged line is among them")


def _damaged(cause: str, piece: Piece, index: int) -> ResultsError:
    with piece.path.open("rb") as file:
        number = file.read(piece.start).count(b"\n") + index + 1
    return ResultsError(
        f"{piece.path}:{number}: damaged record ({cause}); remove the line, or move the run's folder away."
    )


def _block(lines: Sequence[bytes], piece: Piece, data: bytes) -> Block:
    # A record without counts holds no other object, so it has one brace: then no dict is kept.
    loaded: Iterable[dict[str, Any]] = map(orjson.loads, lines)
    records = list(loaded) if data.count(b"{") > len(lines) else None
    hashed = HASHED in lines[0] and HASHED in lines[-1]
    fields = _FIELDS_HASHED if hashed else _FIELDS
    hashes, cells, statuses, solutions, *rest = zip(*map(fields, records or loaded), strict=True)
    m = len(cells)
    columns: dict[str, NDArray[Any]] = {"group": array(map(piece.groups.__getitem__, cells), m, np.int32)}
    columns["content"] = contents(hashes) if hashed else np.zeros(m, np.uint64)
    strings = {}
    for name, texts in zip(CODED, rest, strict=False):
        columns[name], distinct = coded(texts)
        strings[name] = orjson.dumps(distinct)
    codes, distinct = coded(statuses)
    columns["status"] = array(map(STATUS_CODES.__getitem__, distinct), len(distinct), np.int8)[codes]
    columns["solution_offset"], columns["solution_length"] = _places(solutions)
    for (name, dtype), values in zip(PLAIN, rest[len(CODED) :], strict=True):
        columns[name] = np.array(values, dtype=dtype)  # None becomes NaN
    counts = counted([r.get("counts") or {} for r in records or ()])
    return Block(piece.run, columns, strings, counts)


def _places(solutions: Sequence[Sequence[int] | None]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Offsets and lengths of solutions, -1 without one."""
    if None in solutions:
        solutions = [(-1, -1) if s is None else s for s in solutions]
    flat = np.fromiter(chain.from_iterable(solutions), np.int64)  # type: ignore[arg-type]
    offsets, lengths = flat.reshape(len(solutions), 2).T
    return offsets.copy(), lengths.astype(np.int32)


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
