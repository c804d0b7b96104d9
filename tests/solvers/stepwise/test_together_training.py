"""Many states at once in training: log-probabilities and derivatives are those of torch's own operations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.stepwise import glimpse
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands
from nco_bench.solvers.stepwise.rollout import completed
from nco_bench.solvers.stepwise.steps import EncodeOnce, log_probabilities

pytest.importorskip("numba")
from nco_bench.solvers.stepwise import together_training  # numba is there

INSTANCES, CUSTOMERS = 3, 13


def network(model: str, problem: str, steep: float) -> nn.Module:
    torch.manual_seed(4)
    sizes = {"width": 32, "heads": 4, "ffn": 64, "layers": 2} | ({} if model == "am" else {"head_dim": 8})
    policy = build_path_policy(model, problem, **sizes)  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "key" in name:
                parameter.mul_(steep)
    return policy


def instances(problem: str) -> RoutingProblem:
    generator = torch.Generator().manual_seed(1)
    coords = torch.rand(INSTANCES, CUSTOMERS + (problem == "cvrp"), 2, generator=generator)
    if problem == "tsp":
        return RoutingProblem(coords)
    demand = torch.randint(1, 10, coords.shape[:2], generator=generator)
    demand[:, 0] = 0
    return RoutingProblem(coords, cvrp_demands(demand, torch.full((INSTANCES,), 30)))


def outcome(
    policy: nn.Module, routing: RoutingProblem, nodes: Tensor, given: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return log-probabilities, and the derivatives of a sum of them with weights of both signs."""
    policy.zero_grad()
    encoded = policy.encode(routing.nodes())  # type: ignore[operator]
    total = log_probabilities(policy, routing, encoded, nodes, given=given)  # type: ignore[arg-type]
    (total * torch.linspace(-1, 1, total.numel()).view_as(total)).sum().backward()
    slopes = {name: p.grad.clone() for name, p in policy.named_parameters() if p.grad is not None}
    return total.detach(), slopes


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
@pytest.mark.parametrize(
    ("model", "steep"),
    [("am", 1.0), ("pomo", 1.0), ("pomo", 60.0), ("elg", 1.0)],
    ids=["am", "pomo", "pomo-steep", "elg"],
)
def test_states_side_by_side_are_those_of_plain_operations(
    model: str, problem: str, steep: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, routing = network(model, problem, steep), instances(problem)
    starts = (torch.arange(CUSTOMERS) + int(problem == "cvrp")).expand(INSTANCES, -1)
    given = 0 if model == "am" else 1
    with torch.no_grad():
        steps = EncodeOnce(policy, routing, policy.encode(routing.nodes()))  # type: ignore[arg-type,operator]
        nodes = completed(steps, CUSTOMERS, starts if given else None, torch.arange(INSTANCES)).nodes
    monkeypatch.setattr(glimpse, "KERNELS", False)
    expected, slopes = outcome(policy, routing, nodes, given)
    monkeypatch.setattr(glimpse, "KERNELS", True)
    monkeypatch.setattr(together_training, "STATES", 50)  # parts, the last one shorter
    calls: list[int] = []
    attended = together_training.attended
    monkeypatch.setattr(together_training, "attended", lambda *given: calls.append(1) or attended(*given))
    found, ours = outcome(policy, routing, nodes, given)
    assert calls
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-4)
    largest = max(float(slope.norm()) for slope in slopes.values())
    assert ours.keys() == slopes.keys()
    for name, slope in slopes.items():
        assert float((ours[name] - slope).norm()) < 2e-5 * largest, name


def test_any_number_of_threads_makes_the_same_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together_training, "STATES", 8)
    generator = torch.Generator().manual_seed(2)
    shapes = ((5, 16, 2, 16), (5, 16, 2, 16), (5, 2, 16, 8))
    tables = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    here, row, node = (torch.randint(16, (5, 30), generator=generator) for _ in range(3))
    blocked = torch.zeros(5, 30, 16).masked_fill(torch.rand(5, 30, 16, generator=generator) < 0.3, -torch.inf)
    blocked.scatter_(2, node[..., None], 0.0)
    found: list[tuple[Tensor, ...]] = []
    before = torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            mixed = together_training.attended(*tables, here, row, torch.ones(5, 30), blocked)
            made = together_training.log_probs(mixed, blocked, node, 10.0)
            found.append((made, *torch.autograd.grad(made.square().sum(), tables)))
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
