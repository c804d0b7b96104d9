"""The labellers against the public generators' labels, case by case."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from nco_bench.parity import check_fixture
from nco_bench.problems.tasks import TASKS
from nco_bench.problems.tasks.arrange import pair_tokens, positions
from nco_bench.problems.tasks.quickselect import normalised

CASES = {"id", "length", "value", "noise"}
"""Of every task; some fixtures have legacy ones and SCC's dense one beside them."""


@pytest.mark.parametrize("task", TASKS)
def test_labels_match_the_public_generators(task: str, official: Callable[[str], Path]) -> None:
    path = official(f"tasks-{task}")
    outcome = check_fixture(path)
    assert outcome.ok, outcome.details
    compared = {name.split(".")[0] for name in outcome.details if name != "failed"}
    held = {key.split(".")[1] for key in load_file(path) if key.startswith("expected.")}
    assert compared >= CASES
    assert compared == held


@pytest.mark.parametrize("case", ["id", "length", "value"])
def test_features_are_those_of_the_public_generators(case: str, official: Callable[[str], Path]) -> None:
    def tokens(task: str, name: str = "x") -> np.ndarray:
        return load_file(official(f"tasks-{task}"))[f"input.{case}.{name}"]

    raw, n = tokens("quickselect", "raw"), tokens("quickselect").shape[1]
    ours = np.stack([normalised(raw[..., 0].astype(int)), (raw[..., 1] - 1) / (n - 1)], axis=-1)
    assert ours == pytest.approx(tokens("quickselect"), abs=1e-6)
    packed = tokens("bin-packing")
    assert packed[..., 2] == pytest.approx(
        np.broadcast_to(positions(packed.shape[1]), packed.shape[:2]), abs=1e-6
    )
    for task in ("scc", "floyd-warshall"):
        graph = tokens(task)
        n = round(graph.shape[1] ** 0.5)
        assert pair_tokens(graph[..., 0].reshape(-1, n, n)) == pytest.approx(graph, abs=1e-6)
