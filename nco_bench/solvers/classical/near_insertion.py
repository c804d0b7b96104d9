"""Insertion beside near nodes only, in linear time: ``random-insertion`` with ``near=K``.

Cities come in a given order; each goes into that edge, of those at its K nearest cities that are in place, that it lengthens
least. CVRP: of routes with room; where none of the K has any, a new route begins. Cities in place lie in the cells of a
grid that is made anew, four times as fine, whenever their number has grown fourfold. Compiled by numba, since a search of
cells costs as many array steps as there are cities around.

Letters in shapes: N nodes, K near ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiling import njit

FIRST_ROUND = 1000
"""Cities that come in the order given; later ones come in rounds, see `_in_rounds`."""
PER_CELL = 2.0
"""Cities of a cell when its grid is full."""
NONE = -1


def insert_near(points: NDArray[np.float64], order: NDArray[np.integer], near: int) -> NDArray[np.int64]:
    """Build a tour.

    Parameters
    ----------
    points
        ``(N, 2)``, N at least 3, scaled to the unit square.
    order
        ``(N,)`` in which cities come, but that those of a round come cell by cell, see `_in_rounds`.
    near
        K.

    Returns
    -------
    array
        ``(N,)`` a permutation that begins with node 0.
    """
    n = len(points)
    old, new = _by_cell(points)
    order = _in_rounds(new[order])
    onward, _ = _inserted(points[old], order, np.zeros(n), np.zeros(1), np.inf, near, False)
    return old[_followed(onward, new[0], n)]


def insert_near_routes(
    points: NDArray[np.float64],
    demand: NDArray[np.int64],
    capacity: int,
    order: NDArray[np.integer],
    near: int,
) -> NDArray[np.int64]:
    """Build routes.

    Parameters
    ----------
    points
        ``(N, 2)`` scaled to the unit square, the depot first.
    demand, capacity
        ``(N,)``, 0 at the depot; no demand is above the capacity.
    order
        ``(N - 1,)`` in which customers 1 ... N - 1 come.
    near
        K.

    Returns
    -------
    array
        Customers with 0 for each visit of the depot, at both ends too.
    """
    n = len(points)
    old = np.concatenate(
        [[0], order]
    )  # numbered as they come: by angle, say, those in place are near in memory
    amount, load = demand[old].astype(np.float64), np.zeros(n)
    onward, firsts = _inserted(points[old], np.arange(1, n), amount, load, float(capacity), near, True)
    return old[_sequence(onward, firsts, n)]


def _by_cell(points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number nodes cell by cell; return the old numbers of new ones and the new numbers of old ones."""
    n = len(points)
    side = max(1, int(np.sqrt(n / 64)))
    column, row = np.minimum((points * side).astype(np.int64), side - 1).T
    old = np.argsort(column * side + np.where(column % 2, side - 1 - row, row), kind="stable")
    new = np.empty(n, dtype=np.int64)
    new[old] = np.arange(n)
    return old, new


