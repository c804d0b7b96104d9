"""Parity of SIT (CIAM-Group/SIL): steps, greedy, kNN, insertion, PRC, training, for TSP and CVRP."""

from __future__ import annotations

import torch
from torch import Tensor

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.lehd import (
    cvrp_rows,
    joined,
    node_flags,
    padded,
    per_instance,
    routes_of,
    train_cvrp,
    tsp_label_segment,
    tsp_rows,
)
from nco_bench.parity.training import (
    Trainer,
    compare_losses,
    compare_parameters,
    floored,
    tsp_segment,
)
from nco_bench.solvers.decoding.insertion import insert_cvrp, insert_tsp
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import path_state
from nco_bench.solvers.path.problem import cvrp_problem, route_lengths, shares, tour_lengths, tsp_problem
from nco_bench.solvers.path.reconstruction_cvrp import rebuild_segments, segment_layout
from nco_bench.solvers.path.reconstruction_segments import CvrpInstance, Rebuilt
from nco_bench.solvers.path.reconstruction_tsp import prc_tsp_step
from nco_bench.solvers.path.route_moves import (
    Routes,
    load_before,
    reverse_all,
    reverse_routes,
    rotate_routes,
    sort_by_angle,
)
from nco_bench.solvers.path.sit import Sit, SitConfig, build, from_official


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
    problem = fixture.fact("problem").lower()
    policy, checks = policy_of(fixture, problem), Checks()
    tsp = problem == "tsp"
    with torch.inference_mode():
        (_check_tsp if tsp else _check_cvrp)(fixture, policy, checks)
        if fixture.wants("ri"):
            (_check_insertion_tsp if tsp else _check_insertion_cvrp)(fixture, checks)
        if fixture.wants("prc"):
            (_check_prc_tsp if tsp else _check_prc_cvrp)(fixture, policy, checks)
    if fixture.wants("train"):
        (_check_training_tsp if tsp else _check_training_cvrp)(fixture, policy, checks)
    return result(fixture, "sit", problem, checks)


def nearest_only(rows: Tensor, coords: Tensor, count: int) -> Tensor:
    """Keep the `count` candidates nearest to the origin, nearest first: ``(B, M + 2)`` to ``(B, count + 2)`` rows."""
    points = coords.gather(1, rows[..., None].expand(-1, -1, 2))
    distance = (points[:, 1:-1] - points[:, :1]).norm(dim=2)
    kept = distance.topk(min(count, distance.shape[1]), dim=1, largest=False).indices
    return torch.cat([rows[:, :1], rows[:, 1:-1].gather(1, kept), rows[:, -1:]], dim=1)


def _check_tsp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    coords = fixture.input("problems")
    problem = tsp_problem(coords)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", policy.embedding(features), fixture.wanted("encoded_nodes"))
    for step in fixture.groups(r"step_\w+"):
        rows = tsp_rows(coords.shape[1], fixture.input(f"{step}.selected"))
        # Nodes that the restriction hides are put back with 1e-7.
        probs = torch.zeros(coords.shape[:2]).scatter(1, rows[:, 1:-1], 1e-7)
        if f"{step}_k" in fixture.config:
            rows = nearest_only(rows, coords, fixture.option(f"{step}_k"))
        scores = policy.scores(path_state(problem.nodes, features, rows))
        expected = fixture.wanted(f"{step}.raw_logits")
        if expected is not None:
            checks.close(f"{step}.raw_logits", scores, expected[:, -scores.shape[1] :])
        probs = probs.scatter(1, rows[:, 1:-1], floored(scores.softmax(1)))
        checks.close(f"{step}.probs", probs, fixture.wanted(f"{step}.probs"))
    for name in fixture.groups("greedy(?:_knn)?"):
        knn = fixture.option("step_c_k") if name == "greedy_knn" else None
        tours = torch.cat([problem.rows[:, :1], greedy(policy, problem, knn=knn).order], dim=1)
        checks.same(f"{name}.tours", tours, fixture.wanted(f"{name}.tours"))
        checks.close(f"{name}.lengths", tour_lengths(coords, tours), fixture.wanted(f"{name}.lengths"))


