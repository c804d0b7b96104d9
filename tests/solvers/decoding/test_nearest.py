"""Nearest neighbour by trees: the routes of the plain search over all customers, ties included."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nco_bench.solvers.decoding.nearest import nearest_visits, nearest_visits_by_tree


def plain(points: NDArray[np.float64], demand: NDArray[np.int64], capacity: int) -> NDArray[np.int64]:
    return nearest_visits(demand, capacity, lambda node, left: ((points[left] - points[node]) ** 2).sum(1))


@pytest.mark.parametrize("side", [0, 4, 40, 1000], ids=["unit square", "4 x 4", "40 x 40", "1000 x 1000"])
@pytest.mark.parametrize("heaviest", [3, 10, 100])
def test_routes_by_tree_are_those_of_the_plain_search(side: int, heaviest: int) -> None:
    """On a small grid most distances are ties and most points are taken several times."""
    rng = np.random.default_rng(side + heaviest)
    for _ in range(25):
        n = int(rng.integers(1, 150))
        points = rng.integers(0, side, (n + 1, 2)).astype(float) if side else rng.random((n + 1, 2))
        demand = rng.integers(0, heaviest, n)
        capacity = int(max(demand.max(), rng.integers(1, 3 * heaviest)))
        found = nearest_visits_by_tree(points, demand, capacity)
        assert found.tolist() == plain(points, demand, capacity).tolist()


def test_routes_on_the_sphere_and_of_far_light_customers() -> None:
    """Points may have three coordinates; the only customers that fit may be the furthest."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((2000, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    demand = np.where(points[1:, 0] < points[0, 0] - 0.9, 1, 60)
    found = nearest_visits_by_tree(points, demand, 100)
    assert found.tolist() == plain(points, demand, 100).tolist()
