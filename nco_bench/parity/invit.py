"""Parity of INViT (Kasumigaoka-Utaha/INViT): views, queries and keys, probabilities, greedy, augmentation, training step.

Official customers are numbered from 0 and the depot is -1; ours are numbered from 1 and the depot is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients
from nco_bench.solvers.decoding.search import Choose, Trajectories, construct, greedy_choice
from nco_bench.solvers.decoding.turns import turned
from nco_bench.solvers.stepwise.invit import DECODER_LAYERS, Invit, build, in_box
from nco_bench.solvers.stepwise.invit_official import from_official
from nco_bench.solvers.stepwise.invit_views import InvitConfig
from nco_bench.solvers.stepwise.local_steps import LocalViews
from nco_bench.solvers.stepwise.policy import Options, RoutingNodes, Walk
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands, trajectory_lengths

BOX_POINTS = 5
"""How many points of the fixture's normalisation check make the box."""


def check(fixture: Fixture) -> ParityResult:
    """Compare what an INViT fixture holds."""
    problem, checks = str(fixture.fact("problem")), Checks()
    views = list(fixture.size("state_k"))
    name = f"invit-{len(views) + 1}v"
    fixture.require("nb_layers_decoder", DECODER_LAYERS + 1)
    for key in ("batchnorm", "if_agg_whole_graph", "if_use_local_mask"):
        fixture.require(key, False)
    config = InvitConfig(
        problem,
        fixture.size("dim_emb"),
        fixture.size("nb_heads"),
        fixture.size("dim_ff"),
        fixture.size("nb_layers_action_encoder"),
        fixture.size("nb_layers_state_encoder"),
        fixture.size("action_k"),
        middle=views[0] if len(views) > 1 else 0,
        widest=views[-1],
    )
    policy = build(config).eval()
    load_official(policy, name, fixture.state_dict, str(fixture.path))
    with torch.inference_mode():
        if fixture.wants("greedy") or _inner_steps(fixture):
            _check_greedy(fixture, policy, checks)
        if fixture.wants("b"):
            _check_second(fixture, policy, checks)
        _check_augmentation(fixture, checks)
        if fixture.wants("forced"):
            _check_forced(fixture, policy, checks)
    if fixture.wants("train"):
        _check_training(fixture, policy, checks)
    return result(fixture, name, problem, checks)


def problem_of(fixture: Fixture, group: str = "") -> RoutingProblem:
    """Return the instances of ``input.*`` or ``input.b.*``."""
    if fixture.has(f"input.{group}coords"):
        return RoutingProblem(fixture.input(f"{group}coords"))
    coords = torch.cat([fixture.input(f"{group}depot")[:, None], fixture.input(f"{group}loc")], dim=1)
    demand = F.pad(fixture.input(f"{group}demand"), (1, 0))
    capacity = torch.full_like(demand[:, 0], int(fixture.option("capacity")))
    return RoutingProblem(coords, cvrp_demands(demand, capacity))


def _lengths(problem: RoutingProblem, done: Trajectories) -> Tensor:
    cvrp = problem.demands is not None
    return trajectory_lengths(problem.coords.double(), done.nodes, cvrp=cvrp).squeeze(1)


def _built(fixture: Fixture, policy: Invit, group: str = "", choose: Choose = greedy_choice) -> Trajectories:
    """Build one solution per instance, from the given first nodes; log-probabilities are noted."""
    problem = problem_of(fixture, group)
    steps = LocalViews(policy, problem, problem.nodes())
    starts = fixture.input(f"{group}start")[:, None] if fixture.has(f"input.{group}start") else None
    return construct(steps, steps.begin(1, starts), choose, log_prob=True)


def _ours(official: Tensor, problem: RoutingProblem) -> Tensor:
    """Number nodes as we do."""
    return official if problem.demands is None else official + 1


def _outcome(
    fixture: Fixture, checks: Checks, problem: RoutingProblem, done: Trajectories, group: str = ""
) -> None:
    expected = fixture.wanted(f"{group}greedy.tours")
    ours = None if expected is None else _ours(expected, problem)
    checks.same(f"{group}greedy.tours", done.nodes[:, 0], ours)
    checks.close(f"{group}greedy.lengths", _lengths(problem, done), fixture.wanted(f"{group}greedy.lengths"))
    assert done.log_prob is not None
    checks.close(f"{group}greedy.log_prob", done.log_prob[:, 0], fixture.wanted(f"{group}greedy.log_prob"))


def _check_greedy(fixture: Fixture, policy: Invit, checks: Checks) -> None:
    """Compare greedy solutions, candidates and probabilities of every step, and the network's insides where held."""
    problem = problem_of(fixture)
    seen: list[Options] = []
    named, inner = _inner_steps(fixture), policy.options

    def noted(nodes: RoutingNodes, walk: Walk) -> Options:
        if len(seen) in named:
            _check_inside(fixture, policy, checks, nodes, walk, named[len(seen)])
        seen.append(inner(nodes, walk))
        return seen[-1]

    policy.options = noted  # type: ignore[method-assign]
    done = _built(fixture, policy)
    policy.options = inner  # type: ignore[method-assign]
    _outcome(fixture, checks, problem, done)
    width = max(o.nodes.shape[1] for o in seen)
    probs = torch.stack([F.pad(o.log_probs.exp(), (0, width - o.nodes.shape[1])) for o in seen])
    checks.close("greedy.probs", probs, fixture.wanted("greedy.probs"))
    if not fixture.wants("greedy.candidates"):
        return
    if problem.demands is None:
        nodes = torch.stack([F.pad(o.nodes, (0, width - o.nodes.shape[1]), value=-2) for o in seen])
        checks.same("greedy.candidates", nodes, fixture.wanted("greedy.candidates"))
        return
    real = ~F.pad(fixture.expected("greedy.candidate_padding"), (0, 1))
    nodes = torch.stack([o.nodes for o in seen])
    checks.same("greedy.candidates", nodes[real], fixture.expected("greedy.candidates")[real] + 1)


