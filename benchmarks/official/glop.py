"""GLOP against github.com/henry-yeh/GLOP: complete solves, insertion included; for the CVRP with its partition network."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.divide.glop_partition import affinities
from nco_bench.solvers.divide.glop_revision import Revision, solve_tsp
from nco_bench.solvers.divide.glop_routes import (
    giant_tours,
    likeliest,
    padded_routes,
    partition_graph,
    routes_of,
)
from nco_bench.solvers.divide.glop_solver import insertion_tours
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, separated
from official.instances import Instances, drawn
from official.stubs import without

COMMIT = "e540bc0153a0598e923e35116deeaecaf9c1cfff"
CASES = (
    Case("glop", "tsp", 100, "width=8", 2),
    Case("glop", "tsp", 500, "greedy", 1),
    Case("glop", "tsp", 1000, "greedy", 1),
    Case("glop", "cvrp", 1000, "greedy", 1),
)
REVISIONS = {
    ("tsp", 100): Revision(((100, 5), (50, 5), (20, 5), (10, 5)), width=8, augment=False, prune=False),
    ("tsp", 500): Revision(((100, 20), (50, 25), (20, 5))),
    ("tsp", 1000): Revision(((100, 20), (50, 25), (20, 5))),
    ("cvrp", 1000): Revision(((20, 5),)),
}
"""The README's settings, but for the number of initial tours (and, of TSP-100, of iterations and the drawing of nodes)."""
EDGES, UNITS, DEPTH = 100, 48, 12
"""Of the partition network for 1,000 customers."""


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("torch_geometric", "torch_geometric.data", Data=SimpleNamespace)
    without("torch_geometric.nn", BatchNorm=Normalised, global_mean_pool=pooled)
    first_on_path([checkout])
    revision = REVISIONS[case.problem, case.size]
    lengths = [length for length, _ in revision.rounds]
    revisers = {length: reviser(seed) for seed, length in enumerate(lengths)}
    some = drawn(case.problem, case.size, case.batch)
    state = {
        f"reviser{n}.{key}": value for n, one in revisers.items() for key, value in one.state_dict().items()
    }
    if case.problem == "tsp":
        ours: Any = build_path_policy("glop", "tsp", lengths=",".join(map(str, lengths)))
        load_official(ours, "glop", state)
        known = {length: ours.reviser(length) for length in lengths}
        theirs = their_tours(list(revisers.values()), some, revision)
        return Pair([theirs], our_tours(known, some, revision), also_unsorted(revisers, known))
    partition = separated(
        importlib.import_module("nets.partition_net").Net(UNITS, 3, EDGES, 2, depth=DEPTH), 1.0
    )
    ours = build_path_policy("glop", "cvrp", lengths=",".join(map(str, lengths)))
    load_official(ours, "glop", state | partition.state_dict())
    known = {length: ours.reviser(length) for length in lengths}
    return Pair(
        [their_routes(partition, list(revisers.values()), some, revision)],
        our_routes(ours, known, some, revision),
        also_unsorted(revisers, known),
    )


class Normalised(nn.Module):
    """What PyTorch Geometric's layer of this name is."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.module = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.module(x)


def pooled(x: Tensor, index: Tensor) -> Tensor:
    """Means of rows by group, as PyTorch Geometric takes them: a sum by group over a count by group."""
    groups = int(index.max()) + 1
    count = x.new_zeros(groups).index_add_(0, index, x.new_ones(len(index)))
    return x.new_zeros(groups, x.shape[1]).index_add_(0, index, x) / count.clamp(min=1)[:, None]


def reviser(seed: int) -> Any:
    """Build an official reviser with fresh weights."""
    local = importlib.import_module("problems").LOCAL
    torch.manual_seed(seed)
    model = importlib.import_module("nets.attention_local").AttentionModel(128, 128, local, n_encode_layers=6)
    separated(model, 1.0, seed)
    model.set_decode_type("greedy")
    return model


def options_of(revision: Revision, size: int, batch: int) -> Any:
    """Return the command line of the official evaluation."""
    return SimpleNamespace(
        revision_lens=[length for length, _ in revision.rounds],
        revision_iters=[count for _, count in revision.rounds],
        no_aug=not revision.augment, no_prune=not revision.prune, eval_batch_size=batch,
        problem_size=size,
    )  # fmt: skip


def orders_of(revision: Revision, size: int) -> list[Tensor]:
    """Return orders of insertion, the same for both sides and all instances, as the official code draws them."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randperm(size, generator=generator) for _ in range(revision.insertions(size))]


