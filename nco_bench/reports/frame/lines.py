"""Lines of records as blocks of columns: pieces of whole lines, decoded one by one or in several processes.

Where there are many, forks of this process decode them; the columns are the same either way, since every piece numbers its
strings itself and the blocks are joined in their order.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.interrupts import ignore_interrupts, interrupts_held
from nco_bench.reports.frame.blocks import (
    CODED,
    PLAIN,
    STATUS_CODES,
    Block,
    array,
    coded,
    contents,
    counted,
)
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


def pieces_of(path: Path, run: int, groups: Mapping[int, int], *, sealed: bool = False) -> list[Piece]:
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


def decoded(pieces: Sequence[Piece]) -> Iterable[Block]:
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
