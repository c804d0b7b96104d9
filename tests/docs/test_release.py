"""What a release says of itself: one version and one date in every place, the first section of the changelog as notes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nco_bench import __version__

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tools import release  # noqa: E402

PLACES = ("CHANGELOG.md", "CITATION.cff", "pyproject.toml", "weights/nco_bench_weights/__init__.py")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in PLACES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


def test_this_tree_says_one_version_everywhere() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/release.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_what_was_unreleased_gets_version_and_date(copy: Path) -> None:
    changes = (copy / "CHANGELOG.md").read_text()
    (copy / "CHANGELOG.md").write_text(
        changes.replace(
            release.TITLE.search(changes)[0], "## Unreleased\n\nOne change.\n\n## 0.1.9 (2025-01-01)", 1
        )  # type: ignore[index]
    )
    wanted, notes = release.said(copy, __version__, "2030-01-02")
    assert f"## {__version__} (2030-01-02)\n\nOne change.\n" in wanted["CHANGELOG.md"]
    assert "date-released: 2030-01-02\n" in wanted["CITATION.cff"]
    assert notes == f"# {__version__} (2030-01-02)\n\nOne change.\n"


def test_a_date_once_given_stays(copy: Path) -> None:
    wanted, _ = release.said(copy, __version__, "2030-01-02")
    assert wanted == {name: (copy / name).read_text() for name in wanted}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("CHANGELOG.md", f"## {__version__}", "## 9.9.9"),
        ("weights/nco_bench_weights/__init__.py", __version__, "9.9.9"),
        ("pyproject.toml", f"nco-bench-weights=={__version__}", "nco-bench-weights==9.9.9"),
    ],
)
def test_another_version_stops_a_release(copy: Path, name: str, old: str, new: str) -> None:
    text = (copy / name).read_text()
    assert old in text
    (copy / name).write_text(text.replace(old, new))
    with pytest.raises(SystemExit, match=r"9\.9\.9"):
        release.said(copy, __version__, "2030-01-02")
