"""What the parity checks of AM, POMO and ELG share: replayed trajectories and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.parity.fixture import Checks, Fixture
from nco_bench.solvers.decoding.search import Choose, construct, forced, greedy_choice
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy
from nco_bench.solvers.stepwise.problem import Demands, RoutingProblem, float32_demands, trajectory_lengths
from nco_bench.solvers.stepwise.steps import EncodeOnce

GRADIENT_TOLERANCE = 1e-3
Importer = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class Replay:
    """A batch of trajectories with the network's answers.

    Attributes
    ----------
    nodes
        ``(B, P, T)`` moves.
    log_probs
        ``(S, B, P, N)`` one log-softmax per call of the network.
    log_prob
        ``(B, P)`` sum over the chosen moves.
    """

    nodes: Tensor
    log_probs: Tensor
    log_prob: Tensor


def replay(
    policy: nn.Module,
    problem: RoutingProblem,
    trajectories: int,
    *,
    starts: Tensor | None = None,
    moves: Tensor | None = None,
) -> Replay:
    """Decode greedily, or follow given moves ``(B, P, T)``, and note all probabilities."""
    answers: list[Tensor] = []
    rule: Choose = greedy_choice if moves is None else forced(moves)

    def choose(logits: Tensor, step: int) -> Tensor:
        answers.append(logits.log_softmax(dim=2))
        return rule(logits, step)

    network = cast("EncodeOncePolicy", policy)
    steps = EncodeOnce(network, problem, network.encode(problem.nodes()))
    done = construct(steps, steps.begin(trajectories, starts), choose, log_prob=True)
    assert done.log_prob is not None
    return Replay(done.nodes, torch.stack(answers), done.log_prob)


def lengths_of(problem: RoutingProblem, nodes: Tensor) -> Tensor:
    """Lengths of all trajectories, ``(B, P)`` float64."""
    return trajectory_lengths(problem.coords.double(), nodes, cvrp=problem.demands is not None)


def shared_demand(demand: Tensor) -> Demands:
    """Make the official bookkeeping of customers' demands given as shares of the capacity, ``(B, n)``."""
    with_depot = torch.cat([torch.zeros_like(demand[:, :1]), demand], dim=1)
    return float32_demands(with_depot, torch.ones_like(with_depot[:, 0]))


def compare_gradients(
    fixture: Fixture, policy: nn.Module, importer: Importer, checks: Checks, prefix: str = "train"
) -> None:
    """Compare the norm of the gradient of every official parameter, wherever the importer puts its entries."""
    if not fixture.wants(prefix):
        return
    gradients = {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in policy.named_parameters()
    }
    expected = fixture.wanted(f"{prefix}.grad_norms")
    norms = []
    for key in () if expected is None else fixture.fact("grad_norm_order"):
        marked = fixture.state_dict
        marked[key] = torch.full_like(marked[key], torch.nan)
        places = {
            k: v.isnan() for k, v in importer(marked).items() if v.is_floating_point() and v.isnan().any()
        }
        norms.append(torch.cat([gradients[k][at] for k, at in places.items()]).norm())
    if norms:
        checks.close(f"{prefix}.grad_norms", torch.stack(norms), expected, GRADIENT_TOLERANCE)
    for name in (key for key in fixture.tensors if key.startswith(f"expected.{prefix}.grad.")):
        key = name.removeprefix(f"expected.{prefix}.grad.")
        key = {"local_init_emb.weight": "decoder.local_policies.0.init_emb.weight"}.get(key, key)
        _compare_gradient(fixture, gradients, importer, checks, name, key)


def _compare_gradient(
    fixture: Fixture, gradients: dict[str, Tensor], importer: Importer, checks: Checks, name: str, key: str
) -> None:
    """Compare one whole gradient: the importer only moves entries, so it moves those of a gradient alike."""
    blank = {k: torch.zeros_like(v) for k, v in fixture.state_dict.items()}
    expected = importer(blank | {key: fixture.expected(name.removeprefix("expected."))})
    places = importer(blank | {key: torch.ones_like(fixture.tensors[name])})
    for k, at in places.items():
        if at.any():
            short = name.removeprefix("expected.")
            checks.close(short, gradients[k][at != 0], expected[k][at != 0], GRADIENT_TOLERANCE)
