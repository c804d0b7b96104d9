"""Texts of strangers (messages, names) made safe to store and to show on a terminal or a page."""

from __future__ import annotations

import unicodedata

MOST_CHARACTERS = 2000
ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode that are written as escapes: controls, marks of direction, lone surrogates, private and unknown."""


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Return a text as one printable line: runs of white space as a blank, what would move a cursor as ``\x1b``."""
    line = " ".join(text.split())[:most]
    if line.isprintable():
        return line
    return "".join(_escaped(c) if unicodedata.category(c) in ESCAPED else c for c in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
