"""Parity of LEHD (CIAM-Group/NCO_code): encoder, steps, greedy, RRC, training, for TSP and CVRP."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.training import (
    Trainer,
    compare_losses,
    compare_parameters,
    cvrp_segment,
    floored,
    tsp_segment,
)
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.lehd import Lehd, LehdConfig, build, from_official
from nco_bench.solvers.path.policy import PathPolicy, path_state
from nco_bench.solvers.path.problem import (
    Path,
    cvrp_problem,
    route_lengths,
    shares,
    tour_lengths,
    tsp_problem,
)
from nco_bench.solvers.path.reconstruction_cvrp import rrc_cvrp_step, segment_follower
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance, Rebuilt
from nco_bench.solvers.path.reconstruction_tsp import rrc_tsp_step
from nco_bench.solvers.path.route_moves import (
    Routes,
    load_before,
    reverse_all,
    reverse_routes,
    rotate,
    rotate_routes,
)


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
    problem = fixture.fact("problem").lower()
    policy, checks = policy_of(fixture, problem), Checks()
    with torch.inference_mode():
        (_check_tsp if problem == "tsp" else _check_cvrp)(fixture, policy, checks)
        if fixture.wants("rrc"):
            (_check_rrc_tsp if problem == "tsp" else _check_rrc_cvrp)(fixture, policy, checks)
    if fixture.wants("train"):
        (_check_training_tsp if problem == "tsp" else _check_training_cvrp)(fixture, policy, checks)
    return result(fixture, "lehd", problem, checks)


def unvisited(count: int, selected: Tensor, first: int) -> Tensor:
    """Nodes ``first .. count - 1`` that are not selected, ascending: ``(B, t)`` to ``(B, count - first - t)``."""
    batch = selected.shape[0]
    left = torch.ones(batch, count, dtype=torch.bool)
    left[:, :first] = False
    left.scatter_(1, selected, False)
    return left.nonzero()[:, 1].view(batch, -1)


def tsp_rows(count: int, selected: Tensor) -> Tensor:
    """Rows of the path problem after a partial tour ``(B, t)``: last, unvisited ascending, first."""
    return torch.cat([selected[:, -1:], unvisited(count, selected, 0), selected[:, :1]], dim=1)


def cvrp_rows(count: int, selected: Tensor) -> Tensor:
    """Rows of the path problem after visited customers ``(B, t)``: last (or depot), unvisited ascending, depot."""
    left = unvisited(count, selected, 1)
    depot = torch.zeros_like(left[:, :1])
    return torch.cat([selected[:, -1:] if selected.shape[1] else depot, left, depot], dim=1)


def _check_tsp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    coords = fixture.input("problems")
    problem = tsp_problem(coords)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.wanted("encoded_nodes"))
    for step in fixture.groups(r"step_\w+"):
        rows = tsp_rows(coords.shape[1], fixture.input(f"{step}.selected"))
        scores = policy.scores(path_state(problem.nodes, features, rows))
        _compare_logits(fixture, checks, step, scores)
        probs = torch.full(coords.shape[:2], -2.0).scatter(1, rows[:, 1:-1], floored(scores.softmax(1)))
        checks.close(f"{step}.probs", probs, fixture.wanted(f"{step}.probs"))
    if not fixture.wants("greedy"):
        return
    tours = torch.cat([problem.rows[:, :1], greedy(policy, problem).order], dim=1)
    checks.same("greedy.tours", tours, fixture.wanted("greedy.tours"))
    checks.close("greedy.lengths", tour_lengths(coords, tours), fixture.wanted("greedy.lengths"))


def _check_cvrp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    problem = cvrp_problem(coords, demand, capacity)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", features, fixture.wanted("encoded_nodes"))
    customers = coords.shape[1] - 1
    for step in fixture.groups(r"step_\w+"):
        remaining = shares(fixture.input(f"{step}.remaining"), capacity, coords.dtype)
        selected = fixture.input(f"{step}.selected")
        rows = cvrp_rows(coords.shape[1], selected)
        closed = not selected.shape[1]
        scores = policy.scores(path_state(problem.nodes, features, rows, closed=closed, remaining=remaining))
        _compare_logits(fixture, checks, step, scores)
        probs = floored(scores.transpose(1, 2).flatten(1).softmax(1)).view(len(coords), 2, -1)
        full = torch.full((len(coords), 2, customers), -2.0)
        full.scatter_(2, (rows[:, None, 1:-1] - 1).expand(-1, 2, -1), probs)
        checks.close(f"{step}.probs", full.flatten(1), fixture.wanted(f"{step}.probs"))
    if not fixture.wants("greedy"):
        return
    path = greedy(policy, problem)
    flags = node_flags(path)
    checks.same("greedy.node_flag", flags, fixture.wanted("greedy.node_flag"))
    lengths = route_lengths(coords, path.order, flags[..., 1] == 1)
    checks.close("greedy.lengths", lengths, fixture.wanted("greedy.lengths"))


def _compare_logits(fixture: Fixture, checks: Checks, step: str, scores: Tensor) -> None:
    """Compare scores with the official ones, which have a row for either end too."""
    expected = fixture.wanted(f"{step}.raw_logits")
    checks.close(f"{step}.raw_logits", scores, None if expected is None else expected[:, 1:-1])


def node_flags(path: Path) -> Tensor:
    """Join customers and flags as LEHD stores solutions, ``(B, V, 2)``; the first flag is always 1."""
    flags = path.flags.long()
    flags[:, 0] = 1
    return torch.stack([path.order, flags], dim=2)


def local_ranks(segment: Tensor) -> Tensor:
    """Ranks of the nodes inside their segment, ``(S, L)``, from 0."""
    return segment.argsort(1).argsort(1)


def padded(values: Tensor, like: Tensor | None, filler: int) -> Tensor:
    """Fill a tensor up to the shape of `like`, where there is one."""
    if like is None:
        return values
    full = torch.full_like(like, filler)
    full[tuple(slice(size) for size in values.shape)] = values.to(like.dtype)
    return full


def _check_rrc_tsp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    coords, tours = fixture.input("problems"), fixture.expected("greedy.tours")
    flips, starts, lengths = (fixture.input(f"rrc.{name}").tolist() for name in ("flip", "start", "length"))
    for k, (flip, start, length) in enumerate(zip(flips, starts, lengths, strict=True)):
        draws = {"flip": bool(flip), "start": start, "length": length}
        tours, rebuilt = rrc_tsp_step(policy, coords, tours, **draws)
        sub = fixture.row("rrc.sub_solution", k)
        checks.same(f"rrc.{k}.sub_solution", padded(local_ranks(rebuilt.order), sub, -1), sub)
        checks.same(f"rrc.{k}.solution", tours, fixture.row("rrc.solution", k))
        ends = coords.gather(1, rebuilt.order[:, [0, -1], None].expand(-1, -1, 2)).double()
        _compare_rebuilt(fixture, f"rrc.{k}", rebuilt, (ends[:, 0] - ends[:, 1]).norm(dim=1), checks)
        checks.close(f"rrc.{k}.lengths", tour_lengths(coords, tours), fixture.row("rrc.lengths", k))


def _compare_rebuilt(
    fixture: Fixture, name: str, rebuilt: Rebuilt, closing: Tensor | float, checks: Checks
) -> None:
    """Compare lengths and decisions; the official TSP lengths hold the closing edge of the segment too."""
    group, k = name.split(".")
    for field in ("before", "after"):
        ours = getattr(rebuilt, field) + closing
        checks.close(f"{name}.{field}", ours, fixture.row(f"{group}.{field}", int(k)))
    checks.same(f"{name}.accepted", rebuilt.accepted, fixture.row(f"{group}.accepted", int(k)))


def routes_of(node_flag: Tensor) -> Routes:
    """Split ``(B, V, 2)`` into customers and flags."""
    return node_flag[..., 0], node_flag[..., 1] == 1


def joined(routes: Routes) -> Tensor:
    """Join customers and flags to ``(B, V, 2)``."""
    return torch.stack([routes[0], routes[1].long()], dim=2)


def per_instance(draws: Tensor, routes: Routes) -> Tensor:
    """Deal one draw per route, listed instance by instance, out to ``(B, max routes)``."""
    counts = routes[1].sum(1)
    offsets = counts.cumsum(0) - counts
    index = offsets[:, None] + torch.arange(int(counts.max()))
    return draws[index.clamp(max=len(draws) - 1)]


def _check_rrc_cvrp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    instance = CvrpInstance(*(fixture.input(name) for name in ("coords", "demand", "capacity")))
    routes = routes_of(fixture.expected("greedy.node_flag"))
    for k, length in enumerate(fixture.input("rrc.length").tolist()):
        flip = bool(fixture.input("rrc.whole_flip")[k] >= 0.5)
        end = fixture.input("rrc.end_route")[k]
        turned = reverse_all(routes) if flip else routes
        chosen = per_instance(fixture.input("rrc.route_flip")[k], turned) <= 0.5
        _compare_start(fixture, k, instance, reverse_routes(turned, chosen), end, length, checks)
        routes, rebuilt = rrc_cvrp_step(
            policy, instance, routes, flip=flip, flip_routes=chosen, length=length, end=end
        )
        sub = fixture.row("rrc.sub_node_flag", k)
        ours = joined((local_ranks(rebuilt.order) + 1, rebuilt.via if rebuilt.via is not None else routes[1]))
        checks.same(f"rrc.{k}.sub_node_flag", padded(ours, sub, -1), sub)
        checks.same(f"rrc.{k}.solution", joined(routes), fixture.row("rrc.solution", k))
        _compare_rebuilt(fixture, f"rrc.{k}", rebuilt, 0.0, checks)
        checks.close(f"rrc.{k}.lengths", instance.lengths(routes), fixture.row("rrc.lengths", k))


def _compare_start(
    fixture: Fixture,
    k: int,
    instance: CvrpInstance,
    flipped: Routes,
    end: Tensor,
    length: int,
    checks: Checks,
) -> None:
    """Compare the flipped solution, the segment's first position in it, and the capacity there."""
    checks.same(f"rrc.{k}.flipped_solution", joined(flipped), fixture.row("rrc.flipped_solution", k))
    customers = flipped[0].shape[1]
    follower = segment_follower(flipped[1], end)
    first = (follower - 1) % customers + customers - length + 1
    checks.same(f"rrc.{k}.start_index", first, fixture.row("rrc.start_index", k))
    at = torch.full_like(follower, customers - length)[:, None]
    room = instance.capacity - load_before(rotate(flipped, follower), instance.demand, at).squeeze(1)
    name = "start_remaining_capacity"
    checks.close(f"rrc.{k}.{name}", room, fixture.row(f"rrc.{name}", k))


