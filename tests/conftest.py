"""Fixtures that several test folders need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The developers' folder of papers, fixtures and instances; tests that need it skip without it."""
    folder = Path(os.environ.get("NCO_BENCH_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "instances").is_dir():
        pytest.skip(
            f"needs the developers' data folder (looked for {folder}; NCO_BENCH_SHARED names another)"
        )
    return folder
