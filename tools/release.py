"""Write what a release says of itself, or compare: ``python tools/release.py [--check] [--notes FILE]``.

The version stands in ``nco_bench/__init__.py``. The first section of CHANGELOG.md gets version and date as its title (one
called ``Unreleased`` becomes it), CITATION.cff the same two; both packages and the extra ``weights`` must have that version.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
TITLE = re.compile(r"^## (.+)$", re.MULTILINE)
DATED = re.compile(r"(\S+) \((\d{4}-\d{2}-\d{2})\)")


def main() -> int:
    """Write or compare; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 where something differs"
    )
    parser.add_argument("--notes", type=Path, help="file for the section of the changelog")
    given = parser.parse_args()
    version = _version(ROOT / "nco_bench/__init__.py")
    wanted, notes = said(ROOT, version, f"{datetime.now(UTC):%Y-%m-%d}")
    differing = [name for name, text in wanted.items() if (ROOT / name).read_text() != text]
    for name in differing:
        if given.check:
            print(f"{name}: does not say what version {version} is; python tools/release.py writes it")
        else:
            (ROOT / name).write_text(wanted[name])
            print(f"{name}: says {version} now")
    if given.notes:
        given.notes.parent.mkdir(parents=True, exist_ok=True)
        given.notes.write_text(notes)
    return 1 if given.check and differing else 0


def said(root: Path, version: str, today: str) -> tuple[dict[str, str], str]:
    """Return the changelog and the citation as a release has them, and the section of this version.

    Raises
    ------
    SystemExit
        With one line: for a first section of another version, or a package that has another one.
    """
    others = {
        "weights/nco_bench_weights/__init__.py": _version(root / "weights/nco_bench_weights/__init__.py"),
        "pyproject.toml, extra weights": _extra((root / "pyproject.toml").read_text()),
    }
    for place, other in others.items():
        if other != version:
            sys.exit(f"{place}: version {other}, nco_bench has {version}")
    changes = (root / "CHANGELOG.md").read_text()
    title = TITLE.search(changes)
    if title is None:
        sys.exit("CHANGELOG.md: has no section (## VERSION (DATE))")
    dated = DATED.fullmatch(title[1])
    if title[1] != "Unreleased" and (dated is None or dated[1] != version):
        sys.exit(f"CHANGELOG.md: begins with {title[1]!r}; expected {version} (DATE) or Unreleased")
    date = dated[2] if dated else today
    changes = f"{changes[: title.start()]}## {version} ({date}){changes[title.end() :]}"
    citation = (root / "CITATION.cff").read_text()
    for field, value in {"version": version, "date-released": date}.items():
        citation, count = re.subn(rf"^{field}: .*$", f"{field}: {value}", citation, flags=re.MULTILINE)
        if count != 1:
            sys.exit(f"CITATION.cff: has {count} lines {field}, expected one")
    section = re.split(r"^## ", changes[title.start() :], flags=re.MULTILINE)[1]
    return {"CHANGELOG.md": changes, "CITATION.cff": citation}, f"# {section.rstrip()}\n"


def _version(file: Path) -> str:
    found = VERSION.search(file.read_text())
    if found is None:
        sys.exit(f"{file}: has no __version__")
    return found[1]


def _extra(project: str) -> str:
    found = re.search(r'^weights = \["nco-bench-weights==(.+)"\]$', project, re.MULTILINE)
    return found[1] if found else "none"


if __name__ == "__main__":
    sys.exit(main())
