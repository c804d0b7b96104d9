"""Write locks/demo.txt: the exact versions of what `make demo` installed, found from the project's own requirements.

Run in the environment to be locked: ``.venv/bin/python tools/lock_demo.py``.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("neural", "classical", "plots", "parquet")
"""Those that `make install` names."""


def closure(requirements: list[Requirement]) -> dict[str, str]:
    """Return the versions of what requirements need here, by canonical name."""
    versions: dict[str, str] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    open_ones = list(requirements)
    while open_ones:
        requirement = open_ones.pop()
        name = canonicalize_name(requirement.name)
        key = (name, frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:
            sys.exit(f"{requirement.name} is not installed here; run `make install` first.")
        versions[name] = found.version.partition("+")[0]  # of torch's builds for one kind of machine
        for text in found.requires or ():
            needed = Requirement(text)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                open_ones.append(needed)
    return versions


def main() -> None:
    """Write the lock."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [
        *project["dependencies"],
        *(t for extra in EXTRAS for t in project["optional-dependencies"][extra]),
    ]
    versions = closure([Requirement(text) for text in texts])
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items())]
    head = "# Versions behind `make demo`, by tools/lock_demo.py: pip install -r locks/demo.txt\n"
    (ROOT / "locks" / "demo.txt").write_text(head + "".join(lines))


if __name__ == "__main__":
    main()
