"""What the Python API is given, as Python's own values: NumPy's numbers become numbers, paths become text."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from nco_bench.errors import BadInputError, shown

MOST_REPEATED = 200
"""Characters of a wrong value that its message repeats."""


def plain(value: Any) -> Any:
    """Return a NumPy scalar as Python's value and a path as text; anything else as it is."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    numpy = sys.modules.get("numpy")  # who has one of its values has imported it
    if numpy is None:
        return value
    if isinstance(value, numpy.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, numpy.floating):
        return float(str(value))  # 0.1 in float32 is meant as 0.1
    return value.item() if isinstance(value, numpy.generic) else value


def listed(value: Any) -> list[Any]:
    """Return one value or several, in whatever holds them, as a list of plain values."""
    value = plain(value)
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return [value]
    try:
        return [plain(one) for one in value]
    except TypeError:  # an array library's number says that it can be gone through
        return [value]


def several(name: str, values: Any) -> tuple[str, ...]:
    """Return one name or several as several; None is none.

    Parameters
    ----------
    name
        Of the argument, for the message.
    values
        Names or paths.

    Raises
    ------
    BadInputError
        For anything else.
    """
    found = [] if values is None else listed(values)
    if not all(isinstance(one, str) for one in found):
        raise refused(name, values, "a name or a list of names")
    return tuple(found)


def as_text(name: str, value: Any, words: str = "text") -> str:
    """Return a text or a path as text; `several` says what the parameters are."""
    found = plain(value)
    if not isinstance(found, str):
        raise refused(name, value, words)
    return found


def refused(place: str, value: Any, words: str) -> BadInputError:
    """Return the error that says where a wrong value stands, and what was expected there."""
    return BadInputError(f"{place} is {shown(repr(value), MOST_REPEATED)}; expected {words}.")
