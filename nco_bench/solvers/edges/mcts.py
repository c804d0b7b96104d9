"""Search for exchanges of edges guided by a heat map: the "MCTS" of Fu, Qiu and Zha (AAAI 2021), as DIFUSCO runs it.

A random tour is drawn from the weights of the edges and improved by 2-opt over candidates; then actions are sampled, each a
chain of at most 11 exchanged edges, and the first that shortens the tour is made; where many in a row gain nothing, all
begins anew with another random tour. Weights and visits are kept throughout. The official program stops by the clock, after
0.1 s per city.

Differences from the official scripts: of a sparse heat map only edges of its graph, in either direction, can become
candidates (the official script fills an N x N matrix; beyond the graph a pair competes by its length alone); from
5,000 cities on the search begins, as the paper's at 10,000 does, from the tour of greedy merging and 2-opt in place of the
heat map, both directions of its edges counting 1, since the official script for that size cannot be run as it is published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nco_bench.solvers.edges import mcts_kernels as kernels
from nco_bench.solvers.edges.merge import EdgeMap, lengths
from nco_bench.solvers.edges.two_opt import improve_best_first

UNIT = 10_000
"""Coordinates are multiplied by this, and lengths rounded."""
LEAST_HEAT = 1e-4
"""Of a candidate."""
WEIGHT = 100.0
ACTIONS_PER_CITY = 10
ACTIONS_PER_CALL = 2_000
ROOM = 24
"""Places that are free in every row before an action is made: each of its 11 edges can add two."""
SHARES = ((750, 0.02), (5_000, 0.01), (2**63, 0.00128))
"""Sizes below which this share of all pairs is kept (paper: 500, 1,000 and 10,000 cities)."""
FROM_TOUR = 5_000


@dataclass(frozen=True)
class Budget:
    """When a search stops: each is asked again and again.

    Attributes
    ----------
    again
        Whether to begin anew with another random tour.
    go_on
        Whether to look for another action.
    late
        Whether to drop everything; asked within long loops.
    until
        The moment (`time.perf_counter`) from which it is late, where there is one.
    """

    again: Callable[[], bool]
    go_on: Callable[[], bool]
    late: Callable[[], bool]
    until: float | None = None


def by_clock(until: float) -> Budget:
    """Search until the clock (`time.perf_counter`) passes a moment."""

    def early() -> bool:
        return time.perf_counter() < until

    return Budget(early, early, lambda: not early(), until)


def by_restarts(most: int, stop: float | None = None) -> Budget:
    """Begin anew `most` times, which a seed repeats, unless the clock passes `stop`."""
    left = iter(range(most))

    def early() -> bool:
        return stop is None or time.perf_counter() < stop

    return Budget(lambda: next(left, None) is not None and early(), early, lambda: not early(), stop)


@dataclass(frozen=True)
class Heat:
    """A prepared heat map: for each directed edge its share of all heat of its first city.

    Attributes
    ----------
    first, second
        ``(E,)``; both directions are there.
    share
        ``(E,)``, rounded to six decimals.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    share: NDArray[np.float64]


@dataclass
class Search:
    """The arrays of a search, see `nco_bench.solvers.edges.mcts_kernels`."""

    points: NDArray[np.float64]
    others: NDArray[np.int64]
    filled: NDArray[np.int64]
    weights: NDArray[np.float64]
    visits: NDArray[np.int64]
    candidates: NDArray[np.int64]
    counts: NDArray[np.int64]
    onward: NDArray[np.int64]
    back: NDArray[np.int64]
    best: NDArray[np.int64]
    counters: NDArray[np.int64]
    random: NDArray[np.int64]


