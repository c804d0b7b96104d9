"""Parity of LEHD (CIAM-Group/NCO_code): encoder, steps, greedy, RRC, training, for TSP and CVRP."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.decoding.construct import greedy
from nco_bench.decoding.problem import cvrp_problem, route_lengths, shares, tour_lengths, tsp_problem
from nco_bench.models.lehd import Lehd, LehdConfig, build
from nco_bench.models.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.models.path import PathNodes, PathState, path_state
from nco_bench.models.registry import load_official


def policy_of(fixture: Fixture, problem: str) -> Lehd:
    """Build the policy of the fixture's configuration and load its weights through the official importer."""
    config = LehdConfig(
        problem=problem,
        width=fixture.size("embedding_dim"),
        heads=fixture.size("head_num"),
        head_dim=fixture.size("qkv_dim"),
        ffn=fixture.size("ff_hidden_dim"),
        decoder_layers=fixture.size("decoder_layer_num"),
    )
    policy = build(config).eval()
    load_official(policy, "lehd", fixture.state_dict, str(fixture.path))
    return policy


def check(fixture: Fixture) -> ParityResult:
    """Compare everything that a LEHD fixture holds."""
    problem = fixture.meta["problem"].lower()
    policy, checks = policy_of(fixture, problem), Checks()
    (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
    return result(fixture, "lehd", problem, checks)


def unvisited(count: int, selected: Tensor, first: int) -> Tensor:
    """Nodes ``first .. count - 1`` that are not selected, ascending: ``(B, t)`` to ``(B, count - first - t)``."""
    batch = selected.shape[0]
    left = torch.ones(batch, count, dtype=torch.bool)
    left[:, :first] = False
    left.scatter_(1, selected, False)
    return left.nonzero()[:, 1].view(batch, -1)


def floored(probabilities: Tensor) -> Tensor:
    """The official post-processing: 1e-7 is added to probabilities of at most 1e-5, without renormalisation."""
    return torch.where(probabilities <= 1e-5, probabilities + 1e-7, probabilities)


def tsp_step(nodes: PathNodes, features: Tensor, selected: Tensor) -> tuple[PathState, Tensor]:
    """Return the state after a partial tour ``(B, t)``, and its unvisited nodes."""
    left = unvisited(nodes.coords.shape[1], selected, 0)
    rows = torch.cat([selected[:, -1:], left, selected[:, :1]], dim=1)
    return path_state(nodes, features, rows, closed=selected.shape[1] == 1), left


def cvrp_step(
    nodes: PathNodes, features: Tensor, selected: Tensor, remaining: Tensor
) -> tuple[PathState, Tensor]:
    """Return the state after visited customers ``(B, t)`` with a share of the capacity left, and the unvisited ones."""
    left = unvisited(nodes.coords.shape[1], selected, 1)
    depot = torch.zeros_like(left[:, :1])
    origin = selected[:, -1:] if selected.shape[1] else depot
    rows = torch.cat([origin, left, depot], dim=1)
    return path_state(nodes, features, rows, closed=not selected.shape[1], remaining=remaining), left


@torch.inference_mode()
def _check_tsp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    coords = fixture.input("problems")
    problem = tsp_problem(coords)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.expected("encoded_nodes"))
    for step in ("step_a", "step_b"):
        state, left = tsp_step(problem.nodes, features, fixture.input(f"{step}.selected"))
        scores = policy.scores(state)
        checks.close(f"{step}.raw_logits", scores, fixture.expected(f"{step}.raw_logits")[:, 1:-1])
        probs = torch.full(coords.shape[:2], -2.0).scatter(1, left, floored(scores.softmax(1)))
        checks.close(f"{step}.probs", probs, fixture.expected(f"{step}.probs"))
    tours = torch.cat([problem.rows[:, :1], greedy(policy, problem).order], dim=1)
    checks.same("greedy.tours", tours, fixture.expected("greedy.tours"))
    checks.close("greedy.lengths", tour_lengths(coords, tours), fixture.expected("greedy.lengths"))


@torch.inference_mode()
def _check_cvrp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    problem = cvrp_problem(coords, demand, capacity)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.expected("encoded_nodes"))
    customers = coords.shape[1] - 1
    for step in ("step_a", "step_b"):
        remaining = shares(fixture.input(f"{step}.remaining"), capacity, coords.dtype)
        state, left = cvrp_step(problem.nodes, features, fixture.input(f"{step}.selected"), remaining)
        scores = policy.scores(state)
        checks.close(f"{step}.raw_logits", scores, fixture.expected(f"{step}.raw_logits")[:, 1:-1])
        probs = floored(scores.transpose(1, 2).flatten(1).softmax(1)).view(len(coords), 2, -1)
        full = torch.full((len(coords), 2, customers), -2.0)
        full.scatter_(2, (left - 1)[:, None].expand(-1, 2, -1), probs)
        checks.close(f"{step}.probs", full.flatten(1), fixture.expected(f"{step}.probs"))
    path = greedy(policy, problem)
    flags = node_flags(path.order, path.via)
    checks.same("greedy.node_flag", flags, fixture.expected("greedy.node_flag"))
    lengths = route_lengths(coords, path.order, flags[..., 1] == 1)
    checks.close("greedy.lengths", lengths, fixture.expected("greedy.lengths"))


def node_flags(order: Tensor, via: Tensor | None) -> Tensor:
    """Join customers and flags as LEHD stores solutions, ``(B, V, 2)``; the first flag is always 1."""
    flags = torch.zeros_like(order) if via is None else via.long()
    flags[:, 0] = 1
    return torch.stack([order, flags], dim=2)
