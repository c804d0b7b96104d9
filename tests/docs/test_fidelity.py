"""docs/fidelity.md is what the records under results/ say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "fidelity.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


def test_the_page_is_up_to_date() -> None:
    pytest.importorskip("torch")
    done = check("--check")
    assert done.returncode == 0, done.stderr


def test_another_argument_is_refused() -> None:
    assert check("--chek").returncode == 2
