"""Which folders a stranger's code may not write into."""

from __future__ import annotations

from pathlib import Path

_guarded: set[str] = set()


def guard(*folders: Path) -> None:
    """Have the children that are started from now on refuse to write into these folders, or to read records there."""
    _guarded.update(str(folder.resolve()) for folder in folders)


def guarded() -> list[str]:
    """Return these folders' absolute paths."""
    return sorted(_guarded)
