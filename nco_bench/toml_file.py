"""TOML files of strangers: bounded before they are parsed, so that none takes seconds, gigabytes or the stack."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

from nco_bench.errors import BadInputError

MOST_BYTES = 2**17
DEEPEST = 32
"""Brackets within brackets, or dots in a key."""

LARGEST = 2**63
STRINGS = re.compile(
    r'"""(?:[^\\]|\\.?)*?(?:"""|\Z)|\'\'\'.*?(?:\'\'\'|\Z)|"(?:[^"\\\n]|\\.)*"?|\'[^\'\n]*\'?|#[^\n]*',
    re.DOTALL,
)
"""Strings and comments; one that is not closed goes on to the end, so that no search for its end is made twice."""
BETWEEN_KEYS = re.compile(r"[=,{}\[\]]")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a small TOML file; see `read_toml_text`."""
    return read_toml_text(path)[1]


def read_toml_text(path: Path) -> tuple[str, dict[str, Any]]:
    """Read a small TOML file: its text, and the values in it.

    Raises
    ------
    BadInputError
        If it cannot be read, is no TOML, holds a NUL, or is larger or more deeply nested than any such file has to be; or
        for numbers beyond 64 bits or that are not finite.
    """
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise BadInputError(f"{path}: {size:,} bytes; at most {MOST_BYTES:,} are read.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInputError(f"{path}: cannot be read ({reason}).") from error
    _bound(path, STRINGS.sub("s", text))
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: not TOML ({error}).") from error
    _check(path, values, "")
    return text, values


def _bound(path: Path, bare: str) -> None:
    """Refuse what is too deep, looking at the text without its strings and comments."""
    depth = 0
    for number, line in enumerate(bare.split("\n"), 1):
        if line.count(".") > DEEPEST and any(part.count(".") > DEEPEST for part in BETWEEN_KEYS.split(line)):
            raise BadInputError(f"{path}:{number}: a key of more than {DEEPEST} parts.")
        for character in line:
            depth += (character in "[{") - (character in "]}")
            if depth > DEEPEST:
                raise BadInputError(f"{path}:{number}: brackets nested more than {DEEPEST} deep.")


def _check(path: Path, value: Any, place: str) -> None:
    if isinstance(value, dict):
        for key, below in value.items():
            _check(path, key, place)
            _check(path, below, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for below in value:
            _check(path, below, place)
    elif isinstance(value, str) and "\0" in value:
        raise BadInputError(f"{path}: {place or 'a key'} holds a NUL character.")
    elif isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise BadInputError(f"{path}: {place} is a number beyond 64 bits.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise BadInputError(f"{path}: {place} = {value}: expected a finite number.")
