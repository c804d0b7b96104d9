"""The working folder of the tests on SLURM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from one_node import SOLVER, Place, until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A folder with a solver that can be held; jobs that a test leaves are cancelled."""
    if "NCO_BENCH_SLURM_NODE" not in os.environ:
        pytest.skip("needs SLURM: make cluster-test")
    (tmp_path / "slow.py").write_text(SOLVER)
    yield Place(tmp_path)
    subprocess.run(["scancel", "--quiet", "--me"], check=False)
    idle = ["squeue", "-h", "--me"]
    until(lambda: not subprocess.run(idle, capture_output=True, text=True, check=False).stdout, "empty queue")
