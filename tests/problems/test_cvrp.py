"""The CVRP referee: each way to be infeasible, costs by hand, bad instances."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance, routes, score, violations

# Depot in the middle of a plus sign with arms of length 3, 4, 3, 4.
PLUS = np.array([[3.0, 0.0], [0.0, 4.0], [-3.0, 0.0], [0.0, -4.0]])


def plus(**changes) -> CVRPInstance:
    given_values = {
        "name": "plus", "depot": np.zeros(2), "customers": PLUS, "demand": np.array([4, 6, 5, 5]), "capacity": 10,
    }  # fmt: skip
    return CVRPInstance(**{**given_values, **changes})


def test_routes_are_scored_from_and_to_the_depot():
    # 3 + 5 + 4 = 12 for each of the two routes.
    assert score(plus(), np.array([0, 1, 2, 0, 3, 4, 0])) == 24.0
    # Out and back to each customer: 2 (3 + 4 + 3 + 4).
    assert score(plus(), np.array([0, 1, 0, 2, 0, 3, 0, 4, 0])) == 28.0


def test_rounding_applies_to_each_edge():
    # Depot (0, 0), customers at (1, 1) and (2, 2): edges 1.41, 1.41 and 2.83 are rounded to 1, 1 and 3.
    instance = CVRPInstance(
        "diagonal", np.zeros(2), np.array([[1, 1], [2, 2]]), np.array([1, 1]), 2, convention="cvrplib-nint"
    )
    assert score(instance, np.array([0, 1, 2, 0])) == 5


def test_matrix_instance_is_scored_from_its_matrix_also_asymmetrically():
    matrix = np.array([[0, 1, 2], [10, 0, 3], [20, 30, 0]])
    instance = CVRPInstance("matrix", None, None, np.array([1, 1]), 2, "explicit", matrix)
    assert score(instance, np.array([0, 1, 2, 0])) == 1 + 3 + 20


def test_exact_capacity_passes_and_one_unit_over_fails_with_route_and_load():
    solution = np.array([0, 1, 2, 0, 3, 4, 0])
    assert violations(plus(), solution) == ()
    assert violations(plus(demand=np.array([4, 6, 5, 6])), solution) == (
        "route 2 carries 11, the capacity is 10",
    )


def test_rounding_of_real_demands_is_forgiven_and_a_real_excess_is_not():
    # 0.1 + 0.2 is 0.30000000000000004 in float64.
    instance = CVRPInstance("real", np.zeros(2), PLUS[:2], np.array([0.1, 0.2]), 0.3)
    assert violations(instance, np.array([0, 1, 2, 0])) == ()
    heavier = CVRPInstance("real", np.zeros(2), PLUS[:2], np.array([0.1, 0.2 + 1e-8]), 0.3)
    assert "route 1 carries" in violations(heavier, np.array([0, 1, 2, 0]))[0]


def test_large_integer_loads_are_compared_exactly():
    # 10^9 + 1 over 10^9 is within 1e-9 relative: integers get no tolerance.
    demand = np.array([5 * 10**8, 5 * 10**8 + 1])
    instance = CVRPInstance("large", np.zeros(2), PLUS[:2], demand, 10**9)
    assert violations(instance, np.array([0, 1, 2, 0])) == (
        "route 1 carries 1000000001, the capacity is 1e+09",
    )


def test_empty_routes_are_tolerated_free_of_charge_and_not_counted():
    padded = np.array([0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0])
    assert violations(plus(), padded) == ()
    assert score(plus(), padded) == 24.0
    assert "route 2 carries 11" in violations(plus(demand=np.array([4, 6, 5, 6])), padded)[0]
    assert [r.tolist() for r in routes(padded)] == [[1, 2], [3, 4]]


def test_empty_routes_are_free_also_where_a_node_is_not_at_distance_0_from_itself():
    # GEO puts every node 1 km from itself.
    instance = plus(convention="geo")
    assert score(instance, np.array([0, 1, 2, 0, 0, 3, 4, 0])) == score(
        instance, np.array([0, 1, 2, 0, 3, 4, 0])
    )


@pytest.mark.parametrize(
    ("solution", "message"),
    [
        ([1, 2, 0, 3, 4, 0], "starts and ends at the depot"),
        ([0, 1, 2, 0, 3, 4], "starts and ends at the depot"),
        ([0], "starts and ends at the depot"),
        ([0, 1, 2, 0, 3, 0], "customer 4 is never visited"),
        ([0, 0], r"customer 1 \(and 3 others\) is never visited"),
        ([0, 1, 2, 0, 3, 4, 0, 4, 0], "customer 4 is visited 2 times"),
        ([0, 1, 2, 0, 3, 3, 0], "customer 3 is visited 2 times, customer 4 is never visited"),
        ([0, 1, 2, 0, 3, 5, 0], r"node 5 is outside 0\.\.4"),
        ([0, 1, 2, 0, 3, -4, 0], r"node -4 is outside 0\.\.4"),
        ([0.0, 1.0, 2.0, 0.0, 3.0, 4.0, 0.0], "flat array of integers"),
        ([[0, 1, 2, 0], [0, 3, 4, 0]], "flat array of integers"),
        ([], "the solution is empty"),
        ([0, 1, 2, 3, 0, 4, 0], "route 1 carries 15, the capacity is 10"),
    ],
)
def test_each_way_to_be_infeasible_is_named(solution, message):
    found = violations(plus(), np.array(solution))
    assert any(re.search(message, line) for line in found), found


def test_long_lists_of_overloaded_routes_are_cut_short():
    n = 40
    instance = CVRPInstance("many", np.zeros(2), np.ones((n, 2)), np.full(n, 6), 10)
    pairs = np.arange(1, n + 1).reshape(-1, 2)
    solution = np.append(np.hstack([np.zeros((n // 2, 1), dtype=int), pairs]).ravel(), 0)
    found = violations(instance, solution)
    assert found[0] == "route 1 carries 12, the capacity is 10"
    assert found[-1] == "and 15 more routes likewise"


def test_route_length_is_limited_unrounded_whatever_the_convention():
    solution = np.array([0, 1, 2, 0, 3, 4, 0])
    for convention in ("euclidean", "cvrplib-nint"):
        assert violations(plus(max_route_length=12.0, convention=convention), solution) == ()
        found = violations(plus(max_route_length=11.999, convention=convention), solution)
        assert found == (
            "route 1 is 12.000000 long, the limit is 11.999",
            "route 2 is 12.000000 long, the limit is 11.999",
        )


def test_rounding_of_edges_moves_no_route_across_its_limit():
    # To (2, 2) and back over (1, 1): sqrt(32) = 5.657 long; edges round to 1 + 1 + 3 = 5, and up to 2 + 2 + 3 = 7.
    diagonal = {"depot": np.zeros(2), "customers": np.array([[1, 1], [2, 2]]), "demand": np.array([1, 1])}
    for convention, limit, fits in (("cvrplib-nint", 5.5, False), ("ceil", 6.0, True)):
        instance = plus(**diagonal, convention=convention, max_route_length=limit)
        assert (violations(instance, np.array([0, 1, 2, 0])) == ()) == fits


def test_rounding_of_route_lengths_is_forgiven_and_a_real_excess_is_not():
    solution = np.array([0, 1, 2, 0, 3, 4, 0])
    assert violations(plus(max_route_length=12.0 * (1 - 5e-10)), solution) == ()
    assert len(violations(plus(max_route_length=12.0 * (1 - 1e-8)), solution)) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"demand": np.array([4, 11, 5, 5])}, "demand of customer 2 is 11, above the capacity 10"),
        ({"demand": np.array([4, 6, -5, 5])}, "demand of customer 3 is -5"),
        ({"demand": np.array([4, 6, np.nan, 5])}, "demand of customer 3 is nan"),
        ({"demand": np.array([np.inf, 6, 1, 5])}, "demand of customer 1 is inf"),
        (
            {"demand": np.array([2**62, 2**62, 1, 1]), "capacity": 2**62},
            "add up to more than 9,007,199,254,740,992",
        ),
        ({"demand": np.array([4, 6, 5])}, "3 demands"),
        ({"demand": np.array([], dtype=int), "customers": np.zeros((0, 2))}, "at least 1 customer"),
        ({"demand": np.array(["4", "6", "5", "5"])}, "flat array of numbers"),
        ({"capacity": 0}, "capacity is 0; expected a positive number"),
        ({"capacity": float("nan")}, "capacity is nan"),
        ({"depot": np.array([np.nan, 0])}, "coordinates of the depot are not finite"),
        ({"depot": np.array([1e200, 0])}, r"coordinates of the depot are beyond 1e\+150, where lengths"),
        ({"depot": None}, "both the depot and the customers"),
        ({"depot": None, "customers": None}, "needs coordinates"),
        ({"customers": np.vstack([PLUS[:3], [[0, np.inf]]])}, "coordinates of customer 4 are not finite"),
        ({"convention": "explicit"}, "needs a distance matrix"),
        ({"convention": "explicit", "matrix": np.zeros((4, 4))}, r"expected \(5, 5\), depot first"),
        ({"convention": "explicit", "matrix": np.full((5, 5), np.nan)}, "from node 0 to node 0"),
        ({"convention": "explicit", "matrix": np.eye(5) - 1}, "from node 0 to node 1 is negative; expected"),
        ({"max_route_length": -1.0}, "limit of route lengths is -1.0"),
    ],
)
def test_bad_instance_is_refused_in_one_line(changes, message):
    with pytest.raises(BadInputError, match=message) as error:
        plus(**changes)
    assert "\n" not in str(error.value)


@settings(deadline=None)
@given(
    demand=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    capacity=st.integers(9, 40),
    data=st.data(),
)
def test_referee_agrees_with_a_plain_walk_along_the_routes(demand, capacity, data):
    n = len(demand)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    instance = CVRPInstance("walk", rng.random(2), rng.random((n, 2)), np.array(demand), capacity)
    order = data.draw(st.permutations(range(1, n + 1)))
    breaks = data.draw(st.sets(st.integers(1, n)))
    sequence = [0]
    for i, customer in enumerate(order):
        if i in breaks:
            sequence.append(0)
        sequence.append(customer)
    sequence.append(0)

    load, cost, fits, at = 0, 0.0, True, instance.depot
    for node in sequence[1:]:
        there = instance.depot if node == 0 else instance.customers[node - 1]
        cost += float(np.hypot(*(there - at)))
        load = 0 if node == 0 else load + demand[node - 1]
        fits = fits and load <= capacity
        at = there
    assert (violations(instance, np.array(sequence)) == ()) == fits
    assert score(instance, np.array(sequence)) == pytest.approx(cost, rel=1e-12, abs=1e-12)
