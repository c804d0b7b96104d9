"""Clarke and Wright's savings against the algorithm as it is published, and routes that are improved from them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nco_bench.problems import cvrp
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.solvers.classical import two_opt
from nco_bench.solvers.classical.nearest_neighbor import nearest_routes
from nco_bench.solvers.classical.savings import savings_routes
from nco_bench.solvers.small import all_points


def instance_of(customers: int, capacity: int, seed: int = 3) -> CVRPInstance:
    generator = np.random.default_rng(seed)
    points, demand = generator.random((customers + 1, 2)), generator.integers(1, 10, customers)
    return CVRPInstance("savings", points[0], points[1:], demand, capacity)


def savings(instance: CVRPInstance, **options: Any) -> NDArray[np.int64]:
    return savings_routes(all_points(instance), instance.demand, instance.capacity, **options)


def published(instance: CVRPInstance) -> list[list[int]]:
    """Clarke and Wright's parallel savings, pair by pair."""
    points = all_points(instance)
    length = np.linalg.norm(points[:, None] - points, axis=2)
    pairs = combinations(range(1, len(points)), 2)
    ordered = sorted(pairs, key=lambda pair: -(length[0, pair[0]] + length[0, pair[1]] - length[pair]))
    routes = [[k] for k in range(1, len(points))]
    demand = [0, *instance.demand.tolist()]
    for i, j in ordered:
        one, other = (next(r for r in routes if node in r) for node in (i, j))
        fits = sum(demand[node] for node in one + other) <= instance.capacity
        if one is other or not fits or i not in (one[0], one[-1]) or j not in (other[0], other[-1]):
            continue
        one = one if one[-1] == i else one[::-1]
        other = other if other[0] == j else other[::-1]
        routes = [r for r in routes if i not in r and j not in r] + [one + other]
    return routes


@pytest.mark.parametrize("seed", range(6))
def test_with_all_neighbours_it_is_the_published_algorithm(seed: int) -> None:
    instance = instance_of(60, 40, seed)
    found = savings(instance, near=59)
    assert cvrp.violations(instance, found) == ()
    expected = {min(tuple(r), tuple(r[::-1])) for r in published(instance)}
    assert {min(tuple(r.tolist()), tuple(r[::-1].tolist())) for r in cvrp.routes(found)} == expected


def test_few_neighbours_lose_little() -> None:
    instance = instance_of(400, 50)
    few, all_of_them = (savings(instance, near=near) for near in (20, 399))
    assert cvrp.violations(instance, few) == ()
    assert cvrp.score(instance, few) == pytest.approx(cvrp.score(instance, all_of_them), rel=0.02)


def test_points_that_coincide_are_all_visited() -> None:
    points = np.repeat(np.random.default_rng(0).random((4, 2)), 30, axis=0)
    instance = CVRPInstance("heaps", points[0], points[1:], np.ones(119, dtype=np.int64), 7)
    assert cvrp.violations(instance, savings(instance, near=5)) == ()


@pytest.mark.parametrize(
    ("customers", "capacity", "inserted_is_better"), [(200, 50, False), (2000, 1000, True)]
)
def test_improved_routes_are_the_shorter_of_two_starts(
    customers: int, capacity: int, inserted_is_better: bool
) -> None:
    instance = instance_of(customers, capacity)
    params = {"neighbors": 10, "longest": 0}
    solutions = [
        two_opt.solve(instance, 0, None, {**params, "start": start}) for start in ("nearest", "insertion")
    ]
    found, inserted = (cvrp.score(instance, one) for one in solutions if isinstance(one, np.ndarray))
    assert found < cvrp.score(instance, nearest_routes(instance))
    assert found == inserted if inserted_is_better else found < inserted
    assert found <= cvrp.score(instance, savings(instance))
