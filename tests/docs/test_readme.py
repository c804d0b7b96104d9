"""The README stays short, and what it takes from records and weights is current."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_has_at_most_a_hundred_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_its_table_and_its_solvers_are_what_the_records_and_weights_say(readme: ModuleType) -> None:
    text = (ROOT / "README.md").read_text()
    assert readme.filled(text) == text
    changed = text.replace("`lkh3`", "`lkh4`")
    assert changed != text
    assert readme.filled(changed).count("`lkh4`") == changed.split("<!-- solvers")[0].count("`lkh4`")


def test_its_links_lead_somewhere() -> None:
    import re

    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#:]+)\)|<img src=\"([^\"]+)\"", page.read_text()):
            target = page.parent / (link[0] or link[1])
            assert target.exists(), f"{page.name}: {target}"


def test_what_is_installed_by_hand_and_by_make_reads_the_records_in_the_repository() -> None:
    """They are archives, which need pyarrow: `reproduce --stored` and `make site` would end at the first."""
    import re

    assert list((ROOT / "results").rglob("*.parquet"))
    lock = re.search(r"^EXTRAS = \((.*)\)$", (ROOT / "tools" / "lock_demo.py").read_text(), re.MULTILINE)
    assert lock is not None
    wanted = set(re.findall(r'"(\w+)"', lock[1]))
    assert "parquet" in wanted
    for file in ("README.md", "Makefile"):
        lines = re.findall(r"-e '\.\[([\w,]+)\]'", (ROOT / file).read_text())
        assert lines
        assert all(wanted <= set(extras.split(",")) for extras in lines)
