"""The columns of a piece of records, whether they came from lines or from an archive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.runs.records import STATUSES

COUNT_PREFIX = "count_"
"""Of the columns that hold records' counts."""
PLAIN: tuple[tuple[str, type], ...] = (
    ("instance", np.int32), ("n", np.int32), ("repeat", np.int32), ("cost", np.float64), ("reference", np.float64),
    ("seconds", np.float64), ("optimal", np.bool_),
)  # fmt: skip
CODED = ("name", "convention", "message")
CODE_TYPES = {"name": np.int32, "convention": np.int16, "message": np.int32}
STATUS_CODES = {name: code for code, name in enumerate(STATUSES)}


@dataclass(frozen=True)
class Block:
    """The columns of one piece.

    Attributes
    ----------
    run
        Index of the run.
    columns
        Name to ``(M,)``; ``content`` is the hash of the instance as a number, 0 where the records do not know it.
    strings
        What the codes of the columns ``name``, ``convention`` and ``message`` stand for in this block, each once: lists, or
        JSON lists, which travel between processes faster than strings one by one.
    counts
        Name to ``(M,)``, NaN where a record lacks it.
    shared
        Whether other blocks have the very same strings.
    """

    run: int
    columns: dict[str, NDArray[Any]]
    strings: dict[str, bytes] | dict[str, list[str]]
    counts: dict[str, NDArray[np.float64]]
    shared: bool = False


def contents(hashes: Sequence[str]) -> NDArray[np.uint64]:
    if "" in hashes:
        hashes = [text or "0" * 16 for text in hashes]
    found = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=">u8").astype(np.uint64)
    if len(found) != len(hashes):
        raise ValueError("an instance's hash does not have 16 digits")
    return found


def array(values: Iterable[int], count: int, dtype: type) -> NDArray[Any]:
    return np.fromiter(values, dtype, count)


def coded(texts: Sequence[str]) -> tuple[NDArray[np.int32], list[str]]:
    """Number strings in the order in which they first occur: the numbers, and what they stand for."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) == 1:
        return np.zeros(len(texts), np.int32), distinct
    codes = {text: code for code, text in enumerate(distinct)}
    return array(map(codes.__getitem__, texts), len(texts), np.int32), distinct


def counted(counts: Sequence[Mapping[str, float]]) -> dict[str, NDArray[np.float64]]:
    columns = {}
    for name in dict.fromkeys(chain.from_iterable(counts)):
        try:
            found = list(map(itemgetter(name), counts))
        except KeyError:  # not all records count the same
            found = [line.get(name) for line in counts]
        columns[name] = np.array(found, dtype=np.float64)
    return columns
