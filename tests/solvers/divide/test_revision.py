"""GLOP's revisions and partitions: never longer, never invalid, whatever the network says."""

from __future__ import annotations

import copy
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nco_bench.solvers.decoding.insertion import insert_tsp
from nco_bench.solvers.divide.glop import Glop, GlopConfig, build
from nco_bench.solvers.divide.glop_partition import affinities
from nco_bench.solvers.divide.glop_revision import (
    Revision,
    Tours,
    flipped,
    new_orders,
    revise,
    solve_tsp,
    transformed,
)
from nco_bench.solvers.divide.glop_routes import (
    drawn,
    giant_tours,
    joined,
    likeliest,
    padded_routes,
    partition_graph,
    routes_of,
)


@pytest.fixture(scope="module")
def glop() -> Glop:
    """Untrained networks, small ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return build(GlopConfig("cvrp", "8,5", 16, 2, 16, 2, units=8, depth=2)).eval()


def tours_of(coords: Tensor) -> Tours:
    return Tours(torch.arange(coords.shape[1]).expand(len(coords), -1), coords)


def exact_lengths(tours: Tours) -> Tensor:
    points = tours.points.double()
    return (points - points.roll(-1, 1)).norm(dim=2).sum(dim=1)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(8, 30),
    grid=st.sampled_from([0, 2, 5]),
    iterations=st.integers(1, 9),
    augment=st.booleans(),
    sample=st.booleans(),
)
def test_revision_permutes_and_never_lengthens(
    glop: Glop, seed: int, size: int, grid: int, iterations: int, augment: bool, sample: bool
) -> None:
    """On a grid of 2 x 2 or 5 x 5 points most nodes coincide with others."""
    coords = torch.rand(2, size, 2, generator=torch.Generator().manual_seed(seed))
    coords = (coords * grid).round() / grid if grid else coords
    before = tours_of(coords)
    with torch.inference_mode():
        after = revise(
            glop.reviser(8), 8, iterations, before, augment=augment, seeds=torch.arange(2) if sample else None
        )
    assert torch.equal(after.nodes.sort(dim=1).values, before.nodes)
    assert torch.equal(coords.gather(1, after.nodes[..., None].expand(-1, -1, 2)), after.points)
    assert bool((exact_lengths(after) <= exact_lengths(before) + 1e-5).all())


def test_a_segment_keeps_its_ends_and_a_crossing_is_undone(glop: Glop) -> None:
    # 0 - 2 - 1 - 3 on a line is longer than 0 - 1 - 2 - 3; with five nodes the network cannot miss all six orders
    # forward and backward, drawn again and again.
    x = torch.tensor([0.0, 0.5, 0.25, 0.75, 1.0])
    segment = torch.stack([x, torch.zeros_like(x)], dim=1)[None].expand(200, -1, -1)
    with torch.inference_mode():
        order = new_orders(glop.reviser(5), segment, augment=True, seeds=torch.arange(200))
    assert bool((order[:, 0] == 0).all())
    assert bool((order[:, -1] == 4).all())
    assert [0, 2, 1, 3, 4] in order.tolist()


def test_the_coordinate_transformation_by_hand() -> None:
    # Extents 2 and 4: exchanged, shifted, divided by 4.
    tall = torch.tensor([[[1.0, 1.0], [3.0, 5.0], [2.0, 3.0]]])
    assert transformed(tall).tolist() == [[[0.0, 0.0], [1.0, 0.5], [0.5, 0.25]]]
    wide = tall.flip(2)
    assert torch.equal(transformed(wide), transformed(tall))
    assert transformed(torch.full((1, 4, 2), 7.0)).tolist() == [[[0.0, 0.0]] * 4]


def test_flips_mirror_and_the_first_is_the_original() -> None:
    points = torch.tensor([[[0.25, 0.0]]])
    assert flipped(points)[:, 0].tolist() == [[0.25, 0], [0.75, 0], [0.25, 1], [0.75, 1]]


def solve(glop: Glop, coords: Tensor, revision: Revision, **options: object) -> Tours:
    generator = torch.Generator().manual_seed(1)
    orders = [
        torch.randperm(coords.shape[1], generator=generator)
        for _ in range(revision.insertions(coords.shape[1]))
    ]
    initial = torch.stack([insert_tsp(coords, order) for order in orders])
    with torch.inference_mode():
        return solve_tsp(
            {8: glop.reviser(8), 5: glop.reviser(5)},
            coords,
            initial,
            revision,
            **options,  # type: ignore[arg-type]
        )


@pytest.mark.parametrize(
    "revision",
    [
        Revision(((8, 3), (5, 2)), 3),
        Revision(((8, 3), (5, 2)), 3, augment=False, prune=False),
        Revision(((8, 3),), 8, augment=False, sample=True),
    ],
)
def test_an_instance_is_solved_alike_in_any_batch_and_not_worse_than_insertion(
    glop: Glop, revision: Revision
) -> None:
    # In float64, so that no choice hangs on the rounding of a matrix product, which depends on the batch.
    glop = copy.deepcopy(glop).double()
    coords = torch.rand(4, 21, 2, generator=torch.Generator().manual_seed(5)).double()
    seeds = torch.arange(4) + 70
    found = solve(glop, coords, revision, seeds=seeds)
    assert torch.equal(found.nodes.sort(dim=1).values, torch.arange(21).expand(4, -1))
    start = solve(glop, coords, Revision((), revision.width))
    real = tours_of(coords)
    for tours in (found, start):  # the points of flipped copies are flipped
        assert tours.points.shape == real.points.shape
    lengths = exact_lengths(found)
    assert bool((lengths <= exact_lengths(start) + 1e-5).all())
    alone = torch.cat(
        [exact_lengths(solve(glop, coords[i : i + 1], revision, seeds=seeds[i : i + 1])) for i in range(4)]
    )
    torch.testing.assert_close(alone, lengths, rtol=1e-6, atol=0)


def test_revisers_longer_than_the_tour_are_left_out_and_a_passed_deadline_leaves_insertion(
    glop: Glop,
) -> None:
    coords = torch.rand(2, 6, 2, generator=torch.Generator().manual_seed(5))
    revision = Revision(((8, 3),))
    assert torch.equal(solve(glop, coords, revision).nodes, solve(glop, coords, Revision(())).nodes)
    coords = torch.rand(2, 20, 2, generator=torch.Generator().manual_seed(5))
    late = solve(glop, coords, revision, deadline=time.perf_counter())
    assert torch.equal(late.nodes, solve(glop, coords, Revision(())).nodes)
    order = new_orders(glop.reviser(8), coords[:, :8], augment=True, deadline=time.perf_counter())
    assert torch.equal(order, torch.arange(8).expand(2, -1))


def test_widths_of_small_instances_are_flips() -> None:
    revision = Revision((), 12)
    assert [(revision.insertions(n), revision.flips(n)) for n in (100, 101)] == [(3, True), (12, False)]
    assert Revision((), 3).insertions(50) == 3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), customers=st.integers(1, 40), partitions=st.sampled_from([1, 3]))
def test_partitions_are_feasible_whatever_the_network_says(
    glop: Glop, seed: int, customers: int, partitions: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(customers + 1, 2, generator=generator)
    demand = torch.randint(0, 10, (customers + 1,), generator=generator).index_fill(0, torch.tensor([0]), 0)
    with torch.inference_mode():
        graph = partition_graph(coords, demand, 10, 7)
        weights = affinities(glop.partition(graph.nodes, graph.edges, graph.neighbours))
    pick = likeliest if partitions == 1 else drawn(seed, partitions)
    for tour in giant_tours(weights, graph.neighbours, demand, 10, pick, partitions):
        routes = routes_of(tour)
        assert sorted(torch.cat(routes).tolist()) == list(range(1, customers + 1))
        assert max(int(demand[route].sum()) for route in routes) <= 10
        sequence = joined(padded_routes(routes))
        assert sequence.tolist() == [0, *(v for route in routes for v in [*route.tolist(), 0])]


def test_the_depot_is_open_only_where_the_vehicles_left_can_carry_the_rest() -> None:
    """The heatmap wants to go home after every customer."""
    demand = torch.tensor([0, 2, 2, 2, 2])
    weights, neighbours = torch.full((5, 1), 9.0), torch.zeros(5, 1, dtype=torch.int64)
    # 8 units, capacity 4: 2 + 1 vehicles. At node 1 the first is on the road, 6 units are left and two vehicles with 8:
    # home it goes. On the second, 4 units are left for one vehicle: home again. Then the rest must fit one vehicle.
    (tour,) = giant_tours(weights, neighbours, demand, 4, likeliest)
    assert tour.tolist() == [0, 1, 0, 2, 0, 3, 4, 0]


def test_copies_of_the_depot_inside_a_sub_tour_split_it() -> None:
    tours = torch.tensor([[2, 0, 0, 1, 0, 3]])
    assert joined(tours).tolist() == [0, 1, 0, 3, 2, 0]


def test_neighbours_are_those_of_most_similar_direction() -> None:
    angle = torch.tensor([0.0, 0.1, 0.3, 2.0, 2.2])
    coords = torch.stack([angle.cos(), angle.sin()], dim=1) * torch.tensor([1.0, 0.2, 0.7, 0.4, 0.9])[:, None]
    graph = partition_graph(torch.cat([torch.zeros(1, 2), coords]), torch.arange(6), 5, 2)
    assert graph.neighbours[1:].tolist() == [[1, 2], [2, 1], [3, 2], [4, 5], [5, 4]]
    np.testing.assert_allclose(graph.nodes[2].tolist(), [2 / 5, 0.2, 0.1], rtol=1e-6)
