"""Fixtures that several test folders need."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]

# A shell that was told `make test &` lets what it starts ignore Ctrl-C, which tests of Ctrl-C would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SOAK = (
    "torture/",
    "cards/test_cards.py",
    "cli/test_options_twice.py",
    "devices/test_benchmarks.py",
    "devices/test_several.py",
    "isolation/test_child_clock.py",
    "runs/test_robustness.py",
    "solvers/external/test_stranger.py",
    "solvers/test_extremes.py",
    "solvers/test_own_modules.py",
    "training/test_campaign.py",
    "training/test_flagships.py",
    "training/test_turned_copies.py",
)
"""Files that take a quarter of all time: kills, strangers, faults, every solver in turn, and trainings to their end."""


@pytest.hookimpl(tryfirst=True)  # before marks choose
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what soaks."""
    tests = Path(__file__).parent
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(SOAK):
            item.add_marker("soak")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The developers' folder of papers, fixtures and instances; tests that need it skip without it."""
    folder = Path(os.environ.get("NCO_BENCH_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "instances").is_dir():
        pytest.skip(
            f"needs the developers' data folder (looked for {folder}; NCO_BENCH_SHARED names another)"
        )
    return folder


@pytest.fixture
def official() -> Callable[[str], Path]:
    """Find a fixture of the authors' code by its name: the developers' own, what ``make parity`` made, a small one here."""

    def found(name: str) -> Path:
        made = os.environ.get("NCO_BENCH_PARITY")
        folders = [
            Path(os.environ.get("NCO_BENCH_SHARED", REPOSITORY.parent / "shared")) / "parity",
            *([Path(made)] if made else []),
            REPOSITORY / "tests" / "parity" / "fixtures",
        ]
        for folder in folders:
            if (folder / f"{name}.safetensors").is_file():
                return folder / f"{name}.safetensors"
        pytest.skip(
            f"needs the fixture {name}: make parity OFFICIAL=FOLDER, then NCO_BENCH_PARITY=demo/parity"
        )

    return found
