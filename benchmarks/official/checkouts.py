"""Finding the authors' code: checkouts under the repositories' own names, at the commits that the cards name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from nco_bench.cards import find


def checkout_of(name: str, family: types.ModuleType, folder: Path, any_commit: bool = False) -> Path | None:
    """Return where the official repository of a model lies; None where it has none.

    A family says otherwise than the card of its name by ``REPOSITORY`` and ``COMMIT``.

    Raises
    ------
    LookupError
        In one line, where it is missing or stands at another commit.
    """
    card = find(getattr(family, "CARD", name))
    repository = getattr(family, "REPOSITORY", card.repository if card else "")
    if not repository:
        return None
    commit = (
        getattr(family, "COMMIT", "") or next((file.commit for file in card.official), "") if card else ""
    )
    place = folder / repository.rstrip("/").split("/")[-1]
    if not place.is_dir():
        raise LookupError(
            f"no {place}: check out github.com/{repository.split('github.com/')[-1]} at {commit} there."
        )
    asked = subprocess.run(
        ["git", "-C", str(place), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    found = asked.stdout.strip() if asked.returncode == 0 else "unknown"
    if found != commit and not any_commit:
        raise LookupError(
            f"{place} stands at commit {found}, expected {commit}; check that out, or add --any-commit."
        )
    return place.resolve()


def first_on_path(folders: Sequence[Path]) -> None:
    """Let the authors' modules be imported by their own names."""
    sys.path[:0] = [str(folder) for folder in folders]


def module_of(file: Path) -> types.ModuleType:
    """Import one file of the authors' under a name of its own, where several files have one name."""
    spec = importlib.util.spec_from_file_location("_".join(file.parts[-3:]).removesuffix(".py"), file)
    if spec is None or spec.loader is None:
        raise LookupError(f"no {file}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
