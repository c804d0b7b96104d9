"""Loops of the tree search over exchanges of edges, compiled by numba; `nco_bench.solvers.edges.mcts` calls them.

A search is a handful of arrays. The tour is a doubly linked list. Weights of edges stand in rows sorted by the other end,
since a row's sum is taken in that order; edges that are not there have weight 0. Visits are counted where an edge has a
place: edges that are no candidates are never asked for theirs. No N x N matrix is made.

`e` is 2.718 and integers are shares of 1,000 in the official program, and so they are here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiling import njit

E = 2.718
ALPHA = 1.0
BETA = 10.0
MOST_PAIRS = 10
"""An action stops when it holds more pairs of cities than this."""
NOTHING = -1_000_000_000
"""The gain of a move that cannot be made."""

SIMULATIONS, LENGTH, BEST, FULLEST, PAIRS = 0, 1, 2, 3, 4
"""Places in the counters: simulations, length of the tour and of the best one, longest row, pairs of the action."""


def seeded(seed: int) -> NDArray[np.int64]:
    """Return the state of the C library's ``rand()`` (glibc) after ``srand(seed)``, and the number of draws.

    Parameters
    ----------
    seed
        Its lower 32 bits are used.
    """
    state = np.zeros(33, dtype=np.int64)
    value = seed & 0xFFFFFFFF
    value = (value - (1 << 32) if value >= 1 << 31 else value) or 1
    state[0] = value & 0xFFFFFFFF
    for k in range(1, 31):
        quotient = int(value / 127773)  # towards zero, as in C
        value = 16807 * (value - quotient * 127773) - 2836 * quotient
        value += 2147483647 if value < 0 else 0
        state[k] = value
    state[31] = 3
    for _ in range(310):
        random_number(state)
    state[32] = 0
    return state


@njit(cache=True)
def random_number(state):  # type: ignore[no-untyped-def]
    """Draw from 0 ... 2**31 - 1."""
    k = state[31]
    value = (state[k] + state[(k + 28) % 31]) & 0xFFFFFFFF
    state[k] = value
    state[31] = (k + 1) % 31
    state[32] += 1
    return value >> 1


@njit(cache=True)
def distance(points, a, b):  # type: ignore[no-untyped-def]
    """Return the length of an edge, rounded to the nearest integer."""
    x, y = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1]
    return int(0.5 + np.sqrt(x * x + y * y))


@njit(cache=True)
def _place(others, filled, a, b):  # type: ignore[no-untyped-def]
    """Return where b stands, or would stand, in the row of a."""
    low, high = 0, filled[a]
    while low < high:
        middle = (low + high) // 2
        if others[a, middle] < b:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _visit(others, filled, visits, a, b):  # type: ignore[no-untyped-def]
    k = _place(others, filled, a, b)
    if k < filled[a] and others[a, k] == b:
        visits[a, k] += 1
        visits[b, _place(others, filled, b, a)] += 1


@njit(cache=True)
def _add(others, filled, weights, visits, counters, a, b, rate):  # type: ignore[no-untyped-def]
    """Raise the weight of an edge in the row of a."""
    k = _place(others, filled, a, b)
    if k == filled[a] or others[a, k] != b:
        for m in range(filled[a], k, -1):
            others[a, m], weights[a, m] = others[a, m - 1], weights[a, m - 1]
            visits[a, m] = visits[a, m - 1]
        others[a, k], weights[a, k], visits[a, k] = b, 0.0, 0
        filled[a] += 1
        counters[FULLEST] = max(counters[FULLEST], filled[a])
    weights[a, k] += rate


@njit(cache=True)
def random_tour(points, others, filled, weights, onward, back, counters, random):  # type: ignore[no-untyped-def]
    """Draw a tour from city 0 on, each next city with probability proportional to e to the weight of the edge."""
    n = len(points)
    left = np.arange(1, n)
    potential = np.empty(n)
    city = 0
    while len(left):
        total, k = 0.0, 0
        for m in range(len(left)):
            while k < filled[city] and others[city, k] < left[m]:
                k += 1
            known = k < filled[city] and others[city, k] == left[m]
            potential[m] = E ** weights[city, k] if known else 1.0
            total += potential[m]
        drawn, reached, chosen = random_number(random) % 1000, 0, 0
        for m in range(len(left)):
            chosen = m
            reached += int(1000 * potential[m] / total)
            if drawn < reached:
                break
        onward[city], back[left[chosen]] = left[chosen], city
        city = left[chosen]
        left[chosen:-1] = left[chosen + 1 :]
        left = left[:-1]
    random_number(random)
    onward[city], back[0] = 0, city
    counters[LENGTH] = 0
    for a in range(n):
        counters[LENGTH] += distance(points, a, onward[a])


@njit(cache=True)
def _reverse(onward, back, first, last):  # type: ignore[no-untyped-def]
    """Turn the path between two cities round; the links to the rest of the tour are the caller's."""
    city = first
    while True:
        following = onward[city]
        onward[city], back[city] = back[city], following
        if city == last:
            return
        city = following