def prepare(edges: EdgeMap, share: float) -> Heat:
    """Prefer short edges, keep the best ones, and normalise by city, as the official script does.

    Parameters
    ----------
    edges
        Scores; an edge without its reverse counts 0 in that direction.
    share
        Share of all N x N pairs that is kept, besides the best three edges of every city.
    """
    n = len(edges.coords)
    directed = np.concatenate([edges.first * n + edges.second, edges.second * n + edges.first])
    key, place = np.unique(directed, return_inverse=True)
    scores = np.bincount(place[: len(edges.scores)], weights=edges.scores, minlength=len(key))
    first, second = key // n, key % n
    value = scores.astype(np.float64) + 0.01 * (1.0 - lengths(edges.coords, first, second))
    value[~np.isfinite(value)] = 0.0
    positive = np.sort(value[value > 0])
    most = int(n * n * share)
    threshold = (
        positive[-most] if 0 < most <= len(positive) else positive[0] if most == 0 and len(positive) else 0.0
    )
    kept = np.where((value > threshold) | _best_three(first, value), value, 0.0)
    kept[kept != 0] += 0.01
    with np.errstate(all="ignore"):
        both = kept + kept[np.searchsorted(key, second * n + first)]
        normal = both / np.bincount(first, weights=both, minlength=n)[first]
    normal[~(normal > 0)] = 0.0  # cities whose scores sum to nothing, or to more than a float holds
    return Heat(first, second, np.round(normal, 6).astype(np.float64))


