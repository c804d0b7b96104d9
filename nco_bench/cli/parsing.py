"""Small parsers for command-line values."""

from __future__ import annotations

import re

from nco_bench.errors import BadInputError


def key_values(option: str, items: list[str] | None) -> dict[str, str]:
    """Parse repeated ``KEY=VALUE`` options.

    Raises
    ------
    BadInputError
        For an item without ``=``.
    """
    out = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise BadInputError(f"{option} {item!r}: expected KEY=VALUE.")
        out[key.replace("-", "_")] = value
    return out


def parse_batch_size(text: str) -> int | None:
    """Parse ``--batch-size``; None stands for ``auto``.

    Raises
    ------
    BadInputError
        For anything but ``auto`` or a positive whole number.
    """
    if text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise BadInputError(f"--batch-size {text!r}: expected auto or a whole number >= 1.")
    return int(text)


def parse_duration(text: str | None) -> float | None:
    """Parse a wall time such as ``90s``, ``9m`` or ``2h`` to seconds.

    Raises
    ------
    BadInputError
        For anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise BadInputError(f"--budget {text!r}: expected a positive number with s, m or h, for instance 9m.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def one_of(**flags: bool) -> str | None:
    """Return the name of the one flag that is set, or None.

    Raises
    ------
    BadInputError
        When several are set.
    """
    given = [name for name, value in flags.items() if value]
    if len(given) > 1:
        raise BadInputError(f"--{given[0]} and --{given[1]} exclude each other; give one of them.")
    return given[0] if given else None


def whole_numbers(option: str, text: str, *, least: int) -> list[int]:
    """Parse a comma-separated list of whole numbers.

    Raises
    ------
    BadInputError
        For anything else, or a number below `least`.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) >= least for part in parts):
        raise BadInputError(f"{option} {text!r}: expected whole numbers >= {least}, separated by commas.")
    return [int(part) for part in parts]
