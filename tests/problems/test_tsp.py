"""The TSP referee: each way to be infeasible, costs by hand, bad instances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.tsp import TSPInstance, score, score_batch, violations

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])


def square(**changes) -> TSPInstance:
    return TSPInstance(**{"name": "square", "coords": SQUARE, **changes})


def test_tour_around_the_unit_square_costs_4_and_the_crossing_one_more():
    assert score(square(), np.array([0, 1, 2, 3])) == 4.0
    # Two sides and two diagonals.
    assert score(square(), np.array([0, 2, 1, 3])) == pytest.approx(2 + 2 * 2**0.5, abs=1e-15)


def test_rounding_applies_to_each_edge_and_not_to_the_sum():
    # Diagonals of 1.414 are rounded to 1 each: 4, where the rounded sum would be 5.
    assert score(square(convention="tsplib-nint"), np.array([0, 2, 1, 3])) == 4


def test_two_nodes_are_visited_there_and_back():
    pair = TSPInstance("pair", np.array([[0.0, 0.0], [3.0, 4.0]]))
    assert violations(pair, np.array([1, 0])) == ()
    assert score(pair, np.array([1, 0])) == 10.0


def test_all_points_equal_costs_nothing():
    same = TSPInstance("same", np.full((5, 2), 0.3))
    assert score(same, np.array([4, 2, 0, 1, 3])) == 0.0


def test_matrix_instance_is_scored_from_its_matrix():
    matrix = np.array([[0, 2, 9], [2, 0, 4], [9, 4, 0]])
    instance = TSPInstance("matrix", None, "explicit", matrix)
    assert score(instance, np.array([2, 0, 1])) == 15.0


def test_integer_coordinates_are_scored_in_float64():
    # The square of 100,000 overflows int32.
    instance = TSPInstance("int", np.array([[0, 0], [100_000, 0], [100_000, 100_000]], dtype=np.int32))
    assert score(instance, np.array([0, 1, 2])) == pytest.approx(200_000 + 100_000 * 2**0.5, rel=1e-15)


@pytest.mark.parametrize(
    ("tour", "message"),
    [
        ([0, 1, 2], "3 visits for 4 nodes"),
        ([0, 1, 2, 3, 0], "5 visits for 4 nodes"),
        ([0, 1, 2, 2], "node 2 is visited 2 times, node 3 never"),
        ([0, 1, 2, 4], "node 4 is outside 0..3"),
        ([0, 1, 2, -1], "node -1 is outside 0..3"),
        ([[0, 1], [2, 3]], "flat array of integers"),
        ([0.0, 1.0, 2.0, 3.0], "flat array of integers"),
        ([True, False, True, False], "flat array of integers"),
        ([], "flat array of integers"),
    ],
)
def test_each_way_to_be_no_tour_is_named(tour, message):
    (found,) = violations(square(), np.array(tour))
    assert message in found


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_tours_of_every_integer_type_are_judged(dtype):
    assert violations(square(), np.array([2, 3, 0, 1], dtype=dtype)) == ()


def test_fixed_edge_must_be_in_the_tour_also_across_its_end():
    instance = square(fixed_edges=((0, 3),))
    assert violations(instance, np.array([0, 1, 2, 3])) == ()
    assert violations(instance, np.array([3, 2, 1, 0])) == ()  # the other way round
    assert violations(instance, np.array([3, 2, 0, 1])) == ("the fixed edge 0-3 is not in the tour",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coords": np.zeros((1, 2))}, "at least 2 nodes, this one has 1"),
        ({"coords": np.array([[0, 0], [np.nan, 1]])}, "coordinates of node 1 are not finite"),
        ({"coords": np.array([[0, np.inf], [0, 1]])}, "coordinates of node 0 are not finite"),
        ({"coords": np.array([[0, 1], [0, -1e160]])}, r"coordinates of node 1 are beyond 1e\+150, where"),
        ({"coords": np.zeros((3, 3))}, r"expected \(N, 2\)"),
        ({"coords": None}, "needs coordinates"),
        ({"convention": "explicit"}, "needs a distance matrix"),
        ({"coords": None, "convention": "explicit", "matrix": np.zeros((3, 2))}, r"expected \(N, N\)"),
        ({"convention": "explicit", "matrix": np.zeros((3, 3))}, "4 coordinates for a matrix of 3 nodes"),
        ({"coords": None, "convention": "explicit", "matrix": np.diag([0, np.nan])}, "from node 1 to node 1"),
        # two-opt never ended on the first, and Concorde called a tour of the second optimal that was not.
        ({"coords": None, "convention": "explicit", "matrix": np.eye(3) - 1}, "node 0 to node 1 is negative"),
        (
            {"coords": None, "convention": "explicit", "matrix": np.tri(3)},
            "node 0 to node 1 is 0, and 1 the other",
        ),
    ],
)
def test_bad_instance_is_refused_in_one_line(changes, message):
    with pytest.raises(BadInputError, match=message) as error:
        square(**changes)
    assert "\n" not in str(error.value)


def test_unknown_convention_is_refused():
    with pytest.raises(UnknownNameError, match="distance convention 'nint'"):
        square(convention="nint")


@settings(deadline=None)
@given(st.integers(2, 40), st.randoms(use_true_random=False))
def test_every_permutation_is_a_tour_and_one_changed_visit_is_none(n, random):
    instance = TSPInstance("any", np.zeros((n, 2)))
    tour = list(range(n))
    random.shuffle(tour)
    assert violations(instance, np.array(tour)) == ()
    position = random.randrange(n)
    tour[position] = (tour[position] + 1 + random.randrange(n - 1)) % n
    assert violations(instance, np.array(tour)) != ()


def test_a_fixed_edge_must_be_there_and_is_not_counted() -> None:
    # A 3-4-5 rectangle: the tour around it is 14 long, its fixed edge (0, 1) is 4 of that.
    coords = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0], [0.0, 3.0]])
    instance = TSPInstance("path", coords, fixed_edges=((0, 1),))
    assert score(instance, np.array([0, 1, 2, 3])) == pytest.approx(10.0)
    assert violations(instance, np.array([0, 2, 1, 3])) == ("the fixed edge 0-1 is not in the tour",)


@pytest.mark.parametrize("convention", ["euclidean", "tsplib-nint", "ceil", "att", "geo"])
def test_a_batch_costs_what_its_tours_cost_alone(convention: str) -> None:
    rng = np.random.default_rng(3)
    instances = [TSPInstance(str(k), rng.random((40, 2)) * 90, convention) for k in range(5)]
    tours = [
        rng.permutation(40).astype(dtype) for dtype in (np.int64, np.int32, np.int64, np.uint16, np.int8)
    ]
    costs = score_batch(instances, tours)
    assert costs is not None
    assert costs.tolist() == [score(i, t) for i, t in zip(instances, tours, strict=True)]
    unsigned = score_batch(instances, [tour.astype(np.uint64) for tour in tours])
    assert unsigned is not None
    assert unsigned.tolist() == costs.tolist()


def test_a_batch_with_anything_unusual_is_judged_one_by_one() -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    plain, other = TSPInstance("a", square), TSPInstance("b", square[:3])
    fixed = TSPInstance("c", square, fixed_edges=((0, 1),))
    tour = np.arange(4)
    assert score_batch([plain, plain], [tour, np.array([0, 1, 1, 2])]) is None
    assert score_batch([plain, plain], [tour, tour.astype(float)]) is None
    assert score_batch([plain, plain], [tour, [0, 1, 2, 3]]) is None
    assert score_batch([plain, plain], [tour, np.array([0, 1, 2, 2**64 - 1], np.uint64)]) is None
    assert score_batch([plain, plain], [tour, np.arange(3)]) is None
    assert score_batch([plain, other], [tour, np.arange(3)]) is None
    assert score_batch([plain, fixed], [tour, tour]) is None
