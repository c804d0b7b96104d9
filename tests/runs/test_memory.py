"""What the memory column counts: the solver, not what another solver of the same command has imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.datasets.load import Places
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run


def test_insertion_beside_a_network_takes_no_memory_for_torch(tmp_path: Path) -> None:
    """torch alone holds more than 100 MB; four instances of 50 cities need next to nothing."""
    pytest.importorskip("torch")
    pytest.importorskip("random_insertion")
    solvers = ("am:weights=random", "random-insertion")
    outcome = run(
        RunRequest(solvers, ("tsp50:count=4",), tmp_path / "runs", Places(tmp_path)), QuietDisplay()
    )
    insertion = outcome.cells[1]
    assert insertion.peak_memory_mb is not None
    assert insertion.own_memory_mb is not None
    assert insertion.peak_memory_mb > 100
    assert insertion.own_memory_mb < 100
