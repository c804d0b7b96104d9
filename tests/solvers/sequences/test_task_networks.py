"""The task networks as solvers: answers in the referee's form, and weights of another task or network refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadWeightsError, NcoBenchError
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.algorithmic_regression import as_numbers
from nco_bench.problems.tasks import TASKS, generate
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.sequences.task_scores import score_network, score_of
from nco_bench.solvers.sequences.task_solver import TaskNetworkSolver, load_network
from nco_bench.training.task_campaign import Member, train_member


def solver(name: str, weights: str | None) -> TaskNetworkSolver:
    return TaskNetworkSolver(SolverOptions(solver=name, weights=weights))


@pytest.mark.parametrize("task", ["quickselect", "subset-sum", "fractional-knapsack", "floyd-warshall"])
def test_answers_are_those_of_the_network(task: str, tmp_path: Path) -> None:
    dataset = load_dataset(f"{task}:count=5", Places(tmp_path))
    running = solver("tropical", "random")
    assert running.unsupported(dataset) is None
    running.prepare(dataset)
    outcomes = running.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)
    _, network = load_network("tropical", TASKS[task], "random")
    for instance, outcome in zip(dataset.instances, outcomes, strict=True):
        assert isinstance(instance, TaskInstance)
        with torch.no_grad():
            raw = network(torch.from_numpy(instance.inputs)[None]).reshape(-1).numpy()
        if TASKS[task].regression:
            np.testing.assert_allclose(as_numbers(np.asarray(outcome)), raw, rtol=1e-4, atol=1e-5)
        else:
            sure = np.abs(raw) > 1e-5
            np.testing.assert_array_equal(np.asarray(outcome)[sure], (raw > 0)[sure])


def test_scores_are_those_of_a_hand_example() -> None:
    targets = np.array([[1.0, 0.0, 1.0, 0.0]])
    found = score_of(TASKS["knapsack"], np.array([[3.0, 2.0, -1.0, -1.0]]), targets)
    assert found.f1 == pytest.approx(50.0)
    assert found.accuracy == pytest.approx(50.0)
    assert score_of(TASKS["floyd-warshall"], targets + 2, targets).mse == pytest.approx(4.0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a vanilla network for quickselect after two updates."""
    folder = tmp_path_factory.mktemp("campaign")
    train_member(Member("quickselect", "vanilla", 3), 1000, folder, float("inf"))
    return folder / "round-1000" / "vanilla-quickselect-seed3.safetensors"


def test_weights_of_another_task_variant_or_network_are_refused_in_one_line(trained: Path) -> None:
    file, _ = load_network("vanilla", TASKS["quickselect"], str(trained))
    assert file is not None
    assert file.manifest.samples == 1000
    assert file.manifest.share_of_paper == pytest.approx(1e-4)
    with pytest.raises(BadWeightsError, match="for quickselect, not for knapsack"):
        load_network("vanilla", TASKS["knapsack"], str(trained))
    with pytest.raises(BadWeightsError, match="of vanilla, not of tropical"):
        load_network("tropical", TASKS["quickselect"], str(trained))
    from nco_bench.problems.tasks import VARIANTS

    with pytest.raises(NcoBenchError, match="not for variant raw") as error:
        load_network("vanilla", VARIANTS["quickselect"]["raw"], str(trained))
    assert "\n" not in str(error.value)


def test_the_harness_scores_a_network_as_the_sweep_does(trained: Path, tmp_path: Path) -> None:
    from nco_bench.problems import algorithmic

    dataset = load_dataset("quickselect:count=40", Places(tmp_path))
    running = solver("vanilla", str(trained))
    running.prepare(dataset)
    outcomes = running.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)
    totals = dict.fromkeys(("tp", "fp", "fn", "tn"), 0.0)
    for instance, outcome in zip(dataset.instances, outcomes, strict=True):
        assert isinstance(instance, TaskInstance)
        for key, value in algorithmic.counts(instance, np.asarray(outcome)).items():
            totals[key] += value
    batch = generate("quickselect", count=40)
    found = score_network("vanilla", TASKS["quickselect"], batch, str(trained))
    assert found.accuracy == pytest.approx(100 * (totals["tp"] + totals["tn"]) / sum(totals.values()))
    assert found.f1 == pytest.approx(
        200 * totals["tp"] / max(1, 2 * totals["tp"] + totals["fp"] + totals["fn"])
    )
