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
