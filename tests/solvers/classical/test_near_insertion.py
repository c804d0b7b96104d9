"""Insertion beside near nodes, and 2-opt/Or-opt within routes."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.problems import cvrp, tsp
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.classical import random_insertion, two_opt

POINTS = np.random.default_rng(5).random((2001, 2))
TOUR = TSPInstance("points", POINTS)
ROUTES = CVRPInstance("points", POINTS[0], POINTS[1:], np.random.default_rng(6).integers(1, 10, 2000), 250)


def inserted(instance: Any, near: int) -> Any:
    return random_insertion.solve(instance, 3, None, {"order": "", "near": near})


@pytest.mark.parametrize("near", [1, 5, 20])
@pytest.mark.parametrize("n", [4, 5, 9, 60, 2001])
def test_tours_are_permutations(n: int, near: int) -> None:
    instance = TSPInstance("some", POINTS[:n])
    assert tsp.violations(instance, inserted(instance, near)) == ()


def test_tours_beside_twenty_cities_are_about_as_short_as_those_beside_all() -> None:
    near, everywhere = (tsp.score(TOUR, inserted(TOUR, near)) for near in (20, 0))
    assert near == pytest.approx(everywhere, rel=0.02)


def test_points_in_one_corner_and_one_far_away_are_no_trouble() -> None:
    points = np.concatenate([np.full((300, 2), 0.25), POINTS[:50] * 1e-6, [[1e6, 1e6]]])
    instance = TSPInstance("corner", points)
    assert tsp.violations(instance, inserted(instance, 5)) == ()


@pytest.mark.parametrize("demand", [1, 125, 126, 250])
def test_routes_keep_the_capacity(demand: int) -> None:
    instance = CVRPInstance("same", POINTS[0], POINTS[1:200], np.full(199, demand), 250)
    assert cvrp.violations(instance, inserted(instance, 10)) == ()


def test_routes_beside_forty_customers_are_no_longer_than_a_tenth_more_than_the_packages() -> None:
    near, package = (cvrp.score(ROUTES, inserted(ROUTES, near)) for near in (40, 0))
    assert cvrp.violations(ROUTES, inserted(ROUTES, 40)) == ()
    assert near < 1.1 * package


def test_near_is_not_for_the_older_code() -> None:
    from nco_bench.solvers.protocol import SolverOptions
    from nco_bench.solvers.registry import choose, create

    with pytest.raises(BadInputError, match="order=sit"):
        create(choose("random-insertion:order=sit:near=5", SolverOptions()))


def test_small_routes_become_optimal_in_most_cases_and_never_longer() -> None:
    """Against all orders of each route's customers."""
    params = {"neighbors": 10, "longest": 0, "start": "nearest"}
    optimal = 0
    for k in range(20):
        points = np.random.default_rng(k).random((7, 2))
        instance = CVRPInstance("small", points[0], points[1:], np.ones(6), 6)
        before = np.array([0, *np.random.default_rng(k).permutation(6) + 1, 0])
        after = cvrp.score(instance, two_opt.improved(instance, before, params))
        best = min(cvrp.score(instance, np.array([0, *order, 0])) for order in permutations(range(1, 7)))
        assert best - 1e-9 <= after <= cvrp.score(instance, before) + 1e-9
        optimal += after == pytest.approx(best)
    assert optimal >= 15


def test_improving_routes_keeps_their_customers() -> None:
    before = inserted(ROUTES, 40)
    after = two_opt.improved(ROUTES, before, {"neighbors": 10, "longest": 0, "start": "nearest"})
    assert cvrp.violations(ROUTES, after) == ()
    assert [set(r.tolist()) for r in cvrp.routes(after)] == [set(r.tolist()) for r in cvrp.routes(before)]
    assert cvrp.score(ROUTES, after) < cvrp.score(ROUTES, before)


def test_short_moves_alone_lose_little() -> None:
    params = {"neighbors": 10, "longest": 0, "start": "nearest"}
    tour = inserted(TOUR, 20)
    free, held = (
        tsp.score(TOUR, two_opt.improved(TOUR, tour, {**params, "longest": longest})) for longest in (0, 200)
    )
    assert held == pytest.approx(free, rel=0.02)
    assert held < tsp.score(TOUR, tour)
