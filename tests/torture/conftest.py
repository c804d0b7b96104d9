"""Fixtures of the torture tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starter import Starter


@pytest.fixture(scope="module")
def one_starter() -> Iterator[Starter]:
    """One process for the tests of a file, to import everything takes seconds; later files' memory is not its."""
    one = Starter()
    yield one
    one.close()


@pytest.fixture
def starter(tmp_path: Path, one_starter: Starter) -> Iterator[Starter]:
    """Starts commands; none of them may have printed a traceback at the end."""
    told = tmp_path / "errors.txt"
    told.touch()
    one_starter.environment = {"STARTER_ERRORS": str(told), "NCO_BENCH_CACHE": str(tmp_path / "cache")}
    yield one_starter
    assert "Traceback" not in told.read_text()
