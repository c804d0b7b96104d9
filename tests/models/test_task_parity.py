"""The labellers against the public generators' labels, case by case."""

from pathlib import Path

import pytest

from nco_bench.models.parity import check_fixture
from nco_bench.problems.tasks import TASKS

CASES = {"subset-sum": 5, "floyd-warshall": 5, "scc": 5}
"""Cases beyond id, length, value, noise: legacy ones, and SCC's dense one."""


@pytest.mark.parametrize("task", TASKS)
def test_labels_match_the_public_generators(task: str, shared: Path) -> None:
    outcome = check_fixture(shared / "parity" / f"tasks-{task}.safetensors")
    assert outcome.ok, outcome.details
    compared = {name.split(".")[0] for name in outcome.details if name != "failed"}
    assert len(compared) == CASES.get(task, 4)
