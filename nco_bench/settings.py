"""``KEY=VALUE`` settings, wherever they stand: in names of solvers, datasets and decodings, and in options."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from typing import Any

from nco_bench.errors import BadInputError, UnknownNameError

WORDS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
NOUNS = {bool: "true or false", int: "a whole number", float: "a number"}


def pairs(
    place: str, parts: Iterable[str], kind: str = "", known: Collection[str] | None = None
) -> dict[str, str]:
    """Read ``KEY=VALUE`` parts; a dash in a key is an underscore.

    Parameters
    ----------
    place
        Where they stand, for messages.
    parts
        One setting each.
    kind, known
        What keys are called in messages, and all there are; None takes any.

    Raises
    ------
    UnknownNameError
        For a key that is not known.
    BadInputError
        For a part that is no ``KEY=VALUE``, or a key that is given twice.
    """
    found: dict[str, str] = {}
    for part in parts:
        text, equals, value = part.partition("=")
        key = text.replace("-", "_")
        if known is not None and key not in known:
            raise UnknownNameError(kind, text, known)
        if not equals or not key:
            raise BadInputError(f"{place}: expected KEY=VALUE, got {part!r}.")
        if key in found:
            raise BadInputError(f"{place}: {text} is given twice; keep one.")
        found[key] = value
    return found


def parse(place: str, text: str, kind: type, *, low: float = -math.inf, high: float = math.inf) -> Any:
    """Read a value of a type.

    Parameters
    ----------
    place
        What the value is, for messages, such as ``seed of tsp100``.
    text
        As it was given.
    kind
        bool, int, float or str.
    low, high
        Smallest and largest number that makes sense, both allowed.

    Raises
    ------
    BadInputError
        For a text that is no such value.
    """
    if kind is str:
        return text
    value = _read(text, kind)
    if value is None or not low <= value <= high:
        raise BadInputError(f"{place} is {text!r}; expected {NOUNS[kind]}{_range(low, high)}.")
    return value


def _read(text: str, kind: type) -> bool | int | float | None:
    if kind is bool:
        return WORDS.get(text.lower())
    if kind is int:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _range(low: float, high: float) -> str:
    if high < math.inf:
        return f" in [{_short(low)}, {_short(high)}]"
    return f" of at least {_short(low)}" if low > -math.inf else ""


def _short(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:g}"
