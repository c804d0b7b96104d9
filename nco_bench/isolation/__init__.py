"""Running code that may crash, hang or print: native solvers in a child process, programs of others by lines of JSON.

`child` starts, feeds, limits and reaps the one, `program` the other; neither knows a solver by name. What is called in a
child before its first instance (`main`, `transport`) imports little, since every run waits for it.

The room has one setting: folders that a stranger's code may not write into.
"""

from __future__ import annotations

from pathlib import Path

_guarded: set[str] = set()


def guard(*folders: Path) -> None:
    """Have the children that are started from now on refuse to write into these folders, or to read records there."""
    _guarded.update(str(folder.resolve()) for folder in folders)


def guarded() -> list[str]:
    """Return these folders' absolute paths."""
    return sorted(_guarded)