@njit(cache=True)
def _two_opt_gain(points, others, filled, visits, onward, counters, a, b):  # type: ignore[no-untyped-def]
    if a == b or onward[a] == b or onward[b] == a:
        return NOTHING
    c, d = onward[a], onward[b]
    _visit(others, filled, visits, a, b)
    _visit(others, filled, visits, c, d)
    counters[SIMULATIONS] += 1
    return distance(points, a, c) + distance(points, b, d) - distance(points, a, b) - distance(points, c, d)


@njit(cache=True)
def two_opt_pass(points, others, filled, weights, visits, candidates, counts, onward, back, counters, city):  # type: ignore[no-untyped-def]
    """Make the first improving move of each city from `city` on.

    Returns the city at which a row has no more room, N at the end, and whether there was an improvement.
    """
    improved, n = False, len(points)
    for a in range(city, n):
        if counters[FULLEST] + 2 > others.shape[1]:
            return a, improved
        for k in range(counts[a]):
            b = candidates[a, k]
            if _two_opt_gain(points, others, filled, visits, onward, counters, a, b) <= 0:
                continue
            gain = _two_opt_gain(points, others, filled, visits, onward, counters, a, b)
            c, d = onward[a], onward[b]
            _reverse(onward, back, c, b)
            onward[a], back[b], onward[c], back[d] = b, a, d, c
            rate = BETA * (E ** (gain / counters[LENGTH]) - 1)
            for p, q in ((a, b), (b, a), (c, d), (d, c)):
                _add(others, filled, weights, visits, counters, p, q, rate)
            counters[LENGTH] -= gain
            improved = True
            break
    return n, improved


@njit(cache=True)
def _choose(  # type: ignore[no-untyped-def]
    others, filled, weights, visits, candidates, counts, counters, random, city, begin, following, promising, potentials
):  # fmt: skip
    """Draw the city to join to, -1 if there is none; `following` is the next one on the path."""
    total = 0.0
    for k in range(filled[city]):
        total += weights[city, k]
    mean = total / (len(filled) - 1)
    simulations = np.log(counters[SIMULATIONS] + 1)
    found, total = 0, 0.0
    for k in range(counts[city]):
        other = candidates[city, k]
        if other in (begin, following):
            continue
        m = _place(others, filled, city, other)
        potential = weights[city, m] / mean + ALPHA * np.sqrt(
            simulations / (np.log(E) * (visits[city, m] + 1))
        )
        if potential >= 1:
            promising[found], potentials[found] = other, potential
            total += potential
            found += 1
    drawn, reached = random_number(random) % 1000, 0
    for k in range(found):
        reached += int(1000 * potentials[k] / total)
        if drawn < reached or k == found - 1:
            return promising[k]
    return -1


