"""Moves on CVRP solutions, checked by what they must leave as it is and by small examples."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.solvers.path.problem import route_lengths
from nco_bench.solvers.path.reconstruction_cvrp import segment_follower, segment_layout
from nco_bench.solvers.path.route_moves import (
    load_before,
    reverse_all,
    reverse_routes,
    rotate_routes,
    route_ends,
    sort_by_angle,
)


def routes_of(solution: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    order = [node for route in solution for node in route]
    via = [i == 0 for route in solution for i in range(len(route))]
    return torch.tensor([order]), torch.tensor([via])


def as_lists(routes: tuple[torch.Tensor, torch.Tensor]) -> list[list[int]]:
    solution: list[list[int]] = []
    for node, via in zip(routes[0][0].tolist(), routes[1][0].tolist(), strict=True):
        solution = [*solution, [node]] if via else [*solution[:-1], [*solution[-1], node]]
    return solution


SOLUTION = [[4, 1], [2], [5, 3, 6]]


def test_moves_on_a_small_solution() -> None:
    routes = routes_of(SOLUTION)
    assert as_lists(reverse_all(routes)) == [[6, 3, 5], [2], [1, 4]]
    assert as_lists(reverse_routes(routes, torch.tensor([[True, True, False]]))) == [[1, 4], [2], [5, 3, 6]]
    assert as_lists(rotate_routes(routes, torch.tensor([1]))) == [[2], [5, 3, 6], [4, 1]]
    assert as_lists(rotate_routes(routes, torch.tensor([3]))) == SOLUTION
    assert route_ends(routes[1]).tolist() == [[1, 1, 2, 5, 5, 5]]
    demand = torch.tensor([[0, 10, 20, 30, 40, 50, 60]])
    assert load_before(routes, demand, torch.tensor([[0, 1, 2, 5]])).tolist() == [[0, 40, 0, 80]]


def test_route_ends_are_drawn_in_the_official_order() -> None:
    """The list of ends begins with the last route's end, whose follower is position 0."""
    via = routes_of(SOLUTION)[1]
    draws = [0.0, 0.4, 0.7, 0.999]
    assert [int(segment_follower(via, torch.tensor([p]))) for p in draws] == [0, 2, 3, 3]


def test_segments_are_laid_out_from_the_end() -> None:
    """12 customers in routes ending at 2, 5, 7, 11; segments of 3: 9-11, then ends before position 8."""
    via = torch.tensor([[1, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0]]).bool()
    starts, count = segment_layout(via, 3)
    # After 9-11 the largest end below 8 is 7 (5-7); the next below 4 is 2, whose start would be position 0.
    assert starts[0, : int(count)].tolist() == [9, 5]


def test_routes_are_sorted_counter_clockwise_from_the_first() -> None:
    """Depot in the middle; routes towards east, west, north and south, given as 2, 4, 3, 5."""
    points = [[0.5, 0.5], [0.9, 0.51], [0.9, 0.5], [0.1, 0.5], [0.5, 0.9], [0.5, 0.1]]
    routes = routes_of([[2], [4], [3], [5]])
    assert as_lists(sort_by_angle(torch.tensor([points]), routes)) == [[2], [4], [3], [5]]
    routes = routes_of([[2], [5], [3], [4]])
    assert as_lists(sort_by_angle(torch.tensor([points]), routes)) == [[2], [4], [3], [5]]


@st.composite
def solutions(draw: st.DrawFn) -> list[list[int]]:
    nodes = draw(st.permutations(range(1, draw(st.integers(2, 12)) + 1)))
    cuts = sorted(draw(st.sets(st.integers(1, len(nodes) - 1))))
    return [list(nodes[i:j]) for i, j in zip([0, *cuts], [*cuts, len(nodes)], strict=True)]


@settings(max_examples=60, deadline=None)
@given(solutions(), st.integers(0, 2**20), st.integers(1, 12))
def test_moves_keep_routes_and_cost(solution: list[list[int]], seed: int, shift: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(1, sum(map(len, solution)) + 1, 2, generator=generator)
    before = routes_of(solution)
    coins = torch.rand(1, before[0].shape[1], generator=generator) < 0.5
    after = rotate_routes(
        reverse_routes(reverse_all(sort_by_angle(coords, before)), coins), torch.tensor([shift])
    )
    assert {frozenset(route) for route in as_lists(after)} == {frozenset(route) for route in solution}
    torch.testing.assert_close(route_lengths(coords, *after), route_lengths(coords, *before))
    assert bool(after[1][0, 0])


@settings(max_examples=60, deadline=None)
@given(solutions(), st.integers(1, 12))
def test_segments_are_disjoint_and_end_with_routes(solution: list[list[int]], length: int) -> None:
    order, via = routes_of(solution)
    length = min(length, order.shape[1])
    starts, count = segment_layout(via, length)
    covered = [set(range(s, s + length)) for s in starts[0, : int(count)].tolist()]
    assert len(set().union(*covered)) == length * len(covered)
    assert set().union(*covered) <= set(range(order.shape[1]))
    ends = set(route_ends(via)[0].tolist())
    assert all(max(segment) in ends for segment in covered)
