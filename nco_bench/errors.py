"""What a user can cause and mend: one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable

DEBUG = "NCO_BENCH_DEBUG"
"""Environment variable that ``--debug`` sets, for this process and those that it starts."""


def debugging() -> bool:
    """Whether tracebacks are to be shown."""
    return os.environ.get(DEBUG) == "1"


class NcoBenchError(Exception):
    """A mistake that the user can mend; the command line prints it as one line and exits with status 2."""


MOST_SHOWN = 200
"""Characters of an unknown name that its message repeats."""


class UnknownNameError(NcoBenchError):
    """A name (solver, dataset, decoding, ...) that nothing answers to; the message suggests the nearest ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
        if len(name) > MOST_SHOWN:
            name = f"{name[:MOST_SHOWN]}..."
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        suggestion = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        if not near and names and len(names) <= 12:
            suggestion = f" Known: {', '.join(names)}."
        super().__init__(f"Unknown {kind} {name!r}.{suggestion}{' ' + hint if hint else ''}")


class BadInputError(NcoBenchError):
    """A file or value that does not hold what it should; the message names the place (file, line) and the cause."""


class BadWeightsError(NcoBenchError):
    """A weights file that is damaged, changed, missing, or belongs to another model."""


class MissingWeightsError(BadWeightsError):
    """Weights that nothing here answers to by name."""


class MissingDependencyError(NcoBenchError):
    """An optional package or program that is not installed; the message holds the command that installs it."""


class ResultsError(NcoBenchError):
    """A results folder that cannot be read or written, or records that do not fit together."""


class MissingRecordsError(ResultsError):
    """A solver that is known but has no records of a dataset; the message holds the command that makes them."""


class SolverFailedError(NcoBenchError):
    """A solver that crashed, hung or returned nonsense on one instance; recorded, and the run goes on."""


def counted(number: int, noun: str) -> str:
    """Say how many of something there are: ``1 record``, ``1,000 records``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


MOST_CHARACTERS = 2000
ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of Unicode that are written as escapes: controls, marks of direction, lone surrogates, private and unknown."""


def shown(text: str, most: int = MOST_CHARACTERS) -> str:
    r"""Return a text as one printable line: runs of white space as a blank, what would move a cursor as ``\x1b``."""
    line = " ".join(text.split())[:most]
    if line.isprintable():
        return line
    import unicodedata

    return "".join(_escaped(c) if unicodedata.category(c) in ESCAPED else c for c in line)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
