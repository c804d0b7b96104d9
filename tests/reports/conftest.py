"""Fixtures of the report tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import Results


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """An empty results folder."""
    return Results(tmp_path / "runs")
