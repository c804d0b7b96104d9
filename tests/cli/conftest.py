"""The command line in the process of the tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import Done

from nco_bench.cli.app import run


@pytest.fixture
def nco_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command line in this process, in an empty folder, as the entry point runs it."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        capfd.readouterr()
        status = run(list(arguments))
        out, err = capfd.readouterr()
        return Done(status, out, err)

    return call