def reconnected(revisers: list[Any], revision: Revision, seed: Tensor, batch: int) -> Tensor:
    """Revise tours ``(W B, N, 2)`` with the official code."""
    functions = importlib.import_module("utils.functions")
    problem = functions.load_problem("tsp")

    def costs(points: Tensor, order: Tensor) -> Tensor:
        found: Tensor = problem.get_costs(points, order, return_local=True)
        return found

    options = options_of(revision, seed.shape[1], batch)
    found: Tensor = functions.reconnect(costs, seed, options, revisers)[0]
    return found


def their_tours(revisers: list[Any], some: Instances, revision: Revision) -> Side:
    """Solve as `_eval_dataset` of the official `main.py` does."""
    insert = importlib.import_module("utils.insertion").random_insertion_parallel
    batch, size, _ = some.coords.shape

    def solve() -> Tensor:
        with torch.no_grad():
            tours = [
                torch.from_numpy(insert(some.coords, order).astype("int64"))
                for order in orders_of(revision, size)
            ]
            points = some.coords.repeat(len(tours), 1, 1)
            seed = points.gather(1, torch.cat(tours)[..., None].expand(-1, -1, 2))
            if revision.flips(size):
                x, y = seed[:, :, [0]], seed[:, :, [1]]
                pairs = ((x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y))
                seed = torch.cat([torch.cat(one, dim=2) for one in pairs])
            return reconnected(revisers, revision, seed, batch)

    return solve


def our_tours(revisers: dict[int, Any], some: Instances, revision: Revision) -> Side:
    """Solve as our solver does, with the given orders of insertion."""
    size = some.coords.shape[1]

    def solve() -> Tensor:
        with torch.inference_mode():
            scaled = some.coords.numpy()
            orders = orders_of(revision, size)
            initial = torch.stack(
                [torch.from_numpy(insertion_tours(scaled, order.numpy())) for order in orders]
            )
            return solve_tsp(revisers, some.coords, initial, revision).points

    return solve


def their_routes(partition: Any, revisers: list[Any], some: Instances, revision: Revision) -> Side:
    """Partition and improve as the official evaluation does."""
    insert = importlib.import_module("utils.insertion").random_insertion_parallel
    infer = importlib.import_module("heatmap.cvrp.infer").infer
    sampler = importlib.import_module("heatmap.cvrp.sampler").Sampler
    cut = importlib.import_module("heatmap.cvrp.inst").trans_tsp
    assert some.demand is not None
    assert some.capacity is not None
    coords, demand, capacity = some.coords[0], some.demand[0], int(some.capacity[0])

    def solve() -> Tensor:
        with torch.no_grad():
            heatmap = infer(partition, coords, demand, capacity, EDGES)
            routes = sampler(demand, heatmap, capacity, 1, "cpu").gen_subsets(greedy_mode=True)
            points, _ = cut(coords, routes)
            order = torch.from_numpy(insert(points, torch.arange(points.shape[1])).astype("int64"))
            seed = points.gather(1, order[..., None].expand(-1, -1, 2))
            return reconnected(revisers, revision, seed, len(seed))

    return solve


def our_routes(policy: Any, revisers: dict[int, Any], some: Instances, revision: Revision) -> Side:
    """Partition and improve as our solver does."""
    assert some.demand is not None
    assert some.capacity is not None
    coords, demand, capacity = some.coords[0], some.demand[0], int(some.capacity[0])

    def solve() -> Tensor:
        with torch.inference_mode():
            graph = partition_graph(coords, demand, capacity, EDGES)
            weights = affinities(policy.partition(graph.nodes, graph.edges, graph.neighbours))
            (giant,) = giant_tours(weights, graph.neighbours, demand, capacity, likeliest)
            points = coords[padded_routes(routes_of(giant))]
            order = torch.arange(points.shape[1]).numpy()
            initial = torch.from_numpy(insertion_tours(points.numpy(), order))
            return solve_tsp(revisers, points, initial[None], revision).points

    return solve


def also_unsorted(official: dict[int, Any], ours: dict[int, Any]) -> Callable[[Tensor, Tensor], float]:
    """Compare results, and what revisers make of tours in random order: fresh ones never improve an insertion tour."""
    revision = Revision(tuple((length, 1) for length in official))
    some = drawn("tsp", 200, 4)

    def same(theirs: Tensor, found: Tensor) -> float:
        with torch.inference_mode():
            order = torch.arange(200).expand(1, 4, -1)
            one = reconnected(list(official.values()), revision, some.coords, 4)
            other = solve_tsp(ours, some.coords, order, revision).points
        return min(same_points(theirs, found), same_points(one, other))

    return same


def same_points(theirs: Tensor, ours: Tensor) -> float:
    """Return the share of tours that visit the same points in the same order."""
    if theirs.shape != ours.shape:
        return 0.0
    return float((theirs - ours).abs().flatten(1).amax(1).lt(1e-5).float().mean())
