"""Small parsers for command-line values."""

from __future__ import annotations

from nco_bench.errors import BadInputError


def key_values(option: str, items: list[str] | None) -> dict[str, str]:
    """
    Parse repeated ``KEY=VALUE`` options.

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
    """
    Parse ``--batch-size``; None stands for ``auto``.

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
