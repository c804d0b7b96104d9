"""POMO: official outputs and sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nco_bench.nn.build import count_parameters
from nco_bench.parity import check_fixture
from nco_bench.solvers.stepwise.policy import RoutingNodes
from nco_bench.solvers.stepwise.pomo import InstanceNorm, PomoConfig, build


@pytest.mark.parametrize("name", ["pomo-tsp", "pomo-cvrp"])
def test_official_outputs_are_reproduced(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.ok, outcome.details["failed"]
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


@pytest.mark.parametrize(("problem", "count"), [("tsp", 1_269_760), ("cvrp", 1_254_016)])
def test_parameters_are_those_of_the_official_model(problem: str, count: int) -> None:
    assert count_parameters(build(PomoConfig(problem))) == count


def test_instance_norm_is_that_of_torch() -> None:
    torch.manual_seed(0)
    ours, theirs = InstanceNorm(8), torch.nn.InstanceNorm1d(8, affine=True)
    for layer in (ours, theirs):
        torch.manual_seed(1)
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    x = torch.randn(3, 11, 8) * 4 + 2
    torch.testing.assert_close(ours(x), theirs(x.transpose(1, 2)).transpose(1, 2), rtol=1e-5, atol=1e-5)


def test_order_of_the_nodes_does_not_matter_to_the_encoder() -> None:
    torch.manual_seed(0)
    policy = build(PomoConfig("tsp", width=32, heads=4, head_dim=8, ffn=64, layers=2)).eval()
    coords, order = torch.rand(1, 12, 2), torch.randperm(12)
    with torch.inference_mode():
        x, permuted = (policy.encoder(RoutingNodes(c), 1.0) for c in (coords, coords[:, order]))
    torch.testing.assert_close(permuted, x[:, order], rtol=1e-4, atol=1e-5)
