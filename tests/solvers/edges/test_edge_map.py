"""Tours from scores of edges: valid for any scores, the greedy order, best-first 2-opt and the tree search."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.solvers.edges import mcts_kernels as kernels
from nco_bench.solvers.edges.diffusion import nearest_graph
from nco_bench.solvers.edges.mcts import begin, by_clock, by_restarts, prepare, search, stages, tour_of
from nco_bench.solvers.edges.merge import EdgeMap, edge_map, lengths, merge_greedily
from nco_bench.solvers.edges.two_opt import improve_best_first


def length(coords: NDArray[np.float64], tour: NDArray[np.int64]) -> float:
    return float(lengths(coords, tour, np.roll(tour, -1)).sum())


def is_tour(tour: NDArray[np.int64], n: int) -> bool:
    return bool(np.array_equal(np.sort(tour), np.arange(n))) and tour[0] == 0


@st.composite
def edge_maps(draw: st.DrawFn) -> EdgeMap:
    """Any graph on points of which many may coincide, with scores that may be 0, negative, huge or no numbers."""
    n = draw(st.integers(2, 12))
    places = st.sampled_from([0.0, 0.25, 0.5, 1.0]) if draw(st.booleans()) else st.floats(0, 1)
    coords = np.array(draw(st.lists(st.tuples(places, places), min_size=n, max_size=n)))
    ends = st.integers(0, n - 1)
    score = st.sampled_from([0.0, 1e-6, 0.5, 1.0, -1.0, 1e308, np.inf, -np.inf, np.nan]) | st.floats(0, 1)
    edges = draw(st.lists(st.tuples(ends, ends, score), max_size=40))
    a, b, scores = (np.array([e[k] for e in edges]) for k in range(3))
    return EdgeMap(coords, a.astype(np.int64), b.astype(np.int64), scores.astype(np.float64))


@settings(max_examples=100, deadline=None)
@given(edge_maps())
def test_any_scores_give_a_tour_that_two_opt_and_the_search_keep_valid(edges: EdgeMap) -> None:
    n = len(edges.coords)
    merged = merge_greedily(edges)
    assert is_tour(merged.tour, n)
    better, moves = improve_best_first(edges.coords, merged.tour, 100)
    assert is_tour(better, n)
    assert length(edges.coords, better) <= length(edges.coords, merged.tour) - 0.99e-6 * moves + 1e-9
    found = search(edges, 1, by_restarts(1), merged.tour, 100)
    assert is_tour(found, n)


def reference_merge(coords: NDArray[np.float64], scores: NDArray[np.float64]) -> list[set[int]]:
    """The edges of the paper's procedure, written down as it is described, for scores without ties."""
    n = len(coords)
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    merit = {(a, b): (scores[a, b] + scores[b, a]) / np.hypot(*(coords[a] - coords[b])) for a, b in pairs}
    paths = [[a] for a in range(n)]
    edges: list[set[int]] = []
    for a, b in sorted(pairs, key=lambda pair: -merit[pair]):
        path_a, path_b = (next(p for p in paths if v in p) for v in (a, b))
        if path_a is path_b or a not in (path_a[0], path_a[-1]) or b not in (path_b[0], path_b[-1]):
            continue
        left = path_a if path_a[-1] == a else path_a[::-1]
        right = path_b if path_b[0] == b else path_b[::-1]
        paths = [p for p in paths if p is not path_a and p is not path_b] + [left + right]
        edges.append({a, b})
    return [*edges, {paths[0][0], paths[0][-1]}]


@pytest.mark.parametrize("seed", range(5))
def test_merging_takes_the_edges_in_the_order_of_score_per_length(seed: int) -> None:
    random = np.random.default_rng(seed)
    coords, scores = random.random((15, 2)), random.random((15, 15))
    tour = merge_greedily(edge_map(coords, scores)).tour
    found = {frozenset(pair) for pair in zip(tour.tolist(), np.roll(tour, -1).tolist(), strict=True)}
    assert found == {frozenset(edge) for edge in reference_merge(coords, scores)}
    # From node 0 towards its neighbour of the larger number.
    assert tour[1] > tour[-1]


def test_scores_of_a_tour_give_that_tour() -> None:
    random = np.random.default_rng(0)
    coords, tour = random.random((200, 2)), np.concatenate([[0], random.permutation(np.arange(1, 200))])
    onward = np.roll(tour, -1)
    # One direction only, as the labels of DIFUSCO's training are.
    found = merge_greedily(EdgeMap(coords, tour, onward, np.ones(200))).tour
    assert found.tolist() in (tour.tolist(), [0, *tour[:0:-1].tolist()])


def test_paths_are_joined_by_the_shortest_gap_where_the_graph_ends() -> None:
    # Two paths on a line, 0-1 and 2-3; the gap from 1 to 2 is the shortest.
    coords = np.array([[0.0, 0.0], [0.2, 0.0], [0.3, 0.0], [1.0, 0.0]])
    merged = merge_greedily(EdgeMap(coords, np.array([0, 2]), np.array([1, 3]), np.ones(2)))
    assert merged.tour.tolist() == [0, 3, 2, 1]
    assert (merged.examined, merged.joined) == (2, 1)


def test_a_map_without_scores_is_the_greedy_edge_heuristic() -> None:
    random = np.random.default_rng(3)
    coords = random.random((30, 2))
    by_length = merge_greedily(edge_map(coords, np.ones((30, 30)))).tour
    nothing = merge_greedily(edge_map(coords, np.zeros((30, 30)))).tour
    assert np.array_equal(by_length, nothing)