def _best_three(row: NDArray[np.int64], value: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the three largest values of each row; the rows stand in order."""
    order = np.lexsort((value, row))
    last = np.searchsorted(row, row, side="right")
    marked = np.zeros(len(row), dtype=bool)
    marked[order] = np.arange(len(row)) >= last[order] - 3
    return marked


def begin(coords: NDArray[np.float64], heat: Heat, seed: int) -> Search:
    """Set weights and candidates up; the tour is drawn by the first stage.

    Parameters
    ----------
    coords
        ``(N, 2)`` in the unit square.
    heat
        See `prepare`.
    seed
        Of the C library's random numbers.
    """
    n = len(coords)
    real = heat.first != heat.second
    first, second, share = heat.first[real], heat.second[real], heat.share[real]
    back = np.searchsorted(first * n + second, second * n + first)
    even = (share + share[back]) / 2
    used = even != 0
    first, second, even = first[used], second[used], even[used]
    filled = np.bincount(first, minlength=n)
    column = np.arange(len(first)) - np.searchsorted(first, first)
    width = int(filled.max(initial=0))
    others = np.zeros((n, width + ROOM), dtype=np.int64)
    weights = np.zeros(others.shape)
    others[first, column], weights[first, column] = second, even * WEIGHT
    candidate = even >= LEAST_HEAT
    order = np.lexsort((second, -even, first))
    order = order[candidate[order]]
    counts = np.bincount(first[order], minlength=n)
    candidates = np.full((n, int(counts.max(initial=1))), -1, dtype=np.int64)
    candidates[first[order], np.arange(len(order)) - np.searchsorted(first[order], first[order])] = second[
        order
    ]
    counters = np.zeros(5, dtype=np.int64)
    counters[kernels.BEST], counters[kernels.FULLEST] = 2**62, width
    empty = np.zeros(n, dtype=np.int64)
    return Search(
        coords * UNIT, others, filled, weights, np.zeros(others.shape, dtype=np.int64), candidates, counts,
        empty.copy(), empty.copy(), empty.copy(), counters, kernels.seeded(seed),
    )  # fmt: skip


def stages(search: Search, budget: Budget) -> Iterator[str]:
    """Search, stopping after every stage: ``init`` (a random tour), ``twoopt`` and ``mcts``, then from the start."""
    while True:
        kernels.random_tour(
            search.points, search.others, search.filled, search.weights, search.onward, search.back,
            search.counters, search.random,
        )  # fmt: skip
        yield "init"
        _local_search(search, budget)
        yield "twoopt"
        while budget.go_on():
            if not _improve(search, budget):
                break
        yield "mcts"
        if not budget.again():
            return


def _local_search(search: Search, budget: Budget) -> None:
    """Make passes of 2-opt until one finds nothing."""
    improved = True
    while improved and not budget.late():
        city, improved = 0, False
        while city < len(search.points):
            _make_room(search, 2)
            city, found = kernels.two_opt_pass(
                search.points, search.others, search.filled, search.weights, search.visits, search.candidates,
                search.counts, search.onward, search.back, search.counters, city,
            )  # fmt: skip
            improved = improved or found
    _keep_best(search)


def _improve(search: Search, budget: Budget) -> bool:
    """Sample actions until one gains, and make it; False where none does."""
    action = np.zeros(2 * (kernels.MOST_PAIRS + 2), dtype=np.int64)
    left, gain = ACTIONS_PER_CITY * len(search.points), 0
    while gain <= 0 and left > 0:
        most = min(left, ACTIONS_PER_CALL)
        gain = kernels.sample_actions(
            search.points, search.others, search.filled, search.weights, search.visits, search.candidates,
            search.counts, search.onward, search.counters, search.random, most, action,
        )  # fmt: skip
        left -= most
        if budget.late():
            break
    if gain <= 0:
        return False
    _make_room(search, ROOM)
    kernels.execute(
        search.others, search.filled, search.weights, search.visits, search.onward, search.back,
        search.counters, action, gain,
    )  # fmt: skip
    _keep_best(search)
    return True


def _make_room(search: Search, free: int) -> None:
    """Double the rows where the longest has fewer free places than asked for."""
    width = search.others.shape[1]
    if search.counters[kernels.FULLEST] + free <= width:
        return
    for name in ("others", "weights", "visits"):
        rows = getattr(search, name)
        setattr(search, name, np.concatenate([rows, np.zeros_like(rows)], axis=1))


def _keep_best(search: Search) -> None:
    if search.counters[kernels.LENGTH] < search.counters[kernels.BEST]:
        search.counters[kernels.BEST] = search.counters[kernels.LENGTH]
        search.best[:] = search.onward


def tour_of(onward: NDArray[np.int64]) -> NDArray[np.int64]:
    """Follow the links from city 0."""
    tour = np.empty_like(onward)
    city = 0
    for k in range(len(onward)):
        tour[k], city = city, onward[city]
    return tour


def search(
    edges: EdgeMap, seed: int, budget: Budget, tour: NDArray[np.int64], most_moves: int
) -> NDArray[np.int64]:
    """Search for a short tour.

    Parameters
    ----------
    edges
        The heat map.
    seed
        Of the random numbers.
    budget
        When to stop.
    tour
        ``(N,)`` from greedy merging; what the search starts from where N is 5,000 or more.
    most_moves
        Of the 2-opt that improves it there.

    Returns
    -------
    NDArray
        ``(N,)``; at most 3 cities are returned as they are.
    """
    n = len(edges.coords)
    if n <= 3:
        return tour
    share = next(share for below, share in SHARES if n < below)
    if n >= FROM_TOUR:
        tour, _ = improve_best_first(edges.coords, tour, most_moves, budget.until)
        edges = with_tour(edges, tour)
    state = begin(edges.coords, prepare(edges, share), seed)
    for number, _ in enumerate(stages(state, budget)):
        if number == 1 and budget.late() and _length(edges, tour) < _length(edges, tour_of(state.best)):
            return tour  # there was no time to improve the random tour
    return tour_of(state.best)


def _length(edges: EdgeMap, tour: NDArray[np.int64]) -> float:
    return float(lengths(edges.coords, tour, np.roll(tour, -1)).sum())


def with_tour(edges: EdgeMap, tour: NDArray[np.int64]) -> EdgeMap:
    """Replace the scores by 1 for edges of a tour, in both directions, and 0 for all others of the graph."""
    onward = np.roll(tour, -1)
    return EdgeMap(
        edges.coords,
        np.concatenate([edges.first, tour, onward]),
        np.concatenate([edges.second, onward, tour]),
        np.concatenate([np.zeros(len(edges.scores)), np.ones(2 * len(tour))]),
    )