def _inner_steps(fixture: Fixture) -> dict[int, str]:
    """Return the groups of the network's insides by their step: ``stepN``, and ``mid`` at ``mid.step`` or half way."""
    found = {int(name.removeprefix("step")): name for name in fixture.groups(r"step\d+")}
    if fixture.wants("mid"):
        step = fixture.wanted("mid.step")
        found[len(fixture.expected("greedy.probs")) // 2 if step is None else int(step)] = "mid"
    return found


def _check_inside(
    fixture: Fixture, policy: Invit, checks: Checks, nodes: RoutingNodes, walk: Walk, name: str
) -> None:
    """Compare what the encoders return, the query and the keys; rows of padding mean nothing."""
    slots, real = policy.neighbours(nodes, walk)
    views = policy.views(nodes, walk, slots, real)
    encoders = {
        "action_encoder": policy.action,
        **{f"state_encoder{i}": e for i, e in enumerate(policy.states)},
    }
    for (key, encoder), view in zip(encoders.items(), views, strict=True):
        x, expected = encoder(view), fixture.wanted(f"{name}.{key}")
        shown = slice(None) if view.visible is None else view.visible
        checks.close(f"{name}.{key}", x[shown], None if expected is None else expected[shown])
    for i, size in enumerate(policy.config.state_views):
        expected = fixture.wanted(f"{name}.state{i}_idx")
        if expected is not None and real is not None:
            shown = real[:, :size]
            checks.same(f"{name}.state{i}_idx", slots[:, :size][shown], (expected + 1)[shown])
    count = min(policy.config.candidates, slots.shape[1])
    encoded = [policy.action(views[0])]
    encoded += [e(v, count) for e, v in zip(policy.states, views[1:], strict=True)]
    query, keys, _ = policy.asked(encoded, count)
    checks.close(f"{name}.query", query, fixture.wanted(f"{name}.query"))
    kept = slice(None) if real is None else F.pad(real[:, :count], (0, 1), value=True)
    expected = fixture.wanted(f"{name}.keys")
    checks.close(f"{name}.keys", keys[kept], None if expected is None else expected[kept])


def _check_second(fixture: Fixture, policy: Invit, checks: Checks) -> None:
    _outcome(fixture, checks, problem_of(fixture, "b."), _built(fixture, policy, "b."), "b.")


def _check_augmentation(fixture: Fixture, checks: Checks) -> None:
    """Compare rotations, reflections, and the boxes of views."""
    if not fixture.wants("aug", "norm"):
        return
    points, angle = fixture.input("aug.xy"), fixture.input("aug.theta").squeeze(1)
    for name, reflect in (("rotate", False), ("reflect", True)):
        ours = turned(points, angle, torch.full(angle.shape, reflect))
        checks.close(f"aug.{name}", ours, fixture.wanted(f"aug.{name}"))
    checks.close("norm.tsp", in_box(points, BOX_POINTS, clamp=True), fixture.wanted("norm.tsp"))
    checks.close("norm.vrp", in_box(points, BOX_POINTS, clamp=False), fixture.wanted("norm.vrp"))


def _forced(fixture: Fixture, policy: Invit) -> tuple[Tensor, Tensor]:
    """Follow given solutions; return their log-probabilities and lengths."""
    problem, inner = problem_of(fixture), policy.options
    moves = _ours(fixture.input("forced_tours"), problem)
    shown: list[Tensor] = []

    def noted(nodes: RoutingNodes, walk: Walk) -> Options:
        options = inner(nodes, walk)
        shown.append(options.nodes)
        return options

    def choose(scores: Tensor, step: int) -> Tensor:
        possible = (shown[-1] == moves[:, step : step + 1]) & scores[:, 0].isfinite()
        return possible.long().argmax(dim=1, keepdim=True)

    policy.options = noted  # type: ignore[method-assign]
    done = _built(fixture, policy, choose=choose)
    policy.options = inner  # type: ignore[method-assign]
    assert done.log_prob is not None
    return done.log_prob[:, 0], _lengths(problem, done)


def _check_forced(fixture: Fixture, policy: Invit, checks: Checks) -> None:
    log_prob, lengths = _forced(fixture, policy)
    checks.close("forced.log_prob", log_prob, fixture.wanted("forced.log_prob"))
    checks.close("forced.lengths", lengths, fixture.wanted("forced.lengths"))


def _check_training(fixture: Fixture, policy: Invit, checks: Checks) -> None:
    """Replay one step of REINFORCE with given lengths as the baseline."""
    policy.train()
    log_prob, lengths = _forced(fixture, policy)
    loss = ((lengths - fixture.input("baseline")).float() * log_prob).mean()
    checks.close("train.loss", loss[None], fixture.wanted("train.loss"))
    loss.backward()
    compare_gradients(fixture, policy, from_official, checks)
