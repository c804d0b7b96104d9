"""Parity of BQ-NCO (naver/bq-nco) and of BQ-NCO + ESF: scores, greedy, kNN, beam search, training."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.nn.logit_scale import esf, log_ratio, none
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.training import Trainer, compare_losses, compare_parameters
from nco_bench.solvers.path.beam import beam
from nco_bench.solvers.path.bq import Bq, BqConfig, build, from_official
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import PathNodes, path_state
from nco_bench.solvers.path.problem import (
    Path,
    PathProblem,
    cvrp_problem,
    route_lengths,
    shares,
    tour_lengths,
    tsp_problem,
)


def policy_of(fixture: Fixture, config: BqConfig) -> Bq:
    """Build the policy and load the fixture's weights through the official importer."""
    fixture.require("activation_attention", "softmax")
    fixture.require("batchnorm", False)
    policy = build(config).eval()
    load_official(policy, "bq", fixture.state_dict, str(fixture.path))
    return policy


def check(fixture: Fixture) -> ParityResult:
    """Compare everything that a BQ-NCO fixture holds."""
    problem = fixture.fact("problem").lower()
    config = BqConfig(
        problem,
        fixture.size("emb_size"),
        fixture.size("nb_heads"),
        fixture.size("dim_ff"),
        fixture.size("nb_layers_encoder"),
        gelu=fixture.sizes.get("activation_ff", "relu") == "gelu",
    )
    policy, checks = policy_of(fixture, config), Checks()
    with torch.inference_mode():
        (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
    if fixture.wants("train"):
        _check_training(fixture, policy, problem, checks)
    return result(fixture, "bq", problem, checks)


def _sequence_scores(policy: Bq, nodes: PathNodes, remaining: Tensor | None = None) -> Tensor:
    """Score a path problem given as a sequence origin ... destination; -inf at both ends, flattened for the CVRP."""
    rows = torch.arange(nodes.coords.shape[1]).expand(nodes.coords.shape[0], -1)
    scores = policy.scores(path_state(nodes, policy.embed(nodes), rows, remaining=remaining))
    ends = torch.full_like(scores[:, :1], -torch.inf)
    return torch.cat([ends, scores, ends], dim=1).flatten(1)


def _check_tsp(fixture: Fixture, policy: Bq, checks: Checks) -> None:
    coords = fixture.input("coords")
    for name, key in (("full", "coords"), ("sub", "sub_coords")):
        if not fixture.wants(f"scores_{name}"):
            continue
        nodes = PathNodes(fixture.input(key), None, coords.shape[1] - 1)
        checks.close(f"scores_{name}", _sequence_scores(policy, nodes), fixture.wanted(f"scores_{name}"))
    problem = tsp_problem(coords[:, :-1])
    for name, path in _paths(fixture, policy, problem):
        tours = torch.cat([problem.rows[:, :1], path.order], dim=1)
        checks.same(f"{name}.tours", tours, fixture.wanted(f"{name}.tours"))
        checks.close(f"{name}.lengths", tour_lengths(coords, tours), fixture.wanted(f"{name}.lengths"))


def _check_cvrp(fixture: Fixture, policy: Bq, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demands", "capacities"))
    size = coords.shape[1] - 2
    nodes = PathNodes(coords, shares(demand, capacity, coords.dtype), size)
    full = torch.ones(len(coords))
    checks.close("scores_full", _sequence_scores(policy, nodes, full), fixture.wanted("scores_full"))
    if fixture.wants("scores_sub"):
        _check_sub_scores(fixture, policy, checks, size)
    problem = cvrp_problem(coords[:, :-1], demand[:, :-1].long(), capacity.long())
    for name, path in _paths(fixture, policy, problem):
        _compare_routes(fixture, coords, path, name, checks)


def _paths(fixture: Fixture, policy: Bq, problem: PathProblem) -> Iterator[tuple[str, Path]]:
    """Decode as the fixture's groups say, with its beam width and its number of nearest nodes."""
    for name in fixture.groups(r"(?:greedy|beam)(?:_knn)?"):
        knn = fixture.option("knns") if name.endswith("_knn") else None
        if name.startswith("greedy"):
            yield name, greedy(policy, problem, knn=knn)
        else:
            yield name, beam(policy, problem, fixture.option("beam"), knn=knn)


def _check_sub_scores(fixture: Fixture, policy: Bq, checks: Checks, size: int) -> None:
    coords, capacity = fixture.input("sub_coords"), fixture.input("capacities")
    sub_demand = shares(fixture.input("sub_demands"), capacity, coords.dtype)
    sub = PathNodes(coords, sub_demand, size)
    remaining = shares(fixture.input("sub_remaining"), capacity, coords.dtype)
    checks.close("scores_sub", _sequence_scores(policy, sub, remaining), fixture.wanted("scores_sub"))


def _compare_routes(fixture: Fixture, coords: Tensor, path: Path, name: str, checks: Checks) -> None:
    """Compare with BQ's rows: depot, customers, depot; the depot rows carry fixed flags."""
    for field, ours in (("paths", path.order), ("via_depot", path.flags)):
        expected = fixture.wanted(f"{name}.{field}")
        checks.same(f"{name}.{field}", ours, None if expected is None else expected[:, 1:-1])
    lengths = route_lengths(coords, path.order, path.flags)
    checks.close(f"{name}.lengths", lengths, fixture.wanted(f"{name}.lengths"))


def _check_training(fixture: Fixture, policy: Bq, problem: str, checks: Checks) -> None:
    """Replay training: one cross-entropy of the next node per batch, the sub-problem being a suffix of the solution."""
    coords = fixture.input("train.coords")
    trainer, sizes = Trainer(policy, fixture), []
    if problem == "tsp":
        begins = [coords.shape[1] + 1 - size for size in fixture.input("train.size_draws").tolist()]
    else:
        begins = fixture.input("train.begin_draws").tolist()
    for begin in begins:
        if problem == "tsp":
            nodes, remaining = PathNodes(coords[:, begin:], None, coords.shape[1] - 1), None
            target = torch.ones(len(coords), dtype=torch.int64)
        else:
            capacity = fixture.input("train.remaining_capacities")[:, 0]
            demand = shares(fixture.input("train.demands"), capacity, coords.dtype)[:, begin:]
            nodes = PathNodes(coords[:, begin:], demand, coords.shape[1] - 2)
            left = fixture.input("train.remaining_capacities")[:, begin]
            remaining = shares(left, capacity, coords.dtype)
            target = 2 + fixture.input("train.via_depots")[:, begin + 1]
        sizes.append(nodes.coords.shape[1])
        trainer.step(F.cross_entropy(_sequence_scores(policy, nodes, remaining), target))
    checks.same("train.num_nodes", torch.tensor(sizes), fixture.wanted("train.num_nodes"))
    compare_losses(fixture, trainer, checks, "train.losses")
    # The official schedule decays after epoch 0 already.
    rate = torch.tensor(fixture.option("train_lr") * fixture.option("decay_rate"))
    checks.close("train.lr_after", rate, fixture.wanted("train.lr_after"), tolerance=1e-9)
    compare_parameters(fixture, policy, from_official, checks)


def check_esf(fixture: Fixture) -> ParityResult:
    """Compare BQ-NCO under the three readings of ESF: none, static, dynamic."""
    config = BqConfig(
        "tsp",
        fixture.size("dim_emb"),
        fixture.size("nb_heads"),
        fixture.size("dim_ff"),
        fixture.size("nb_layers_encoder"),
        training_size=fixture.size("n_train"),
    )
    policy, checks = policy_of(fixture, config), Checks()
    coords = fixture.input("coords")
    size = coords.shape[1] - 1
    problem = tsp_problem(coords[:, :-1])
    with torch.inference_mode():
        for reading, scale in (("none", none), ("static", log_ratio), ("dynamic", esf)):
            policy.logit_scale = scale
            for name, key in (("scores", "coords"), ("sub_scores", "sub_coords")):
                if not fixture.wants(f"{reading}.{name}"):
                    continue
                scores = _sequence_scores(policy, PathNodes(fixture.input(key), None, size))
                checks.close(f"{reading}.{name}", scores, fixture.wanted(f"{reading}.{name}"))
            for prefix in ("", "knn_"):
                if not fixture.wants(f"{reading}.{prefix}tours", f"{reading}.{prefix}lens"):
                    continue
                knn = fixture.option("knns") if prefix else None
                tours = torch.cat([problem.rows[:, :1], greedy(policy, problem, knn=knn).order], dim=1)
                checks.same(f"{reading}.{prefix}tours", tours, fixture.wanted(f"{reading}.{prefix}tours"))
                lengths = tour_lengths(coords, tours)
                checks.close(f"{reading}.{prefix}lens", lengths, fixture.wanted(f"{reading}.{prefix}lens"))
    return result(fixture, "bq-esf", "tsp", checks)
