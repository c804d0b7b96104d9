"""Texts as numbers: what many records share stands once, and each record has a number for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


class Codes(dict[str, int]):
    """Strings to consecutive codes, given when first seen."""

    def __missing__(self, text: str) -> int:
        self[text] = code = len(self)
        return code

    def numbers(self, distinct: Sequence[str], dtype: type) -> NDArray[Any]:
        """Return the codes of strings that all differ, ``(K,)``; ValueError where two do not."""
        first, count = len(self), len(distinct)
        if not first or self.keys().isdisjoint(distinct):  # twice as fast as one by one
            self.update(zip(distinct, range(first, first + count), strict=True))
            if len(self) != first + count:
                raise ValueError("a list of texts has one of them twice")
            return np.arange(first, first + count, dtype=dtype)
        return np.fromiter(map(self.__getitem__, distinct), dtype, count)


def unified(columns: Iterable[pa.ChunkedArray], rows: int) -> tuple[NDArray[np.int32], list[str]]:
    """Number the texts of several columns alike.

    Parameters
    ----------
    columns
        Dictionary-encoded, one after the other. Lists of texts that are equal, as of solvers on one set, are looked up once.
    rows
        Of all together.

    Returns
    -------
    codes
        ``(rows,)``
    texts
        What they stand for, each once.

    Raises
    ------
    ValueError
        When a row has none.
    """
    codes, numbers = np.empty(rows, np.int32), Codes()
    known: dict[bytes, NDArray[np.int32]] = {}
    done = 0
    for chunk in (chunk for column in columns for chunk in column.chunks):
        if chunk.null_count:
            raise ValueError("a record has no text where each has one")
        mark = _mark(chunk.dictionary)
        if mark not in known:
            texts = chunk.dictionary.to_numpy(zero_copy_only=False).tolist()
            known[mark] = numbers.numbers(texts, np.int32)
        codes[done : done + len(chunk)] = known[mark][chunk.indices.to_numpy()]
        done += len(chunk)
    return codes, list(numbers)


def _mark(texts: pa.Array) -> bytes:
    """Return a hash of texts and their places, equal only for equal lists."""
    found = hashlib.sha256(f"{texts.offset} {len(texts)}".encode())
    for buffer in texts.buffers()[1:]:
        found.update(buffer or b"")
    return found.digest()
