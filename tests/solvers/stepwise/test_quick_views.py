"""INViT's and DGL's quick steps, against the networks as they are written down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nco_bench.solvers.stepwise.dgl import DglConfig
from nco_bench.solvers.stepwise.dgl import build as build_dgl
from nco_bench.solvers.stepwise.dgl_features import distances_to
from nco_bench.solvers.stepwise.dgl_kernels import attend, squares
from nco_bench.solvers.stepwise.invit import build as build_invit
from nco_bench.solvers.stepwise.invit_views import InvitConfig
from nco_bench.solvers.stepwise.local_steps import LocalViews, quick
from nco_bench.solvers.stepwise.precision import at_precision
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands


def network(name: str, problem: str, layers: int = 2) -> Any:
    """Build a small network whose biases and norms matter."""
    torch.manual_seed(5)
    if name == "dgl":
        policy: Any = build_dgl(DglConfig(problem, 32, 4, 8, 64, neighbours=6, depot_neighbours=4))
    else:
        middle = 8 if name == "invit-3v" else 0
        policy = build_invit(
            InvitConfig(problem, 32, 4, 64, layers, layers, candidates=4, middle=middle, widest=12)
        )
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return policy.eval()


def task(problem: str, nodes: int = 20) -> RoutingProblem:
    """Three instances."""
    generator = torch.Generator().manual_seed(9)
    coords = torch.rand(3, nodes, 2, generator=generator)
    if problem == "tsp":
        return RoutingProblem(coords)
    demand = torch.randint(1, 10, (3, nodes), generator=generator)
    demand[:, 0] = 0
    return RoutingProblem(coords, cvrp_demands(demand, torch.tensor([20, 25, 30])))


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize(
    ("name", "layers"), [("invit-3v", 2), ("invit-2v", 2), ("invit-2v", 1), ("invit-2v", 3), ("dgl", 2)]
)
@pytest.mark.parametrize("nodes", [20, 40])
@torch.inference_mode()
def test_quick_steps_choose_what_the_network_chooses(
    name: str, layers: int, problem: str, nodes: int
) -> None:
    policy, instances = network(name, problem, layers), task(problem, nodes)
    faster = quick(policy)
    assert faster is not policy
    starts = torch.tensor([[1, 2], [3, 4], [5, 19]])
    plain, other = (LocalViews(one, instances, instances.nodes()) for one in (policy, faster))
    (walks, _), (others, _) = plain.begin(2, starts), other.begin(2, starts)
    steps = 0
    while not plain.finished(walks, steps):
        (expected, seen), (found, also) = plain.scores(walks), other.scores(others)
        assert torch.equal(seen.nodes, also.nodes)
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
        action = expected.argmax(dim=2)
        assert torch.equal(action, found.argmax(dim=2))
        (walks, _), (others, _) = plain.follow(walks, seen, action), other.follow(others, also, action)
        steps += 1
    assert steps > 10
    assert other.finished(others, steps)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize(("name", "layers"), [("invit-3v", 2), ("invit-2v", 1), ("invit-2v", 3)])
def test_invit_learns_the_same_by_its_quick_steps(name: str, layers: int, problem: str) -> None:
    policy, instances = network(name, problem, layers), task(problem, 30)
    slopes = []
    for one in (policy, quick(policy)):
        steps = LocalViews(one, instances, instances.nodes())
        walks, _ = steps.begin(2, torch.tensor([[1, 2], [3, 4], [5, 19]]))
        total, count = torch.zeros(()), 0
        while not steps.finished(walks, count):
            scores, seen = steps.scores(walks)
            action = scores.argmax(dim=2)
            total = total + scores.log_softmax(dim=2).gather(2, action[..., None]).sum()
            walks, _ = steps.follow(walks, seen, action)
            count += 1
        policy.zero_grad(set_to_none=False)
        total.backward()
        slopes.append({key: one.grad.clone() for key, one in policy.named_parameters()})
    assert quick(policy) is not policy
    keys = slopes[0].pop("keys.bias"), slopes[1].pop("keys.bias")
    width = (
        policy.config.width
    )  # of all options alike but for the pointer's, so that a softmax does not see it
    torch.testing.assert_close(keys[1][2 * width :], keys[0][2 * width :], atol=1e-4, rtol=1e-4)
    assert keys[1][: 2 * width].eq(0).all()
    for key, expected in slopes[0].items():
        assert key.startswith("values") or expected.any(), key
        torch.testing.assert_close(slopes[1][key], expected, atol=1e-4, rtol=1e-3, msg=key)


@pytest.mark.parametrize("name", ["invit-3v", "dgl"])
def test_in_another_precision_or_wrapped_the_network_itself_is_at_work(name: str) -> None:
    policy = network(name, "tsp")
    assert (quick(policy) is policy) == (name == "dgl")  # which has none with gradients
    with torch.autocast("cpu", torch.bfloat16):
        assert quick(policy) is policy
    wrapped = at_precision(policy, "bf16")
    with torch.no_grad():
        assert quick(wrapped) is wrapped
        assert quick(policy) is not policy
        double = policy.double()
        assert quick(double) is double


@pytest.mark.parametrize("name", ["invit-3v", "dgl"])
@torch.no_grad()
def test_quick_steps_leave_the_network_as_it_was(name: str) -> None:
    policy, instances = network(name, "tsp"), task("tsp")
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    steps = LocalViews(quick(policy), instances, instances.nodes())
    steps.scores(steps.begin(1, torch.zeros(3, 1, dtype=torch.int64))[0])
    after = policy.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[key]) for key, value in before.items())


@pytest.mark.parametrize("nodes", [20, 60])
@pytest.mark.parametrize("axes", [2, 3])
def test_dgl_s_compiled_distances_round_as_those_that_its_weights_learned_with(nodes: int, axes: int) -> None:
    generator = torch.Generator().manual_seed(2)
    coords, current = torch.rand(3, nodes, axes, generator=generator), torch.tensor([1, 7, 0, 2, 5, 5])
    found = torch.empty(6, nodes)
    squares(coords.numpy(), current.numpy(), found.numpy())
    assert torch.equal(found.sqrt_(), distances_to(coords, current))


@pytest.mark.parametrize("width", [8, 16, 20])
@pytest.mark.parametrize("tokens", [1, 31, 32, 33, 70])
def test_dgl_s_compiled_attention_is_that_of_torch(tokens: int, width: int) -> None:
    qkv = torch.randn(2, tokens, 3, 4, width, generator=torch.Generator().manual_seed(tokens))
    found = torch.empty(2, tokens, 4, width)
    attend(*(one.numpy() for one in qkv.unbind(2)), np.float32(1.5), found.numpy())
    query, key, value = (one.transpose(1, 2).double() for one in qkv.unbind(2))
    expected = F.scaled_dot_product_attention(query, key, value, scale=1.5).transpose(1, 2)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
