"""The official ESF code on POMO and Omni-VRP: encoder, decoder step and greedy trajectories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nco_bench.parity import check_fixture


@pytest.mark.parametrize("name", ["esf-cvrp", "esf-pomo-tsp"])
def test_official_outputs_are_reproduced(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.ok, outcome.details["failed"]
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4
