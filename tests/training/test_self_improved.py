"""Self-improved learning: pseudo-labels never get longer, stay solutions, and a run continues where it was."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.decoding.problem import route_arrays, tsp_problem
from nco_bench.models.path import PathState
from nco_bench.models.registry import build_path_policy
from nco_bench.problems import cvrp
from nco_bench.training.run import train
from nco_bench.training.sampling import sample_without_replacement
from nco_bench.training.self_improved import PseudoLabels, SelfRecipe

LIGHT = {"width": 16, "heads": 2, "ffn": 32, "layers": 1, "repeats": 2}


class Fixed:
    """A policy that scores nodes by a fixed table, whatever is left."""

    problem = "tsp"

    def __init__(self, weights: list[float]) -> None:
        self.log = torch.log(torch.tensor(weights, dtype=torch.float64))

    def embed(self, nodes: Any) -> torch.Tensor:
        """Return the weights of the nodes."""
        return self.log.expand(len(nodes.coords), -1)[..., None]

    def scores(self, state: PathState) -> torch.Tensor:
        """Return them for the candidates."""
        return state.features[:, 1:-1, 0]


def _probability(order: tuple[int, ...], weights: list[float]) -> float:
    left, probability = sum(weights[1:]), 1.0
    for node in order:
        probability *= weights[node] / left
        left -= weights[node]
    return probability


def test_samples_are_distinct_and_the_first_is_drawn_from_the_policy() -> None:
    """The sample with the largest perturbed value follows the policy; compared with the exact distribution (3! tours)."""
    weights = [1.0, 1.0, 2.0, 4.0]
    problem = tsp_problem(torch.rand(4000, 4, 2, generator=torch.Generator().manual_seed(1)))
    paths = sample_without_replacement(Fixed(weights), problem, 3, torch.Generator().manual_seed(2))  # type: ignore[arg-type]
    orders = paths.order.view(-1, 3, 3)
    for row in orders[:200].tolist():
        assert len({tuple(order) for order in row}) == 3
    found = Counter(tuple(order) for order in orders[:, 0].tolist())
    for order in itertools.permutations((1, 2, 3)):
        expected = _probability(order, weights)
        error = math.sqrt(expected * (1 - expected) / 4000)
        assert found[order] / 4000 == pytest.approx(expected, abs=4.5 * error)
    row = tuple(orders[0, 0].tolist())
    assert paths.log_prob[0].item() == pytest.approx(math.log(_probability(row, weights)), rel=1e-6)


def test_all_solutions_are_found_where_few_exist() -> None:
    problem = tsp_problem(torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(1)))
    paths = sample_without_replacement(Fixed([1.0, 1, 2, 3]), problem, 50, torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    assert {tuple(o) for o in paths.order.tolist()} == set(itertools.permutations((1, 2, 3)))
    assert paths.log_prob.exp().sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize("method", ["prc", "samples"])
def test_labels_never_get_longer_and_stay_solutions(problem: str, method: str) -> None:
    torch.manual_seed(0)
    recipe = SelfRecipe(size=12, instances=8, method=method, iterations=4, samples=8, chunk=5)
    labels = PseudoLabels(problem, recipe, 1)
    policy = build_path_policy("sit", problem, **LIGHT)
    lengths = [labels.lengths()]
    for round_number in range(3):
        labels.improve(policy, round_number)
        lengths.append(labels.lengths())
    for before, after in itertools.pairwise(lengths):
        assert (after <= before + 1e-9).all()
    if (method, problem) == (
        "prc",
        "tsp",
    ):  # an untrained policy rarely beats insertion by samples, or with loads
        assert lengths[-1].sum() < lengths[0].sum()
    if problem == "tsp":
        assert torch.equal(labels.order.sort(1).values, torch.arange(12).expand(8, -1))
        return
    instances = labels.instances
    assert instances.demand is not None
    assert instances.capacity is not None
    assert labels.via is not None
    for row, solution in enumerate(route_arrays(labels.order, labels.via)):
        coords = instances.coords[row].double().numpy()
        demand, capacity = instances.demand[row, 1:].numpy(), float(instances.capacity[row])
        instance = cvrp.CVRPInstance("i", coords[0], coords[1:], demand, capacity)
        assert cvrp.violations(instance, solution) == ()
        assert cvrp.score(instance, solution) == pytest.approx(labels.lengths()[row].item(), rel=1e-6)


def test_a_self_improved_run_resumes_on_the_same_trajectory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nco_bench.training.self_improved_course as course

    def light(name: str, problem: str) -> torch.nn.Module:
        return build_path_policy(name, problem, **LIGHT)

    monkeypatch.setattr(course, "build_path_policy", light)
    config = {
        "learner": "self-improved", "size": "8", "instances": "6", "batch": "3", "rounds_updates": "2", "steps": "7",
        "iterations": "2", "longest": "9", "longest_start": "9", "validation_instances": "4", "log_every": "1",
        "checkpoint_every": "0",
    }  # fmt: skip
    whole = train("sit", (), config, out=tmp_path / "whole", progress="silent")
    train("sit", (), config, budget_s=0.02, out=tmp_path / "cut", progress="silent")
    cut = train("sit", (), config, resume=True, out=tmp_path / "cut", progress="silent")
    assert (whole.steps, cut.steps) == (7, 7)
    assert cut.validation_gap == pytest.approx(whole.validation_gap, rel=1e-6)
    assert np.isfinite(whole.validation_gap or np.nan)
