"""AM: official outputs, the published test set, and what the folded decoder must equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.errors import UnknownNameError
from nco_bench.nn.build import build_path_policy, count_parameters, load_official
from nco_bench.parity import check_fixture
from nco_bench.problems import cvrp, tsp
from nco_bench.solvers.decoding.search import sampling
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.am import AmConfig, build
from nco_bench.solvers.stepwise.decode import decode_encode_once
from nco_bench.solvers.stepwise.glimpse import factored
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands
from nco_bench.solvers.stepwise.steps import begin, move


@pytest.mark.parametrize("name", ["am-tsp", "am-cvrp", "am-tsp-pretrained", "am-cvrp-pretrained"])
def test_official_outputs_are_reproduced(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.ok, outcome.details["failed"]
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


def official(shared: Path, problem: str) -> torch.nn.Module:
    from safetensors.torch import load_file

    policy = build_path_policy("am", problem)
    load_official(policy, "am", load_file(shared / "checkpoints" / f"am-{problem}100-official.safetensors"))
    return policy


def test_mean_of_the_first_thousand_instances_is_that_of_the_official_code(shared: Path) -> None:
    instances = kool_tsp(100, count=1000).instances
    coords = torch.tensor(np.stack([i.arrays()["coords"] for i in instances]))
    tours = decode_encode_once(official(shared, "tsp"), coords, decoding=parse_decoding("greedy"))
    costs = [tsp.score(i, t) for i, t in zip(instances, tours, strict=True)]  # type: ignore[arg-type]
    # Measured with the official code and weights: 8.08576, and these first five.
    assert np.mean(costs) == pytest.approx(8.08576, abs=1e-4)
    assert costs[:5] == pytest.approx([7.612543, 8.537844, 8.047481, 8.469753, 8.495128], abs=1e-4)


def test_float32_loads_give_the_official_cvrp_costs_and_exact_ones_no_worse_mean(shared: Path) -> None:
    instances = kool_vrp(100).instances[:100]
    arrays = [i.arrays() for i in instances]
    coords = torch.tensor(np.stack([np.concatenate([a["depot"][None], a["customers"]]) for a in arrays]))
    demand = torch.tensor(np.stack([np.concatenate([[0], a["demand"]]) for a in arrays]))
    capacity = torch.tensor([float(a["capacity"]) for a in arrays])
    policy, means = official(shared, "cvrp"), {}
    for float32_loads in (True, False):
        routes = decode_encode_once(
            policy, coords, demand, capacity, decoding=parse_decoding("greedy"), float32_loads=float32_loads
        )
        for instance, route in zip(instances, routes, strict=True):
            assert cvrp.violations(instance, route) == ()  # type: ignore[arg-type]
        costs = [cvrp.score(i, r) for i, r in zip(instances, routes, strict=True)]  # type: ignore[arg-type]
        means[float32_loads] = np.mean(costs)
        if float32_loads:
            # Measured with the official code and weights.
            expected = [15.395426, 15.641644, 15.333864, 15.849562, 20.265753]
            assert costs[:5] == pytest.approx(expected, abs=1e-4)
    assert means[False] <= means[True]


@pytest.mark.parametrize(("problem", "count"), [("tsp", 708_608), ("cvrp", 692_608)])
def test_parameters_are_those_of_the_official_model(problem: str, count: int) -> None:
    # 710,144 and 694,144 values in the released files, less 6 layers of 2 x 128 running statistics.
    assert count_parameters(build(AmConfig(problem))) == count


@pytest.mark.parametrize("trajectories", [1, 40])  # both attention kernels
@pytest.mark.parametrize("scale", [None, "ssmax"])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_the_fast_path_equals_the_step_of_the_paper(
    problem: str, scale: str | None, trajectories: int
) -> None:
    """All steps of random trajectories; the attention of the TSP's 40 is also taken by factors."""
    torch.manual_seed(3)
    sizes = {"width": 32, "heads": 4, "ffn": 64, "layers": 2}
    policy: Any = build_path_policy("am", problem, logit_scale=scale, **sizes)
    coords, demand = torch.rand(2, 9, 2), torch.tensor([[0, 3, 1, 4, 1, 5, 2, 6, 5]]).expand(2, -1)
    demands = cvrp_demands(demand, torch.tensor([10, 12])) if problem == "cvrp" else None
    instances = RoutingProblem(coords, demands)
    choose, compared = sampling(torch.tensor([5, 6]), 0, trajectories), 0
    with torch.inference_mode():
        x, factor = policy.encoded(instances.nodes())
        fast, ready, progress = policy.encode(instances.nodes()), None, begin(instances, trajectories)
        for step in range(9):
            expected = policy.step(x, progress.state, factor)
            if step == 1:
                ready = factored(fast, progress.state)
                assert (ready.factors is not None) is (problem == "tsp" and trajectories == 40)
            for encoded in (fast, ready) if ready else (fast,):
                found = policy.logits(encoded, progress.state)
                torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
                compared += 1
            progress = move(instances, progress, choose(expected, step))
    assert compared == 17


def test_log_ratio_changes_nothing_at_the_training_size_and_much_beyond() -> None:
    torch.manual_seed(0)
    plain = build_path_policy("am", width=32, heads=4, layers=1)
    scaled = build_path_policy("am", width=32, heads=4, layers=1, logit_scale="log-ratio")
    scaled.load_state_dict(plain.state_dict())
    for size, same in ((100, True), (200, False)):
        problem = RoutingProblem(torch.rand(1, size, 2))
        with torch.inference_mode():
            state = begin(problem, 1).state
            logits = [p.logits(p.encode(problem.nodes()), state) for p in (plain, scaled)]
        assert torch.equal(*logits) is same


def test_unknown_normalization_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"normalization of am 'bach'.*'batch'"):
        build(AmConfig(normalization="bach"))
