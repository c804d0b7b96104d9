"""Parity of SIGD (grimmlab/gumbeldore), BQ and LEHD style: logits, greedy, beam, kNN, augmentation, training."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.training import Trainer, compare_losses, compare_parameters
from nco_bench.solvers.path.beam import beam
from nco_bench.solvers.path.policy import PathNodes, path_state
from nco_bench.solvers.path.problem import cvrp_problem, route_lengths, tour_lengths, tsp_problem
from nco_bench.solvers.path.sigd import Sigd, SigdConfig, SigdLehd, build, from_official


def policy_of(fixture: Fixture, problem: str) -> Sigd | SigdLehd:
    """Build the policy of the fixture's configuration and load its weights through the official importer."""
    style = str(fixture.option("architecture")).lower()
    fixture.require("use_rezero_transformer", True)
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
    """Compare what a SIGD fixture holds, but for its stochastic beam search (a matter of training data)."""
    problem = fixture.fact("problem").lower()
    policy, checks = policy_of(fixture, problem), Checks()
    with torch.inference_mode():
        (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
    if fixture.wants("train"):
        _check_training(fixture, policy, problem, checks)
    return result(fixture, "sigd-lehd" if policy.config.style == "lehd" else "sigd", problem, checks)


def tsp_prefix_scores(policy: Sigd | SigdLehd, coords: Tensor, length: int) -> Tensor:
    """Score the path through the first `length` nodes of tours, ``(B, length - 2)``.

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
        checks.close("encoded_nodes", encoded, fixture.wanted("encoded_nodes"))
        full = tsp_prefix_scores(policy, coords, coords.shape[1] + 1)
        checks.close("logits_full", full, fixture.wanted("logits_full"))
    if fixture.wants("logits_sub"):
        points = coords if policy.config.style == "lehd" else fixture.input("sub_coords")
        length = int(fixture.input("sub_length")) if policy.config.style == "lehd" else points.shape[1]
        scores = tsp_prefix_scores(policy, points, length)
        checks.close("logits_sub", scores, fixture.expected("logits_sub"))
    problem = tsp_problem(coords)
    for name in fixture.groups("greedy|beam"):
        path = beam(policy, problem, 1 if name == "greedy" else fixture.option("beam"))
        tours = torch.cat([problem.rows[:, :1], path.order], dim=1)
        checks.same(f"{name}.tours", tours, fixture.wanted(f"{name}.tours"))
        checks.close(f"{name}.lengths", tour_lengths(coords, tours), fixture.wanted(f"{name}.lengths"))
        checks.close(f"{name}.log_prob", path.log_prob, fixture.wanted(f"{name}.log_prob"))


def cvrp_logits(fixture: Fixture, group: str, policy: Sigd | SigdLehd) -> Tensor:
    """Masked logits ``(S, 2 (M - 1))`` of an official batch of rows ``depot, [start customer], remaining customers``.

    Where the path starts at a customer, that one's own actions are at -inf; items of both kinds may be mixed.
    """
    at_depot = fixture.input(f"{group}.start_node_mask")[:, 0] > 0.5
    kinds = [items.nonzero().squeeze(1) for items in (at_depot, ~at_depot)]
    logits = torch.cat([_cvrp_logits(fixture, group, policy, items) for items in kinds if len(items)])
    return logits[torch.cat(kinds).argsort()]


def _cvrp_logits(fixture: Fixture, group: str, policy: Sigd | SigdLehd, items: Tensor) -> Tensor:
    """Do so for the chosen items, which all start at the depot or all at row 1."""
    coords, demand = fixture.input(f"{group}.nodes")[items], fixture.input(f"{group}.demands")[items]
    remaining = fixture.input(f"{group}.current_capacity")[items].squeeze(1)
    at_depot = bool((fixture.input(f"{group}.start_node_mask")[items, 0] > 0.5).all())
    nodes = PathNodes(coords, demand, coords.shape[1] - 1)
    order, depot = torch.arange(coords.shape[1]), torch.zeros(1, dtype=torch.int64)
    rows = torch.cat([order if at_depot else order[1:], depot]).expand(len(coords), -1)
    state = path_state(nodes, policy.embed(nodes), rows, closed=at_depot, remaining=remaining)
    scores = policy.scores(state).flatten(1)
    return scores if at_depot else F.pad(scores, (2, 0), value=-torch.inf)


def _check_cvrp(fixture: Fixture, policy: Sigd | SigdLehd, checks: Checks) -> None:
    if fixture.wants("step"):
        checks.close("step.logits", cvrp_logits(fixture, "step", policy), fixture.expected("step.logits"))
    names = fixture.groups("(?:greedy|beam)(?:_knn)?")
    if not names:
        return
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demands", "capacities"))
    problem = cvrp_problem(coords, demand.long(), capacity.long())
    for name in names:
        beams = 1 if name.startswith("greedy") else fixture.option("beam")
        knn = fixture.option("nearest_k") if name.endswith("_knn") else None
        path = beam(policy, problem, beams, knn=knn)
        checks.same(f"{name}.customers", path.order, fixture.wanted(f"{name}.customers"))
        checks.same(f"{name}.flags", path.flags, fixture.wanted(f"{name}.flags"))
        lengths = route_lengths(coords, path.order, path.flags)
        checks.close(f"{name}.lengths", lengths, fixture.wanted(f"{name}.lengths"))
        checks.close(f"{name}.log_prob", path.log_prob, fixture.wanted(f"{name}.log_prob"))


def _check_training(fixture: Fixture, policy: Sigd | SigdLehd, problem: str, checks: Checks) -> None:
    """Replay training: one cross-entropy of the next action per batch."""
    trainer = Trainer(policy, fixture)
    if problem == "tsp":
        tours = fixture.input("train.coords")
        for length in fixture.input("train.lengths").tolist():
            points = tours[:, :-1] if policy.config.style == "lehd" else tours[:, :length]
            scores = tsp_prefix_scores(policy, points, length)
            trainer.step(F.cross_entropy(scores, torch.zeros(len(tours), dtype=torch.int64)))
    else:
        for batch in range(len(fixture.expected("train.losses"))):
            group = f"train.{batch}"
            target = fixture.input(f"{group}.next_action_idx")
            trainer.step(F.cross_entropy(cvrp_logits(fixture, group, policy), target))
    compare_losses(fixture, trainer, checks, "train.losses")
    compare_parameters(fixture, policy, from_official, checks)