def _check_training_tsp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    trainer = Trainer(policy, fixture)
    tsp_segment(fixture, policy, checks, trainer, tsp_label_segment(fixture))
    compare_losses(fixture, trainer, checks)
    compare_parameters(fixture, policy, from_official, checks)


def tsp_label_segment(fixture: Fixture) -> Tensor:
    """Cut the recorded segment out of the label tours, ``(B, L)``; it is reversed after cutting."""
    start, length, flip = (int(fixture.input(f"train.{name}")) for name in ("start", "length", "flip"))
    segment = fixture.input("label_tours").roll(-start, dims=1)[:, :length]
    return segment.flip(1) if flip else segment


def _check_training_cvrp(fixture: Fixture, policy: Lehd, checks: Checks) -> None:
    routes = routes_of(fixture.input("label_node_flag"))
    if fixture.input("train.whole_flip") >= 0.5:
        routes = reverse_all(routes)
    routes = reverse_routes(routes, per_instance(fixture.input("train.route_flip"), routes) <= 0.5)
    shift = fixture.input("train.shift").expand(len(routes[0])) + 1
    trainer = Trainer(policy, fixture)
    train_cvrp(fixture, policy, checks, trainer, rotate_routes(routes, shift))
    compare_parameters(fixture, policy, from_official, checks)


def train_cvrp(
    fixture: Fixture, policy: PathPolicy, checks: Checks, trainer: Trainer, routes: Routes
) -> None:
    """Cut the segments that end at the recorded route ends, and replay the training on them."""
    length = int(fixture.input("train.length"))
    order, via = rotate(routes, segment_follower(routes[1], fixture.input("train.end_route")))
    at = torch.full_like(order[:, :1], order.shape[1] - length)
    room = fixture.input("capacity") - load_before((order, via), fixture.input("demand"), at).squeeze(1)
    cvrp_segment(fixture, policy, checks, trainer, (order[:, -length:], via[:, -length:]), room)
    compare_losses(fixture, trainer, checks)
