"""Parity of SIT (CIAM-Group/SIL): steps, greedy, kNN, insertion, PRC, training, for TSP and CVRP."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.decoding.construct import greedy
from nco_bench.decoding.problem import cvrp_problem, route_lengths, shares, tour_lengths, tsp_problem
from nco_bench.models.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.models.parity.lehd import cvrp_step, floored, node_flags, tsp_step
from nco_bench.models.path import PathNodes, PathState, path_state
from nco_bench.models.registry import load_official
from nco_bench.models.sit import Sit, SitConfig, build


def policy_of(fixture: Fixture, problem: str) -> Sit:
    """Build the policy of the fixture's configuration and load its weights through the official importer."""
    config = SitConfig(
        problem,
        width=fixture.size("embedding_dim"),
        heads=fixture.size("head_num"),
        head_dim=fixture.size("qkv_dim"),
        ffn=fixture.size("ff_hidden_dim"),
        # The official constructor calls the decoder's layers so for the TSP.
        layers=fixture.size("encoder_layer_num" if problem == "tsp" else "decoder_layer_num"),
    )
    policy = build(config).eval()
    load_official(policy, "sit", fixture.state_dict, str(fixture.path))
    return policy


def check(fixture: Fixture) -> ParityResult:
    """Compare everything that a SIL fixture holds."""
    problem = fixture.meta["problem"].lower()
    policy, checks = policy_of(fixture, problem), Checks()
    with torch.inference_mode():
        (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
    return result(fixture, "sit", problem, checks)


def nearest_only(
    nodes: PathNodes, features: Tensor, state: PathState, left: Tensor, count: int
) -> tuple[PathState, Tensor]:
    """Keep the `count` unvisited nodes nearest to the origin, nearest first."""
    distance = (state.coords[:, 1:-1] - state.coords[:, :1]).norm(dim=2)
    kept = distance.topk(count, dim=1, largest=False).indices
    nodes_kept = left.gather(1, kept)
    # Origin and destination rows are found again by their coordinates' rows of the state.
    kept_state = PathState(
        features=torch.cat(
            [state.features[:, :1], _rows(features, nodes_kept), state.features[:, -1:]], dim=1
        ),
        coords=torch.cat([state.coords[:, :1], _rows(nodes.coords, nodes_kept), state.coords[:, -1:]], dim=1),
        demand=state.demand,
        remaining=state.remaining,
        closed=state.closed,
        instance_size=state.instance_size,
    )
    return kept_state, nodes_kept


def _rows(table: Tensor, rows: Tensor) -> Tensor:
    return table.gather(1, rows[..., None].expand(-1, -1, table.shape[2]))


def _check_tsp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    coords = fixture.input("problems")
    problem = tsp_problem(coords)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.expected("encoded_nodes"))
    for step in ("step_a", "step_b", "step_c"):
        state, left = tsp_step(problem.nodes, features, fixture.input(f"{step}.selected"))
        probs = torch.zeros(coords.shape[:2])
        if step == "step_c":
            probs.scatter_(1, left, 1e-7)
            state, left = nearest_only(problem.nodes, features, state, left, fixture.option("step_c_k"))
        scores = policy.scores(state)
        expected = fixture.expected(f"{step}.raw_logits")
        checks.close(f"{step}.raw_logits", scores, expected[:, -scores.shape[1] :])
        if step == "step_c":  # nodes outside are put back before the floor, which then adds 1e-7 to them too
            probs.scatter_(1, left, scores.softmax(1))
            expected_probs = fixture.expected(f"{step}.probs")
            small = (probs > 0) & (probs <= 1e-5)
            probs = torch.where(small & (probs != 1e-7), probs + 1e-7, probs)
        else:
            probs.scatter_(1, left, floored(scores.softmax(1)))
            expected_probs = fixture.expected(f"{step}.probs")
        checks.close(f"{step}.probs", probs, expected_probs)
    for name, knn in (("greedy", None), ("greedy_knn", fixture.option("step_c_k"))):
        tours = torch.cat([problem.rows[:, :1], greedy(policy, problem, knn=knn).order], dim=1)
        checks.same(f"{name}.tours", tours, fixture.expected(f"{name}.tours"))
        checks.close(f"{name}.lengths", tour_lengths(coords, tours), fixture.expected(f"{name}.lengths"))


def _check_cvrp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    problem = cvrp_problem(coords, demand, capacity)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.expected("encoded_nodes"))
    batch, customers = len(coords), coords.shape[1] - 1
    for step in ("step_a", "step_b", "step_c"):
        remaining = shares(fixture.input(f"{step}.remaining"), capacity, coords.dtype)
        state, left = cvrp_step(problem.nodes, features, fixture.input(f"{step}.selected"), remaining)
        full = torch.full((batch, 2, customers), -2.0)
        if step == "step_c":
            full.scatter_(2, (left - 1)[:, None].expand(-1, 2, -1), 0.0)
            state, left = nearest_only(problem.nodes, features, state, left, fixture.option("step_c_k"))
        scores = policy.scores(state)
        expected = fixture.expected(f"{step}.raw_logits")
        checks.close(f"{step}.raw_logits", scores, expected[:, -scores.shape[1] :])
        probs = floored(scores.transpose(1, 2).flatten(1).softmax(1)).view(batch, 2, -1)
        full.scatter_(2, (left - 1)[:, None].expand(-1, 2, -1), probs)
        checks.close(f"{step}.probs", full.flatten(1), fixture.expected(f"{step}.probs"))
    for name, knn in (("greedy", None), ("greedy_knn", fixture.option("step_c_k"))):
        path = greedy(policy, problem, knn=knn)
        flags = node_flags(path.order, path.via)
        checks.same(f"{name}.node_flag", flags, fixture.expected(f"{name}.node_flag"))
        lengths = route_lengths(coords, path.order, flags[..., 1] == 1)
        checks.close(f"{name}.lengths", lengths, fixture.expected(f"{name}.lengths"))