@njit(cache=True)
def _turn_front(first, last, count, i):  # type: ignore[no-untyped-def]
    """Turn round all that lies before a node of a path, which is at place i of the tour.

    The path is `count` segments of the tour, each from a first to a last place, in either direction. Returns the place of
    the node before, which comes to the front, and the number of segments.
    """
    k = 0
    while not min(first[k], last[k]) <= i <= max(first[k], last[k]):
        k += 1
    if i != first[k]:  # cut in two
        for m in range(count, k, -1):
            first[m], last[m] = first[m - 1], last[m - 1]
        last[k] = i - 1 if first[k] < i else i + 1
        first[k + 1] = i
        k, count = k + 1, count + 1
    freed = last[k - 1]
    for m in range((k + 1) // 2):
        o = k - 1 - m
        first[m], last[m], first[o], last[o] = last[o], first[o], last[m], first[m]
    return freed, count


@njit(cache=True)
def _simulate(  # type: ignore[no-untyped-def]
    points, others, filled, weights, visits, candidates, counts, tour, place, counters, random, begin, action, first, last,
    promising, potentials
):  # fmt: skip
    """Sample an action that begins at a city. Returns its gain and its number of pairs.

    The tour, cut behind that city, is a path of which each exchange turns a front part round. `_turn_front` keeps these
    parts, so that no step takes longer where the tour is longer.
    """
    n, start = len(tour), place[begin] + 1
    first[0], last[0], count = 0, n - 1, 1  # places are counted from the city behind `begin`
    city = tour[start % n]
    action[0], action[1] = begin, city
    gain, best, best_pairs, pairs = distance(points, begin, city), NOTHING, 2, 1
    while True:
        onward = first[1] if first[0] == last[0] else first[0] + (1 if first[0] < last[0] else -1)
        other = _choose(
            others, filled, weights, visits, candidates, counts, counters, random, city, begin,
            tour[(onward + start) % n], promising, potentials,
        )  # fmt: skip
        if other < 0:
            break
        _visit(others, filled, visits, city, other)
        before, count = _turn_front(first, last, count, (place[other] - start) % n)
        freed = tour[(before + start) % n]
        action[2 * pairs], action[2 * pairs + 1] = other, freed
        gain += distance(points, other, freed) - distance(points, city, other)
        real = gain - distance(points, freed, begin)
        pairs += 1
        if real > best:
            best, best_pairs = real, pairs
        city = freed
        if real > 0 or pairs > MOST_PAIRS:
            break
    return best, best_pairs


@njit(cache=True)
def sample_actions(  # type: ignore[no-untyped-def]
    points, others, filled, weights, visits, candidates, counts, onward, counters, random, most, best_action
):  # fmt: skip
    """Sample actions until one gains, at most `most`; return the best gain."""
    n = len(onward)
    tour, place = np.empty(n, np.int64), np.empty(n, np.int64)
    city = 0
    for k in range(n):
        tour[k], place[city] = city, k
        city = onward[city]
    action = np.empty(2 * (MOST_PAIRS + 2), np.int64)
    first, last = np.empty(MOST_PAIRS + 3, np.int64), np.empty(MOST_PAIRS + 3, np.int64)
    promising, potentials = np.empty(candidates.shape[1], np.int64), np.empty(candidates.shape[1])
    best = NOTHING
    for _ in range(most):
        begin = random_number(random) % n
        gain, pairs = _simulate(
            points, others, filled, weights, visits, candidates, counts, tour, place, counters, random, begin, action,
            first, last, promising, potentials,
        )  # fmt: skip
        counters[SIMULATIONS] += 1
        if gain > best:
            best = gain
            counters[PAIRS] = pairs
            best_action[:] = action
        if best > 0:
            break
    return best


@njit(cache=True)
def execute(others, filled, weights, visits, onward, back, counters, action, gain):  # type: ignore[no-untyped-def]
    """Make an action that gains, and raise the weights of the edges that it adds."""
    pairs = counters[PAIRS]
    rate = BETA * (E ** (gain / counters[LENGTH]) - 1)
    for k in range(pairs):
        a, b = action[2 * k + 1], action[2 * k + 2 if k < pairs - 1 else 0]
        _add(others, filled, weights, visits, counters, a, b, rate)
        _add(others, filled, weights, visits, counters, b, a, rate)
    begin, city = action[0], action[1]
    onward[begin], back[city] = -1, -1
    for k in range(1, pairs):
        other, freed = action[2 * k], action[2 * k + 1]
        _reverse(onward, back, city, freed)
        onward[city], back[other], back[freed] = other, city, -1
        city = freed
    onward[begin], back[city] = city, begin
    counters[LENGTH] -= gain