def _in_rounds(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort what comes within each round, the rounds being halves, quarters, ... from the end: as random, and near in memory.

    That is the order of Amenta, Choi and Rote (2003) for incremental constructions.
    """
    parts, end = [], len(order)
    while end > FIRST_ROUND:
        begin = end // 2
        parts.append(np.sort(order[begin:end]))
        end = begin
    return np.concatenate([order[:end], *parts[::-1]])


@njit(cache=True)
def _inserted(points, order, demand, load, capacity, near, routes):  # type: ignore[no-untyped-def]
    """Return each node's next one (the depot is 0 in routes, and has none), and the first customers of routes."""
    n = len(points)
    onward, back = np.full(n, NONE, np.int64), np.full(n, NONE, np.int64)
    route = np.zeros(n, np.int64)
    firsts, count = np.full(n if routes else 1, NONE, np.int64), 0
    side, full = 1, 4
    head, behind = np.full(1, NONE, np.int64), np.full(n, NONE, np.int64)
    found = np.empty(near, np.int64)
    begun = 0
    if not routes:  # two cities make the first edges
        a, b = order[0], order[1]
        onward[a], back[a], onward[b], back[b] = b, b, a, a
        for node in (a, b):
            _place(points, side, head, behind, node)
        begun = 2
    for k in range(begun, len(order)):
        node = order[k]
        if k >= full:
            full *= 4
            side = max(1, int(np.sqrt(full / PER_CELL)))
            head = np.full(side * side, NONE, np.int64)
            for other in order[:k]:
                _place(points, side, head, behind, other)
        some = _nearest(points, side, head, behind, node, found, min(near, k))
        best, after = np.inf, NONE
        here = NONE
        for i in range(some):
            other = found[i]
            if routes and load[route[other]] + demand[node] > capacity:
                continue
            added = _added(points, other, onward[other], node)
            if added < best:
                best, after, here = added, other, onward[other]
            added = _added(points, back[other], other, node)
            if added < best:
                best, after, here = added, back[other], other
        if best == np.inf:  # a route of its own; the depot's links are of no route
            route[node] = count
            firsts[count] = node
            onward[node], back[node] = 0, 0
            count += 1
        else:
            other = here if after == 0 and routes else after
            route[node] = route[other]
            onward[node], back[node] = here, after
            if after != 0 or not routes:
                onward[after] = node
            else:
                firsts[route[node]] = node
            if here != 0 or not routes:
                back[here] = node
        load[route[node]] += demand[node]
        _place(points, side, head, behind, node)
    return onward, firsts[:count]


@njit(cache=True)
def _added(points, a, b, node):  # type: ignore[no-untyped-def]
    return _distance(points, a, node) + _distance(points, node, b) - _distance(points, a, b)


@njit(cache=True)
def _distance(points, a, b):  # type: ignore[no-untyped-def]
    x, y = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1]
    return np.sqrt(x * x + y * y)


@njit(cache=True)
def _cell(value, side):  # type: ignore[no-untyped-def]
    return min(side - 1, max(0, int(value * side)))


@njit(cache=True)
def _place(points, side, head, behind, node):  # type: ignore[no-untyped-def]
    cell = _cell(points[node, 0], side) * side + _cell(points[node, 1], side)
    behind[node] = head[cell]
    head[cell] = node


@njit(cache=True)
def _nearest(points, side, head, behind, node, found, wanted):  # type: ignore[no-untyped-def]
    """Put up to `wanted` nearest cities of the node into `found`, nearest first; return how many.

    Rings of cells are searched until what is found lies within them, or there is nothing beyond.
    """
    x, y = _cell(points[node, 0], side), _cell(points[node, 1], side)
    some = 0
    lengths = np.empty(len(found))
    for ring in range(side):
        if some == wanted and lengths[some - 1] <= (ring - 1) / side:
            break
        for i in range(max(0, x - ring), min(side, x + ring + 1)):
            edge = abs(i - x) == ring
            step = 1 if edge or ring == 0 else 2 * ring
            for j in range(y - ring, y + ring + 1, step):
                if j < 0 or j >= side:
                    continue
                other = head[i * side + j]
                while other != NONE:
                    some = _keep(found, lengths, some, wanted, other, _distance(points, node, other))
                    other = behind[other]
    return some


@njit(cache=True)
def _keep(found, lengths, some, wanted, other, length):  # type: ignore[no-untyped-def]
    """Sort one city into the nearest ones."""
    if some == wanted and length >= lengths[some - 1]:
        return some
    at = some if some < wanted else wanted - 1
    while at > 0 and lengths[at - 1] > length:
        found[at], lengths[at] = found[at - 1], lengths[at - 1]
        at -= 1
    found[at], lengths[at] = other, length
    return min(wanted, some + 1)


@njit(cache=True)
def _followed(onward, first, n):  # type: ignore[no-untyped-def]
    tour = np.empty(n, np.int64)
    node = first
    for k in range(n):
        tour[k] = node
        node = onward[node]
    return tour


@njit(cache=True)
def _sequence(onward, firsts, n):  # type: ignore[no-untyped-def]
    visits = np.zeros(n + len(firsts), np.int64)
    at = 1
    for first in firsts:
        node = first
        while node != 0:
            visits[at] = node
            node = onward[node]
            at += 1
        at += 1
    return visits
