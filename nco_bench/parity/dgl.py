"""Parity of DGL (xybFight/DGL): features, candidates, encoder, probabilities, greedy, beams, augmentation, training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients
from nco_bench.solvers.decoding.search import beam_search, construct, greedy_choice
from nco_bench.solvers.decoding.turns import turned
from nco_bench.solvers.path.problem import Path, route_lengths, tour_lengths
from nco_bench.solvers.stepwise.dgl import Dgl, DglConfig, build, from_official
from nco_bench.solvers.stepwise.local_steps import LocalViews
from nco_bench.solvers.stepwise.policy import Options, RoutingNodes
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands

MOST_CAPACITY = 10_000


def check(fixture: Fixture) -> ParityResult:
    """Compare what a DGL fixture holds."""
    problem, checks = "cvrp" if fixture.has("input.demand") else "tsp", Checks()
    config = DglConfig(
        problem,
        fixture.size("embedding_dim"),
        fixture.size("head_num"),
        fixture.size("qkv_dim"),
        fixture.size("ff_hidden_dim"),
        fixture.size("encoder_layer_num"),
        fixture.size("decoder_layer_num"),
        neighbours=fixture.size("knn"),
        depot_neighbours=fixture.sizes.get("depot_knn", 15),
    )
    policy = _policy(fixture, config)
    instances = problem_of(fixture)
    with torch.inference_mode():
        _check_steps(fixture, policy, checks, instances)
        for name in fixture.groups("greedy|beam|aug"):
            _check_solutions(fixture, policy, checks, instances, name)
    if fixture.wants("train"):
        _check_teacher(fixture, config, checks, instances)
    return result(fixture, "dgl", problem, checks)


def _check_teacher(fixture: Fixture, config: DglConfig, checks: Checks, instances: RoutingProblem) -> None:
    many = fixture.size("train_knn")
    policy = _policy(fixture, replace(config, neighbours=many, depot_neighbours=many))
    _check_training(fixture, policy, checks, instances)


def _policy(fixture: Fixture, config: DglConfig) -> Dgl:
    policy = build(config).eval()
    load_official(policy, "dgl", fixture.state_dict, str(fixture.path))
    return policy


def problem_of(fixture: Fixture) -> RoutingProblem:
    """Return the instances; demands, which are shares there, as whole numbers."""
    if not fixture.has("input.demand"):
        return RoutingProblem(fixture.input("coords"))
    share = fixture.input("demand").double()
    for capacity in range(1, MOST_CAPACITY):
        amount = (share * capacity).round()
        if bool(((share * capacity - amount).abs() < 1e-6 * capacity).all()):
            return RoutingProblem(
                fixture.input("coords"), cvrp_demands(amount.long(), torch.full((len(share),), capacity))
            )
    raise BadInputError(
        f"{fixture.path}: input.demand holds no fractions of a capacity below {MOST_CAPACITY}."
    )


def _check_steps(fixture: Fixture, policy: Dgl, checks: Checks, problem: RoutingProblem) -> None:
    """Compare features, candidates, the encoder and the probabilities after the moves of every step held."""
    nodes = problem.nodes()
    for name in fixture.groups(r"step\d+"):
        selected = fixture.input(f"{name}.selected")
        flags = _flags(fixture, name, selected) if problem.demands is not None else None
        steps = LocalViews(policy, problem, nodes)
        walks, _ = steps.begin(1, selected[:, :1])
        for i in range(1, selected.shape[1]):
            via = None if flags is None else flags[:, i]
            walks = steps.move(walks, selected[:, i], via)
        walk = walks.state
        every = torch.arange(nodes.coords.shape[1]).expand(len(selected), -1)
        features = policy.features(nodes, walk, every)
        checks.close(f"{name}.node_features", features, fixture.wanted(f"{name}.node_features"))
        groups = policy.candidates(nodes, walk)
        for group, suffix in zip(groups, ("",) if flags is None else ("_direct", "_depot"), strict=True):
            checks.same(f"{name}.candidates{suffix}", group, fixture.wanted(f"{name}.candidates{suffix}"))
        if walk.room is not None:
            checks.close(f"{name}.capacity", walk.room, fixture.wanted(f"{name}.capacity"))
        inputs = policy.inputs(nodes, walk, *groups)
        checks.close(f"{name}.encoder_input", inputs, fixture.wanted(f"{name}.encoder_input"))
        output = policy.encoded(inputs, policy.logit_factor(walk.left, nodes.size))
        checks.close(f"{name}.encoder_output", output, fixture.wanted(f"{name}.encoder_output"))
        probs = fixture.wanted(f"{name}.probs")
        if probs is not None:
            checks.close(f"{name}.probs", _probabilities(policy.options(nodes, walk), probs), probs)


def _flags(fixture: Fixture, name: str, selected: Tensor) -> Tensor:
    """Return which of the selected nodes are reached via the depot: as stored, or as in the greedy solutions they begin."""
    if fixture.has(f"input.{name}.flags"):
        return fixture.input(f"{name}.flags").bool()
    tours, flags = fixture.expected("greedy.tours"), fixture.expected("greedy.flags").bool()
    if not torch.equal(selected, tours[:, : selected.shape[1]]):
        raise BadInputError(
            f"{fixture.path}: input.{name}.selected is not the start of greedy.tours; it needs input.{name}.flags."
        )
    return flags


def _probabilities(options: Options, expected: Tensor) -> Tensor:
    """Spread ours over all nodes (directly, then via the depot), 0 elsewhere."""
    place = options.nodes
    if options.via is not None:
        place = place + options.via.long() * (expected.shape[1] // 2)
    return torch.zeros_like(expected).scatter(1, place, options.log_probs.exp())


def _check_solutions(
    fixture: Fixture, policy: Dgl, checks: Checks, problem: RoutingProblem, name: str
) -> None:
    """Compare greedy solutions, all final beams from every start, or greedy solutions of turned copies."""
    seen, metric = problem, problem.coords
    starts = fixture.input(f"{name}.start") + (problem.demands is not None)
    if name == "aug":
        copies = fixture.size("aug_size")
        metric = metric.repeat_interleave(copies, dim=0)
        # At the last step a feature of the last customer equals the depot's but for rounding, and is scaled to 0 or 1.
        coords = fixture.expected("aug.coords")
        checks.close("aug.coords", _augmented(fixture, metric), coords)
        seen = RoutingProblem(coords, None if problem.demands is None else problem.demands.repeat(copies))
        starts = starts.expand(len(coords))
    if name == "beam":
        width = fixture.size("beam_size")
        steps = LocalViews(policy, problem, problem.nodes())
        begun = (steps.begin(1, start.expand(len(metric), 1)) for start in starts)
        found = [beam_search(steps, each, width) for each in begun]
        via = None if problem.demands is None else _by_instance([f.via for f in found])
        done = Path(_by_instance([f.nodes for f in found]), via)
        metric = metric.repeat_interleave(width * len(starts), dim=0)
    else:
        steps = LocalViews(policy, seen, seen.nodes())
        done = Path.of(construct(steps, steps.begin(1, starts.expand(len(metric))[:, None]), greedy_choice))
    checks.same(f"{name}.tours", done.order, fixture.wanted(f"{name}.tours"))
    if done.via is not None:
        checks.same(f"{name}.flags", done.via, fixture.wanted(f"{name}.flags"))
    lengths = _lengths(metric, done)
    checks.close(f"{name}.lens", lengths, fixture.wanted(f"{name}.lens"))
    if name != "greedy":
        best = lengths.view(len(problem.coords), -1).amin(dim=1)
        checks.close(f"{name}.best_len", best, fixture.wanted(f"{name}.best_len"))


def _by_instance(parts: Sequence[Tensor | None]) -> Tensor:
    """Join the beams of several starts, ``(B, C, T)`` each, instance by instance, then start by start."""
    return torch.stack([part for part in parts if part is not None], dim=1).flatten(0, 2)


def _lengths(coords: Tensor, done: Path) -> Tensor:
    if done.via is None:
        return tour_lengths(coords, done.order)
    return route_lengths(coords, done.order, done.via)


def _augmented(fixture: Fixture, copies: Tensor) -> Tensor:
    """Turn the copies by the given angles: even rows rotated, odd ones reflected, row 0 of the batch left as it is."""
    draws = [fixture.input(f"aug.theta_{name}").flatten() for name in ("rotate", "reflect")]
    angle = torch.stack(draws, dim=1).flatten() * (2 * math.pi)
    moved = turned(copies, angle, torch.arange(len(copies)) % 2 == 1)
    moved[0] = copies[0]
    return moved


def _check_training(fixture: Fixture, policy: Dgl, checks: Checks, problem: RoutingProblem) -> None:
    """Follow the teacher; for the CVRP with the demand as a third axis of all distances, as official training does."""
    solution = fixture.input("train.solution")
    via = None
    if problem.demands is not None:
        via = fixture.input("train.flags").bool()
    checks.close(
        "train.solution_len",
        _lengths(problem.coords, Path(solution, via)),
        fixture.wanted("train.solution_len"),
    )
    nodes = problem.nodes()
    if nodes.demand is not None:
        nodes = RoutingNodes(torch.cat([nodes.coords, nodes.demand[..., None]], dim=2), nodes.demand)
    steps, chosen = LocalViews(policy, problem, nodes), []
    walks, _ = steps.begin(1, solution[:, :1])
    for step in range(1, solution.shape[1]):
        node, flag = solution[:, step], None if via is None else via[:, step]
        log_prob = _of(policy.options(nodes, walks.state), node, flag)
        chosen.append(log_prob.exp())
        if fixture.wants(f"train.grad_norms_decision{step}"):
            policy.zero_grad()
            (-log_prob.mean()).backward()
            _compare_norms(fixture, policy, checks, step)
        walks = steps.move(walks, node, flag)
    probs = torch.stack(chosen, dim=1).detach()
    checks.close("train.probs", probs, fixture.wanted("train.probs"))
    loss = -F.pad(probs.double(), (1, 0), value=1.0).log().mean()
    checks.close("train.loss", loss[None], fixture.wanted("train.loss"))


def _of(options: Options, node: Tensor, via: Tensor | None) -> Tensor:
    """Log-probability of given moves, ``(R,)``; 1e-20 where they are no options, as in the official code."""
    same = options.nodes == node[:, None]
    if via is not None and options.via is not None:
        same = same & (options.via == via[:, None])
    found = options.log_probs.masked_fill(~same, -torch.inf).amax(dim=1)
    return torch.where(same.any(dim=1), found, math.log(1e-20))


def _compare_norms(fixture: Fixture, policy: Dgl, checks: Checks, step: int) -> None:
    name = f"decision{step}"
    expected = {f"expected.{name}.grad_norms": fixture.expected(f"train.grad_norms_{name}")}
    renamed = replace(
        fixture,
        meta={**fixture.meta, "grad_norm_order": fixture.fact("grad_norm_keys")},
        tensors={**fixture.tensors, **expected},
    )
    compare_gradients(renamed, policy, from_official, checks, name)