def test_edges_to_nowhere_are_refused() -> None:
    with pytest.raises(BadInputError, match="of 2 nodes has an edge to node 2"):
        EdgeMap(np.zeros((2, 2)), np.array([0]), np.array([2]), np.ones(1))
    with pytest.raises(BadInputError, match="differ"):
        EdgeMap(np.zeros((2, 2)), np.array([0]), np.array([1]), np.ones(3))


def best_move(coords: NDArray[np.float64], tour: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The move of the official procedure, from the matrix of all changes."""
    n = len(tour)
    here, there = coords[tour], coords[np.roll(tour, -1)]
    between = np.sqrt(((here[:, None] - here) ** 2).sum(-1)) + np.sqrt(
        ((there[:, None] - there) ** 2).sum(-1)
    )
    onward = np.sqrt(((here - there) ** 2).sum(-1))
    change = np.triu(between - onward[:, None] - onward, k=2)
    i, j = divmod(int(change.argmin()), n)
    if change[i, j] >= -1e-6:
        return None
    return np.concatenate([tour[: i + 1], tour[i + 1 : j + 1][::-1], tour[j + 1 :]])


@pytest.mark.parametrize("n", [4, 5, 20, 90])
def test_two_opt_makes_the_moves_of_the_whole_matrix(n: int) -> None:
    random = np.random.default_rng(n)
    coords = random.random((n, 2))
    coords[: n // 4] = coords[0]  # some at one place
    tour = np.concatenate([[0], random.permutation(np.arange(1, n))])
    for moves in range(1, 3 * n):
        following = best_move(coords, tour)
        found, made = improve_best_first(coords, tour, 1)
        if following is None:
            assert made == 0
            return
        assert np.array_equal(found, following), moves
        tour = following
    pytest.fail("2-opt did not end")


def test_two_opt_stops_at_the_clock_with_a_tour() -> None:
    coords = np.random.default_rng(0).random((50, 2))
    tour, moves = improve_best_first(coords, np.arange(50), 1000, stop=0.0)
    assert (moves, tour.tolist()) == (0, list(range(50)))


def test_nearest_graphs_hold_the_node_itself_first() -> None:
    coords = np.random.default_rng(0).random((40, 2))
    near = nearest_graph(coords, 10)
    distance = np.sqrt(((coords[:, None] - coords) ** 2).sum(-1))
    assert np.array_equal(near, distance.argsort(axis=1)[:, :10])
    same = nearest_graph(np.zeros((30, 2)), 5)
    assert np.array_equal(same[:, 0], np.arange(30))
    assert all(len(set(row)) == 5 for row in same.tolist())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with the C library of GNU/Linux")
@pytest.mark.parametrize("seed", [0, 1, 489663920, 2**31 - 1, 2**31, 2**32 - 1])
def test_random_numbers_are_those_of_the_c_library(seed: int) -> None:
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        pytest.skip("the C library is not glibc")
    library.srand(ctypes.c_uint(seed))
    state = kernels.seeded(seed)
    assert [kernels.random_number(state) for _ in range(500)] == [library.rand() for _ in range(500)]


def test_the_search_finds_the_optimum_of_a_circle_and_repeats_itself() -> None:
    angle = np.random.default_rng(0).permutation(40) * (2 * np.pi / 40)
    coords = np.stack([np.cos(angle), np.sin(angle)], axis=1) / 2 + 0.5
    edges = edge_map(coords, np.full((40, 40), 1e-6))
    start = np.arange(40)
    found, again = (search(edges, 1, by_restarts(3), start, 0) for _ in range(2))
    assert np.array_equal(found, again)
    assert length(coords, found) == pytest.approx(40 * np.sin(np.pi / 40), rel=1e-12)


def test_a_search_keeps_no_matrix_of_all_pairs() -> None:
    random = np.random.default_rng(0)
    coords = random.random((1500, 2))
    near = nearest_graph(coords, 20)
    state = begin(coords, prepare(edge_map(coords, random.random(near.shape), near), 0.006), 1)
    for stage in stages(state, by_restarts(0)):
        if stage == "twoopt":
            break
    assert state.others.shape[1] < 200
    assert is_tour(tour_of(state.best), 1500)


def test_a_search_that_is_late_returns_the_merged_tour_where_it_is_shorter() -> None:
    coords = np.random.default_rng(0).random((60, 2))
    edges = edge_map(coords, np.full((60, 60), 0.01))
    merged = merge_greedily(edges).tour
    assert np.array_equal(search(edges, 1, by_clock(0.0), merged, 0), merged)


def test_fronts_of_a_path_are_turned_round_without_the_path() -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        path = list(range(random.integers(4, 30)))
        first, last = np.zeros(13, dtype=np.int64), np.zeros(13, dtype=np.int64)
        last[0], count = len(path) - 1, 1
        for _ in range(10):
            at = int(random.integers(1, len(path)))
            freed, count = kernels._turn_front(first, last, count, path[at])
            assert freed == path[at - 1]
            path = path[:at][::-1] + path[at:]
            pieces = [
                range(a, b + (1 if a <= b else -1), 1 if a <= b else -1)
                for a, b in zip(first[:count], last[:count], strict=True)
            ]
            assert [place for piece in pieces for place in piece] == path