def _check_cvrp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    problem = cvrp_problem(coords, demand, capacity)
    features = policy.embed(problem.nodes)
    checks.close("encoded_nodes", policy.embedding(features), fixture.wanted("encoded_nodes"))
    batch, customers = len(coords), coords.shape[1] - 1
    for step in fixture.groups(r"step_\w+"):
        remaining = shares(fixture.input(f"{step}.remaining"), capacity, coords.dtype)
        selected = fixture.input(f"{step}.selected")
        rows = cvrp_rows(coords.shape[1], selected)
        # Customers that the restriction hides are put back with probability 0.
        full = torch.full((batch, 2, customers), -2.0)
        full.scatter_(2, (rows[:, None, 1:-1] - 1).expand(-1, 2, -1), 0.0)
        if f"{step}_k" in fixture.config:
            rows = nearest_only(rows, coords, fixture.option(f"{step}_k"))
        closed = not selected.shape[1]
        scores = policy.scores(path_state(problem.nodes, features, rows, closed=closed, remaining=remaining))
        expected = fixture.wanted(f"{step}.raw_logits")
        if expected is not None:
            checks.close(f"{step}.raw_logits", scores, expected[:, -scores.shape[1] :])
        probs = floored(scores.transpose(1, 2).flatten(1).softmax(1)).view(batch, 2, -1)
        full.scatter_(2, (rows[:, None, 1:-1] - 1).expand(-1, 2, -1), probs)
        checks.close(f"{step}.probs", full.flatten(1), fixture.wanted(f"{step}.probs"))
    for name in fixture.groups("greedy(?:_knn)?"):
        knn = fixture.option("step_c_k") if name == "greedy_knn" else None
        path = greedy(policy, problem, knn=knn)
        flags = node_flags(path)
        checks.same(f"{name}.node_flag", flags, fixture.wanted(f"{name}.node_flag"))
        lengths = route_lengths(coords, path.order, flags[..., 1] == 1)
        checks.close(f"{name}.lengths", lengths, fixture.wanted(f"{name}.lengths"))


def _check_insertion_tsp(fixture: Fixture, checks: Checks) -> None:
    coords = fixture.input("problems")
    tours = insert_tsp(coords, fixture.input("ri.order"))
    checks.same("ri.tours", tours, fixture.wanted("ri.tours"))
    checks.close("ri.lengths", tour_lengths(coords, tours), fixture.wanted("ri.lengths"))


def _check_insertion_cvrp(fixture: Fixture, checks: Checks) -> None:
    coords, demand, capacity = (fixture.input(name) for name in ("coords", "demand", "capacity"))
    made = [
        insert_cvrp(c.numpy(), d.numpy(), int(q)) for c, d, q in zip(coords, demand, capacity, strict=True)
    ]
    routes = (
        torch.stack([torch.from_numpy(m[0]) for m in made]),
        torch.stack([torch.from_numpy(m[1]) for m in made]),
    )
    checks.same("ri.node_flag", joined(routes), fixture.wanted("ri.node_flag"))
    checks.close("ri.lengths", route_lengths(coords, *routes), fixture.wanted("ri.lengths"))


def _check_prc_tsp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    coords, tours = fixture.input("problems"), fixture.expected("greedy.tours")
    flips, starts, lengths = (fixture.input(f"prc.{name}").tolist() for name in ("flip", "start", "length"))
    for k, (flip, start, length) in enumerate(zip(flips, starts, lengths, strict=True)):
        tours, rebuilt = prc_tsp_step(policy, coords, tours, flip=bool(flip), start=start, length=length)
        segments = len(rebuilt.order) // len(coords)
        checks.same(f"prc.{k}.factor", torch.tensor(segments), fixture.row("prc.factor", k))
        source = coords.repeat_interleave(segments, dim=0)
        ends = source.gather(1, rebuilt.order[:, [0, -1], None].expand(-1, -1, 2)).double()
        compare_segments(fixture, k, rebuilt, (ends[:, 0] - ends[:, 1]).norm(dim=1), segments, checks)
        checks.same(f"prc.{k}.solution", tours, fixture.row("prc.solution", k))
        checks.close(f"prc.{k}.lengths", tour_lengths(coords, tours), fixture.row("prc.lengths", k))


def compare_segments(
    fixture: Fixture, k: int, rebuilt: Rebuilt, closing: Tensor | float, segments: int, checks: Checks
) -> None:
    """Compare lengths and decisions of ``B segments`` rebuilt segments with the padded ``(B, Fmax)`` ones."""
    for field in ("before", "after"):
        ours = (getattr(rebuilt, field) + closing).view(-1, segments)
        expected = fixture.row(f"prc.{field}", k)
        checks.close(f"prc.{k}.{field}", padded(ours, expected, 0), expected)
    expected = fixture.row("prc.accepted", k)
    checks.same(f"prc.{k}.accepted", padded(rebuilt.accepted.view(-1, segments), expected, 0), expected)


