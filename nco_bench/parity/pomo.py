"""Parity of POMO (yd-kwon/POMO, NEW_py_ver): encoder, probabilities, multi-start, augmentation, training step."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients, lengths_of, replay, shared_demand
from nco_bench.solvers.decoding.instances import SYMMETRIES, symmetries
from nco_bench.solvers.stepwise.pomo import Pomo, PomoConfig, build, from_official
from nco_bench.solvers.stepwise.problem import RoutingProblem

OFFICIAL_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
"""POMO's eight transforms as numbers of ours."""


def check(fixture: Fixture) -> ParityResult:
    """Compare what a POMO fixture holds."""
    problem, checks = str(fixture.fact("problem")), Checks()
    config = PomoConfig(
        problem,
        fixture.size("embedding_dim"),
        fixture.size("head_num"),
        fixture.size("qkv_dim"),
        fixture.size("ff_hidden_dim"),
        fixture.size("encoder_layer_num"),
        fixture.size("logit_clipping"),
    )
    policy = build(config).eval()
    load_official(policy, "pomo", fixture.state_dict, str(fixture.path))
    with torch.inference_mode():
        _check_encoder(fixture, policy, checks)
        check_greedy(fixture, policy, checks, problem_of(fixture), _starts(fixture, "pomo_size"))
        if fixture.wants("b"):
            check_greedy(
                fixture, policy, checks, problem_of(fixture, "b."), _starts(fixture, "pomo_size_b"), "b."
            )
        check_augmentation(fixture, policy, checks, problem_of(fixture), _starts(fixture, "pomo_size"))
        check_forced(fixture, policy, checks, problem_of(fixture))
    if fixture.wants("train"):
        _check_training(fixture, policy, checks)
    return result(fixture, "pomo", problem, checks)


def problem_of(fixture: Fixture, group: str = "") -> RoutingProblem:
    """Return the instances of ``input.*`` or ``input.b.*``, with the official capacity arithmetic."""
    if not fixture.has(f"input.{group}node_xy"):
        return RoutingProblem(fixture.input(f"{group}problems"))
    coords = torch.cat([fixture.input(f"{group}depot_xy"), fixture.input(f"{group}node_xy")], dim=1)
    return RoutingProblem(coords, shared_demand(fixture.input(f"{group}node_demand")))


def _starts(fixture: Fixture, size: str) -> Tensor:
    """Start nodes: trajectory i starts at node i (TSP) or customer i + 1."""
    return torch.arange(fixture.size(size)) + int(fixture.fact("problem") == "cvrp")


def official_rows(problem: RoutingProblem, nodes: Tensor) -> Tensor:
    """Put the depot before the moves of the CVRP, as the official code does."""
    return nodes if problem.demands is None else F.pad(nodes, (1, 0))


def _check_encoder(fixture: Fixture, policy: Pomo, checks: Checks) -> None:
    x = policy.encoder.embed(problem_of(fixture).nodes())
    checks.close("init_embed", x, fixture.wanted("init_embed"))
    for i, layer in enumerate(policy.encoder.layers):
        x = layer(x, 1.0)
        checks.close(f"layer{i}_out", x, fixture.wanted(f"layer{i}_out"))
    checks.close("encoded_nodes", x, fixture.wanted("encoded_nodes"))


def check_greedy(
    fixture: Fixture,
    policy: nn.Module,
    checks: Checks,
    problem: RoutingProblem,
    starts: Tensor,
    group: str = "",
) -> None:
    """Compare greedy trajectories from all starts, with the probabilities of every step; of the second batch as ``b.``."""
    name = f"{group}greedy"
    if not fixture.wants(name):
        return
    done = replay(policy, problem, len(starts), starts=starts.expand(len(problem.coords), -1))
    checks.same(f"{name}.tours", official_rows(problem, done.nodes), fixture.wanted(f"{name}.tours"))
    checks.close(f"{name}.lengths", lengths_of(problem, done.nodes), fixture.wanted(f"{name}.lengths"))
    checks.close(f"{name}.probs", done.log_probs.exp(), fixture.wanted(f"{name}.probs"))


def transform_major(coords: Tensor) -> Tensor:
    """All instances under the first of POMO's transforms, then under the second, ..., ``(8 B, N, 2)``."""
    versions = symmetries(coords).unflatten(0, (len(coords), SYMMETRIES))
    return versions[:, list(OFFICIAL_ORDER)].transpose(0, 1).flatten(0, 1)


def check_augmentation(
    fixture: Fixture, policy: nn.Module, checks: Checks, problem: RoutingProblem, starts: Tensor
) -> None:
    """Compare the trajectories under the eight transforms, and the best of them."""
    if not fixture.wants("aug"):
        return
    coords = transform_major(problem.coords)
    checks.close("aug.xy", coords, fixture.wanted("aug.xy"))
    demands = problem.demands
    if demands is not None:
        demands = shared_demand(demands.amount[:, 1:].repeat(SYMMETRIES, 1))
    versions = RoutingProblem(coords, demands)
    done = replay(policy, versions, len(starts), starts=starts.expand(len(coords), -1))
    lengths = lengths_of(versions, done.nodes)
    checks.same("aug.tours", official_rows(versions, done.nodes), fixture.wanted("aug.tours"))
    checks.close("aug.lengths", lengths, fixture.wanted("aug.lengths"))
    best = lengths.amin(dim=1).view(SYMMETRIES, -1)
    checks.close("aug.no_aug_best", best[0], fixture.wanted("aug.no_aug_best"))
    checks.close("aug.best", best.amin(dim=0), fixture.wanted("aug.best"))


def forced_moves(fixture: Fixture, problem: RoutingProblem) -> Tensor:
    """Return the moves to be scored, ``(B, P, T)``, without the start at the depot."""
    tours = fixture.input("forced_tours")
    return tours if problem.demands is None else tours[:, :, 1:]


def check_forced(fixture: Fixture, policy: nn.Module, checks: Checks, problem: RoutingProblem) -> None:
    """Compare the log-probabilities of given trajectories; their first moves are given and count nothing."""
    if not fixture.wants("forced"):
        return
    moves = forced_moves(fixture, problem)
    done = replay(policy, problem, moves.shape[1], starts=moves[:, :, 0], moves=moves)
    checks.close("forced.log_prob", done.log_prob, fixture.wanted("forced.log_prob"))
    checks.close("forced.lengths", lengths_of(problem, done.nodes), fixture.wanted("forced.lengths"))


def _check_training(fixture: Fixture, policy: Pomo, checks: Checks) -> None:
    """Replay one step of REINFORCE with the mean over starts as the baseline."""
    policy.train()
    problem = problem_of(fixture)
    moves = forced_moves(fixture, problem)
    done = replay(policy, problem, moves.shape[1], starts=moves[:, :, 0], moves=moves)
    reward = -lengths_of(problem, done.nodes)
    advantage = reward - reward.mean(dim=1, keepdim=True)
    checks.close("train.advantage", advantage, fixture.wanted("train.advantage"))
    checks.close("train.log_prob", done.log_prob, fixture.wanted("train.log_prob"))
    loss = -(advantage * done.log_prob).mean()
    checks.close("train.loss", loss[None], fixture.wanted("train.loss"))
    loss.backward()
    compare_gradients(fixture, policy, from_official, checks)
