"""Commands as a person types them, parsed as the command line does, without running them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from nco_bench.cli.app import command


def accepted(line: str) -> dict[str, Any]:
    """Parse a command; return its arguments and options. Variables set before the program's name are left out."""
    words = shlex.split(line)
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    program, *words = words
    assert program == "nco-bench"
    current = command()
    context = current.make_context("nco-bench", [], resilient_parsing=True)
    while hasattr(current, "commands"):
        name, *words = words
        current = current.commands[name]
    return current.make_context("advised", words, parent=context).params


def all_commands(current: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every command and group with its words, the program itself with none."""
    current = current or command()
    yield " ".join(words), current
    for name, below in getattr(current, "commands", {}).items():
        yield from all_commands(below, (*words, name))
