"""Parity of SIGD (grimmlab/gumbeldore), BQ and LEHD style: logits, greedy, beam, kNN, augmentation, training."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.decoding.beam import beam
from nco_bench.decoding.problem import cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.models.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.models.path import PathNodes, PathState, path_state
from nco_bench.models.registry import load_official
from nco_bench.models.sigd import Sigd, SigdConfig, SigdLehd, build


def policy_of(fixture: Fixture, problem: str) -> Sigd | SigdLehd:
    """Build the policy of the fixture's configuration and load its weights through the official importer."""
    style = str(fixture.option("architecture")).lower()
    config = SigdConfig(
        problem,
        style,
        fixture.size("latent_dimension"),
        fixture.size("num_attention_heads"),
        fixture.size("feedforward_dimension"),
        fixture.size("num_transformer_blocks"),
    )
    policy = build(config).eval()
    load_official(policy, "sigd-lehd" if style == "lehd" else "sigd", fixture.state_dict, str(fixture.path))
    return policy


def check(fixture: Fixture) -> ParityResult:
    """Compare what a SIGD fixture holds, but for its stochastic beam search and its training."""
    problem = fixture.meta["problem"].lower()
    policy, checks = policy_of(fixture, problem), Checks()
    with torch.inference_mode():
        (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
    return result(fixture, "sigd-lehd" if policy.config.style == "lehd" else "sigd", problem, checks)


def tsp_prefix_scores(policy: Sigd | SigdLehd, coords: Tensor, length: int) -> Tensor:
    """
    Score the path through the first `length` nodes of tours, ``(B, length - 2)``.

    The BQ style sees these nodes only; the LEHD style encodes all of them. Length N + 1 is the closed tour.
    """
    count = coords.shape[1]
    rows = torch.arange(length).remainder(count).expand(len(coords), -1)
    nodes = PathNodes(coords, None, count)
    return policy.scores(path_state(nodes, policy.embed(nodes), rows, closed=length == count + 1))


def _check_tsp(fixture: Fixture, policy: Sigd | SigdLehd, checks: Checks) -> None:
    coords = fixture.input("coords")
    if policy.config.style == "lehd":
        encoded = policy.embed(PathNodes(coords, None, coords.shape[1]))
        checks.close("encoded_nodes", encoded, fixture.expected("encoded_nodes"))
        sub = tsp_prefix_scores(policy, coords, int(fixture.input("sub_length")))
        full = tsp_prefix_scores(policy, coords, coords.shape[1] + 1)
        checks.close("logits_full", full, fixture.expected("logits_full"))
    else:
        points = fixture.input("sub_coords")
        sub = tsp_prefix_scores(policy, points, points.shape[1])
    checks.close("logits_sub", sub, fixture.expected("logits_sub"))
    problem = tsp_problem(coords)
    for name, width in (("greedy", 1), ("beam", fixture.option("beam"))):
        path = beam(policy, problem, width)
        tours = torch.cat([problem.rows[:, :1], path.order], dim=1)
        checks.same(f"{name}.tours", tours, fixture.expected(f"{name}.tours"))
        checks.close(f"{name}.lengths", tour_lengths(coords, tours), fixture.expected(f"{name}.lengths"))
        checks.close(f"{name}.log_prob", path.log_prob, fixture.expected(f"{name}.log_prob"))


def cvrp_state(fixture: Fixture, group: str, policy: Sigd | SigdLehd) -> tuple[PathState, bool]:
    """
    Make the state of rows ``depot, [start customer], remaining customers`` as the official batches hold them.

    Returns the state and whether it is at the depot start, where row 0 itself is the start.
    """
    coords, demand = fixture.input(f"{group}.nodes"), fixture.input(f"{group}.demands")
    at_depot = bool(fixture.input(f"{group}.start_node_mask")[0, 0] > 0.5)
    nodes = PathNodes(coords, demand, coords.shape[1] - 1)
    rows = torch.arange(coords.shape[1])
    depot = torch.zeros(1, dtype=torch.int64)
    rows = torch.cat([rows, depot]) if at_depot else torch.cat([rows[1:], depot])
    remaining = fixture.input(f"{group}.current_capacity").squeeze(1)
    batch = rows.expand(len(coords), -1)
    return path_state(nodes, policy.embed(nodes), batch, closed=at_depot, remaining=remaining), at_depot


def cvrp_logits(fixture: Fixture, group: str, policy: Sigd | SigdLehd) -> Tensor:
    """Masked logits ``(S, 2 (M - 1))`` of an official batch; the start customer's own actions are at -inf."""
    state, at_depot = cvrp_state(fixture, group, policy)
    scores = policy.scores(state).flatten(1)
    if at_depot:
        return scores
    return torch.cat([torch.full_like(scores[:, :2], -torch.inf), scores], dim=1)


def _check_cvrp(fixture: Fixture, policy: Sigd | SigdLehd, checks: Checks) -> None:
    checks.close("step.logits", cvrp_logits(fixture, "step", policy), fixture.expected("step.logits"))
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demands", "capacities"))
    problem = cvrp_problem(coords, demand.long(), capacity.long())
    nearest, width = fixture.option("nearest_k"), fixture.option("beam")
    for name, beams, knn in (
        ("greedy", 1, None), ("beam", width, None), ("greedy_knn", 1, nearest), ("beam_knn", width, nearest)
    ):  # fmt: skip
        path = beam(policy, problem, beams, knn=knn)
        checks.same(f"{name}.customers", path.order, fixture.expected(f"{name}.customers"))
        checks.same(f"{name}.flags", path.via, fixture.expected(f"{name}.flags"))
        lengths = route_lengths(coords, path.order, path.via)
        checks.close(f"{name}.lengths", lengths, fixture.expected(f"{name}.lengths"))
        checks.close(f"{name}.log_prob", path.log_prob, fixture.expected(f"{name}.log_prob"))
