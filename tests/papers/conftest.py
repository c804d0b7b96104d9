"""A table that a classical solver answers in a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.papers import preset


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A preset with two rows that a classical solver answers in a moment; the folder for results."""
    folder = tmp_path / "tropical" / "presets"
    folder.mkdir(parents=True)
    (folder / "table-2.toml").write_text("""
        [[rule]]
        cannot = "not here"
        [[rule]]
        column = "CPU time"
        row = "Tropical .*"
        metric = "seconds"
        solver = "nearest-neighbor"
        data = "tsp20"
        count = { smoke = 1, cpu = 20, full = 10000 }
    """)
    monkeypatch.setattr(preset, "paper_room", lambda paper: tmp_path / paper)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    return tmp_path / "results"