def _check_prc_cvrp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    instance = CvrpInstance(*(fixture.input(name) for name in ("coords", "demand", "capacity")))
    routes = routes_of(fixture.expected("greedy.node_flag"))
    for k, length in enumerate(fixture.input("prc.length").tolist()):
        turned = sort_by_angle(instance.coords, routes)
        if len(routes[0]) > 1 and len(routes[0]) % 2:
            # The official code sorts two halves of floor(B / 2) instances: the last of an odd number is left out.
            turned = (
                torch.cat([turned[0][:-1], routes[0][-1:]]),
                torch.cat([turned[1][:-1], routes[1][-1:]]),
            )
        checks.same(f"prc.{k}.rearranged", joined(turned), fixture.row("prc.rearranged", k))
        if fixture.input("prc.whole_flip")[k] >= 0.5:
            turned = reverse_all(turned)
        turned = reverse_routes(turned, per_instance(fixture.input("prc.route_flip_1")[k], turned) <= 0.5)
        checks.same(f"prc.{k}.flipped", joined(turned), fixture.row("prc.flipped", k))
        shift = fixture.input("prc.shift")[k] % turned[1].sum(1).min() + 1
        turned = rotate_routes(turned, shift.expand(len(turned[0])))
        turned = reverse_routes(turned, per_instance(fixture.input("prc.route_flip_2")[k], turned) <= 0.5)
        checks.same(f"prc.{k}.shifted", joined(turned), fixture.row("prc.shifted", k))
        routes = _check_segments(fixture, k, policy, instance, turned, length, checks)
        checks.same(f"prc.{k}.solution", joined(routes), fixture.row("prc.solution", k))
        checks.close(f"prc.{k}.lengths", instance.lengths(routes), fixture.row("prc.lengths", k))


def _check_segments(
    fixture: Fixture, k: int, policy: Sit, instance: CvrpInstance, routes: Routes, length: int, checks: Checks
) -> Routes:
    """Lay out and rebuild the segments, as many in every instance; compare, and return the new solutions."""
    starts, count = segment_layout(routes[1], length)
    factor = int(count.min())
    checks.same(f"prc.{k}.factor", torch.tensor(factor), fixture.row("prc.factor", k))
    starts = starts[:, :factor].flip(1)  # ascending, as in the fixture
    expected = fixture.row("prc.segment_start", k)
    checks.same(f"prc.{k}.segment_start", padded(starts, expected, -1), expected)
    room = instance.capacity[:, None] - load_before(routes, instance.demand, starts)
    expected_room = fixture.row("prc.start_remaining_capacity", k)
    if expected_room is not None:
        direct = ~routes[1].gather(1, starts)  # elsewhere it is not used
        checks.close(f"prc.{k}.start_remaining_capacity", room[direct], expected_room[:, :factor][direct])
    routes, rebuilt = rebuild_segments(
        policy, instance, routes, starts, torch.full_like(count, factor), length
    )
    compare_segments(fixture, k, rebuilt, 0.0, factor, checks)
    return routes


def _check_training_tsp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    trainer = Trainer(policy, fixture, clip=10.0)
    tsp_segment(fixture, policy, checks, trainer, tsp_label_segment(fixture))
    compare_losses(fixture, trainer, checks)
    compare_parameters(fixture, policy, from_official, checks)


def _check_training_cvrp(fixture: Fixture, policy: Sit, checks: Checks) -> None:
    routes = routes_of(fixture.input("label_node_flag"))
    shift = fixture.input("train.shift").expand(len(routes[0])) + 1
    routes = rotate_routes(routes, shift)
    routes = reverse_routes(routes, per_instance(fixture.input("train.route_flip_1"), routes) <= 0.5)
    if fixture.input("train.whole_flip") >= 0.5:
        routes = reverse_all(routes)
    routes = reverse_routes(routes, per_instance(fixture.input("train.route_flip_2"), routes) <= 0.5)
    trainer = Trainer(policy, fixture, clip=10.0)
    train_cvrp(fixture, policy, checks, trainer, routes)
    compare_parameters(fixture, policy, from_official, checks)
