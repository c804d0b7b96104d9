"""Parity of GLOP (henry-yeh/GLOP): revisers, revision rounds, complete solves, the partition network and its routes."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients
from nco_bench.solvers.decoding.insertion import insert_tsp
from nco_bench.solvers.decoding.search import greedy_choice
from nco_bench.solvers.divide.glop import Glop, both_ways, build, config_of, from_official
from nco_bench.solvers.divide.glop_partition import SMALLEST, affinities
from nco_bench.solvers.divide.glop_revision import (
    Revision,
    Tours,
    new_orders,
    open_lengths,
    revise,
    solve_tsp,
    transformed,
)
from nco_bench.solvers.divide.glop_routes import (
    giant_tours,
    likeliest,
    padded_routes,
    partition_graph,
    routes_of,
)
from nco_bench.solvers.stepwise.policy import RoutingNodes

SETTINGS: dict[str, dict[str, bool]] = {
    "aug": {},
    "noaug": {"augment": False},
    "noprune": {"augment": False, "prune": False},
    "flip": {"augment": False},
}
"""What a complete solve is called after its width: ``w3_aug``."""

FULL_ROUNDS = 4
"""Iterations of the reviser that covers whole instances."""

TRAINED = ("loss", "cost_forward", "cost_backward", "grad_norms")


def check(fixture: Fixture) -> ParityResult:
    """Compare what a GLOP fixture holds."""
    problem, checks = "cvrp" if fixture.has("input.demand") else "tsp", Checks()
    policy = build(config_of(fixture.state_dict, problem)).eval()
    load_official(policy, "glop", fixture.state_dict, str(fixture.path))
    if problem == "cvrp":
        with torch.inference_mode():
            _check_routes(fixture, policy, checks)
        if fixture.wants("sample_log_probs", "sample_mask_max_vehicle", "train_heatmap", "train_loss"):
            _check_partition_training(fixture, policy, checks)
    else:
        with torch.inference_mode():
            for name in fixture.groups(r"rev\d+"):
                _check_reviser(fixture, policy, checks, int(name.removeprefix("rev")))
            _check_rounds(fixture, policy, checks)
            for name in fixture.groups(r"w\d+_\w+"):
                _check_solve(fixture, policy, checks, name, _settings(fixture, name))
        for name in fixture.groups(r"rev\d+"):
            _check_training(fixture, policy, checks, int(name.removeprefix("rev")))
    return result(fixture, "glop", problem, checks)


def _settings(fixture: Fixture, name: str) -> dict[str, int | bool]:
    """Return the settings of a solve from its name; up to 100 nodes, flips need four times the width."""
    width, _, kind = name.removeprefix("w").partition("_")
    if kind not in SETTINGS:
        raise BadInputError(
            f"{fixture.path}: solve {name!r} is unknown; ours end with {', '.join(SETTINGS)}."
        )
    return {"width": int(width) * (4 if kind == "flip" else 1), **SETTINGS[kind]}


def _check_reviser(fixture: Fixture, policy: Glop, checks: Checks, length: int) -> None:
    """Compare transformation, encoder, the probabilities of both directions, paths and lengths."""
    name, reviser = f"rev{length}", policy.reviser(length)
    seen = transformed(fixture.input(f"{name}.segments"))
    checks.close(f"{name}.transformed", seen, fixture.wanted(f"{name}.transformed"))
    checks.close(
        f"{name}.node_embeddings",
        _embedded(policy, length, seen),
        fixture.wanted(f"{name}.node_embeddings"),
    )
    logits: list[Tensor] = []
    paths = both_ways(reviser, seen, greedy_choice, logits)
    forward, backward = paths.unbind(1)
    checks.same(f"{name}.pi_forward", forward, fixture.wanted(f"{name}.pi_forward"))
    checks.same(f"{name}.pi_backward", backward.flip(1), fixture.wanted(f"{name}.pi_backward_raw"))
    free = torch.stack(logits, dim=2).log_softmax(dim=3)  # (S, 2, n - 2, n)
    ends = torch.full((len(seen), 1, length), -torch.inf)
    here, there = ends.index_fill(2, torch.tensor([0]), 0), ends.index_fill(2, torch.tensor([length - 1]), 0)
    for side, (first, last) in enumerate(((here, there), (there, here))):
        way = ("forward", "backward")[side]
        log_prob = torch.cat([first, free[:, side], last], dim=1)
        checks.close(f"{name}.logp_{way}", log_prob, fixture.wanted(f"{name}.logp_{way}"))
        raw = paths[:, side] if side == 0 else paths[:, side].flip(1)
        chosen = log_prob.gather(2, raw[..., None]).sum(dim=(1, 2))
        checks.close(f"{name}.ll_{way}", chosen, fixture.wanted(f"{name}.ll_{way}"))
        cost = open_lengths(_ordered(seen, raw))
        checks.close(f"{name}.cost_{way}", cost, fixture.wanted(f"{name}.cost_{way}"))


def _embedded(policy: Glop, length: int, seen: Tensor) -> Tensor:
    """Run the encoder of a reviser, ``(S, n, D)``."""
    reviser = policy.reviser(length)
    x = reviser.embed(RoutingNodes(seen))
    for layer in reviser.encoder:
        x = layer(x, (policy.config.width // policy.config.heads) ** -0.5)
    return x


def _ordered(points: Tensor, order: Tensor) -> Tensor:
    return points.gather(1, order[..., None].expand(-1, -1, 2))


def _check_rounds(fixture: Fixture, policy: Glop, checks: Checks) -> None:
    """Compare one revision with and without flips, five iterations, and a reviser that covers the whole instance."""
    for name in fixture.groups(r"decomp\.revised_(?:no)?aug"):
        segments = fixture.expected("decomp.segments")
        order = new_orders(policy.reviser(segments.shape[1]), segments, augment=name.endswith("_aug"))
        checks.close(name, _ordered(segments, order), fixture.expected(name))
    for name in fixture.groups("round0|full"):
        points = fixture.input("coords" if name == "round0" else "full.coords")
        length, count = points.shape[1], FULL_ROUNDS
        if name == "round0":
            length, count = fixture.fact("revision_lens")[0], fixture.fact("revision_iters")[0]
        tours = Tours(torch.arange(points.shape[1]).expand(len(points), -1), points)
        found = revise(policy.reviser(length), length, count, tours)
        checks.close(f"{name}.tours", found.points, fixture.wanted(f"{name}.tours"))


def _check_solve(
    fixture: Fixture, policy: Glop, checks: Checks, name: str, settings: dict[str, int | bool]
) -> None:
    """Compare insertion, the final tours and their lengths of a complete solve."""
    coords, orders = fixture.input("coords"), fixture.input(f"{name}.orders")
    initial = torch.stack([insert_tsp(coords, order) for order in orders])
    checks.same(f"{name}.insertion_tours", initial, fixture.wanted(f"{name}.insertion_tours"))
    for width, tours in enumerate(initial):
        costs = Tours(tours, _ordered(coords, tours)).lengths()
        checks.close(f"{name}.insertion_costs.{width}", costs, fixture.row(f"{name}.insertion_costs", width))
    rounds = tuple(zip(fixture.fact("revision_lens"), fixture.fact("revision_iters"), strict=True))
    revision = Revision(rounds, **settings)  # type: ignore[arg-type]
    found = solve_tsp({n: policy.reviser(n) for n, _ in rounds}, coords, initial, revision)
    checks.close(f"{name}.final_coords", found.points, fixture.wanted(f"{name}.final_coords"))
    checks.close(f"{name}.final_costs", found.lengths(), fixture.wanted(f"{name}.final_costs"))
    again = Tours(found.nodes, _ordered(coords, found.nodes)).lengths()
    checks.close(f"{name}.costs_of_nodes", again, fixture.wanted(f"{name}.final_costs"))


def _check_training(fixture: Fixture, policy: Glop, checks: Checks, length: int) -> None:
    """Compare a REINFORCE step on greedy paths with batch statistics."""
    name, reviser = f"rev{length}", policy.reviser(length)
    if not fixture.wants(f"{name}.node_embeddings_train", *(f"{name}.train_{key}" for key in TRAINED)):
        return
    seen = transformed(fixture.input(f"{name}.segments"))
    policy.zero_grad()
    reviser.train()
    embedded = _embedded(policy, length, seen)
    expected = fixture.wanted(f"{name}.node_embeddings_train")
    checks.close(f"{name}.node_embeddings_train", embedded, expected)
    logits: list[Tensor] = []
    paths = both_ways(reviser, seen, greedy_choice, logits)
    reviser.eval()
    free = torch.stack(logits, dim=2).log_softmax(dim=3)
    raw = torch.stack([paths[:, 0], paths[:, 1].flip(1)], dim=1)[:, :, 1:-1]
    chosen = free.gather(3, raw[..., None]).sum(dim=(2, 3))  # (S, 2)
    costs = torch.stack([open_lengths(_ordered(seen, paths[:, side])) for side in (0, 1)], dim=1)
    for side, way in enumerate(("forward", "backward")):
        checks.close(f"{name}.train_cost_{way}", costs[:, side], fixture.wanted(f"{name}.train_cost_{way}"))
    loss = ((costs - costs.mean(dim=1, keepdim=True)) * chosen).mean(dim=0).sum()
    checks.close(f"{name}.train_loss", loss, fixture.wanted(f"{name}.train_loss"))
    loss.backward()
    _compare_norms(fixture, policy, checks, f"{name}.train", f"reviser{length}.")


def _compare_norms(fixture: Fixture, policy: Glop, checks: Checks, name: str, prefix: str) -> None:
    if not fixture.wants(f"{name}_grad_norms"):
        return
    order = [prefix + key for key in fixture.fact("grad_norm_keys")]
    tensors = {**fixture.tensors, f"expected.{name}.grad_norms": fixture.expected(f"{name}_grad_norms")}
    renamed = replace(fixture, meta={**fixture.meta, "grad_norm_order": order}, tensors=tensors)
    compare_gradients(renamed, policy, from_official, checks, name)


def _check_routes(fixture: Fixture, policy: Glop, checks: Checks) -> None:
    """Compare features, the network, its heatmap, greedy routes, and the tours of every route."""
    demand, capacity = fixture.input("demand").long(), int(fixture.option("capacity"))
    library = bool(fixture.config.get("cvrplib_features", False))
    lengths, costs = [], []
    for i, coords in enumerate(fixture.input("coords")):
        count = len(coords)
        given = fixture.input("edge_index")[i, 1].view(count, -1)
        k = given.shape[1]
        own = partition_graph(coords, demand[i], capacity, k, library=library)
        # All but the depot's neighbours, which are an accident of the search.
        checks.same(f"inst{i}.neighbours", own.neighbours[1:].sort(1).values, given[1:].sort(1).values)
        graph = partition_graph(coords, demand[i], capacity, k, given, library=library)
        checks.close(f"inst{i}.node_features", graph.nodes, fixture.row("node_features", i))
        checks.close(f"inst{i}.edge_features", graph.edges.flatten(0, 1), fixture.row("edge_features", i))
        output = policy.partition(graph.nodes, graph.edges, graph.neighbours)
        checks.close(f"inst{i}.net_out", output.flatten(), fixture.row("net_out", i))
        weights = affinities(output)
        checks.close(f"inst{i}.heatmap", _dense(weights, given), fixture.row("heatmap", i))
        tour = giant_tours(weights, given, demand[i], capacity, likeliest)[0]
        expected = fixture.row("greedy_routes", i)
        checks.same(f"inst{i}.greedy_routes", tour, None if expected is None else expected[expected >= 0])
        lengths.append(len(routes_of(tour)))
        costs.append(_check_sub_tours(fixture, policy, checks, i, coords, tour))
    checks.same("n_routes", torch.tensor(lengths), fixture.wanted("n_routes"))
    checks.close("total_cost", torch.stack(costs), fixture.wanted("total_cost"))


def _dense(weights: Tensor, neighbours: Tensor) -> Tensor:
    """Write the heatmap out, ``(N, N)``."""
    dense = weights.new_full((len(weights), len(weights)), SMALLEST)
    return dense.scatter(1, neighbours, weights)


def _check_sub_tours(
    fixture: Fixture, policy: Glop, checks: Checks, i: int, coords: Tensor, tour: Tensor
) -> Tensor:
    """Compare the sub-problems, their insertion tours and what revision makes of them; return the total length."""
    points = coords[padded_routes(routes_of(tour))]
    checks.close(f"inst{i}.sub_tsps", points, fixture.wanted(f"inst{i}.sub_tsps"))
    initial = insert_tsp(points, torch.arange(points.shape[1]))
    checks.same(f"inst{i}.sub_insertion", initial, fixture.wanted(f"inst{i}.sub_insertion"))
    settings = fixture.option("reviser")
    length = settings["length"]
    revision = Revision(((length, settings["iters"]),))
    found = solve_tsp({length: policy.reviser(length)}, points, initial[None], revision)
    checks.close(f"inst{i}.sub_revised", found.points, fixture.wanted(f"inst{i}.sub_revised"))
    checks.close(f"inst{i}.sub_costs", found.lengths(), fixture.wanted(f"inst{i}.sub_costs"))
    return found.lengths().sum()


def _check_partition_training(fixture: Fixture, policy: Glop, checks: Checks) -> None:
    """Replay sampled partitions of the first instance, and take a REINFORCE step with batch statistics."""
    coords, demand = fixture.input("coords")[0], fixture.input("demand")[0].long()
    capacity, routes = int(fixture.option("capacity")), fixture.input("sample_routes")
    checks.same(
        "sample_mask_max_vehicle",
        torch.tensor(-(-int(demand.sum()) // capacity) + 1),
        fixture.wanted("sample_mask_max_vehicle"),
    )
    given = fixture.input("edge_index")[0, 1].view(len(coords), -1)
    library = bool(fixture.config.get("cvrplib_features", False))
    graph = partition_graph(coords, demand, capacity, given.shape[1], given, library=library)
    with torch.inference_mode():
        weights = affinities(policy.partition(graph.nodes, graph.edges, given))
        tours, log_probs = _replayed(weights, given, demand, capacity, routes)
    checks.same("sample_routes", tours, routes)
    checks.close("sample_log_probs", log_probs, fixture.wanted("sample_log_probs"))
    policy.zero_grad()
    policy.partition.train()
    weights = affinities(policy.partition(graph.nodes, graph.edges, given))
    policy.partition.eval()
    checks.close("train_heatmap", _dense(weights, given), fixture.wanted("train_heatmap"))
    _, log_probs = _replayed(weights, given, demand, capacity, routes)
    objective = fixture.input("train_objectives")
    loss = ((objective - objective.mean()) * log_probs.sum(dim=1)).sum() / len(objective)
    checks.close("train_loss", loss, fixture.wanted("train_loss"))
    loss.backward()
    _compare_norms(fixture, policy, checks, "train", "")


def _replayed(
    weights: Tensor, neighbours: Tensor, demand: Tensor, capacity: int, routes: Tensor
) -> tuple[Tensor, Tensor]:
    """Follow given partitions ``(P, T)``; our tours and the log-probabilities of their moves ``(P, T - 1)``."""
    found: list[Tensor] = []

    def follow(scores: Tensor, move: int) -> Tensor:
        node = routes[:, move + 1]
        found.append((scores.gather(1, node[:, None])[:, 0] / scores.sum(dim=1)).log())
        return node

    tours = giant_tours(weights, neighbours, demand, capacity, follow, len(routes))
    return F.pad(tours, (0, routes.shape[1] - tours.shape[1])), torch.stack(found, dim=1)
