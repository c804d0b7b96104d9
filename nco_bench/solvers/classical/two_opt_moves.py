"""2-opt and Or-opt moves on a tour as an array, compiled: what `two_opt` and `route_two_opt` share.

A queue of nodes, ``queued`` which are in it; ``state`` holds its first place, its length, and the most nodes that one move
may touch.
"""

from __future__ import annotations

import numpy as np

from nco_bench.nn.compiling import njit
from nco_bench.problems.distances import EARTH_RADIUS_KM

KINDS = {
    "euclidean": 0, "tsplib-nint": 1, "cvrplib-nint": 1, "ceil": 2, "att": 3, "geo": 4, "manhattan": 5, "maximum": 6,
    "explicit": 7,
}  # fmt: skip
"""Numbers of the conventions of distances, for compiled code."""
IMPROVEMENT = 1e-10
"""Smallest gain of a move, relative to what it takes out first; keeps rounding errors from cycling."""


@njit(cache=True)
def distance(points, matrix, kind, a, b):  # type: ignore[no-untyped-def]
    if kind == 7:
        return matrix[a, b]
    x, y = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1]
    if kind == 5:
        return np.floor(abs(x) + abs(y) + 0.5)
    if kind == 6:
        return max(np.floor(abs(x) + 0.5), np.floor(abs(y) + 0.5))
    if kind == 4:
        z = points[a, 2] - points[b, 2]
        chord = min(1.0, 0.5 * np.sqrt(x * x + y * y + z * z))
        return np.floor(2.0 * EARTH_RADIUS_KM * np.arcsin(chord) + 1.0)
    square = x * x + y * y
    if kind == 3:
        return np.ceil(np.sqrt(square / 10.0))
    length = np.sqrt(square)
    if kind == 1:
        return np.floor(length + 0.5)
    return np.ceil(length) if kind == 2 else length


@njit(cache=True)
def _push(queue, queued, state, node):  # type: ignore[no-untyped-def]
    if queued[node] == 0:
        queued[node] = 1
        queue[(state[0] + state[1]) % len(queue)] = node
        state[1] += 1


@njit(cache=True)
def work(tour, position, near, points, matrix, kind, queue, queued, state, steps):  # type: ignore[no-untyped-def]
    """Take up to `steps` nodes from the queue and try to improve the tour at each."""
    for _ in range(steps):
        if state[1] == 0:
            return
        node = queue[state[0]]
        state[0] = (state[0] + 1) % len(queue)
        state[1] -= 1
        queued[node] = 0
        while _two_opt(tour, position, near, points, matrix, kind, queue, queued, state, node) or _or_opt(
            tour, position, near, points, matrix, kind, queue, queued, state, node
        ):
            pass


@njit(cache=True)
def _two_opt(tour, position, near, points, matrix, kind, queue, queued, state, a):  # type: ignore[no-untyped-def]
    n = len(tour)
    for step in (1, -1):
        b = tour[(position[a] + step) % n]
        ab = distance(points, matrix, kind, a, b)
        for k in range(near.shape[1]):
            c = near[a, k]
            gain = ab - distance(points, matrix, kind, a, c)
            if gain <= IMPROVEMENT * ab:
                break
            if c in (a, b):
                continue
            d = tour[(position[c] + step) % n]
            gain += distance(points, matrix, kind, c, d) - distance(points, matrix, kind, b, d)
            if d != a and gain > IMPROVEMENT * ab:
                inside = (step * (position[c] - position[b])) % n + 1
                if min(inside, n - inside) > state[2]:
                    continue
                if step == 1:
                    _reverse(tour, position, position[b], position[c])
                else:
                    _reverse(tour, position, position[c], position[b])
                for node in (a, b, c, d):
                    _push(queue, queued, state, node)
                return True
    return False


@njit(cache=True)
def _reverse(tour, position, i, j):  # type: ignore[no-untyped-def]
    """Reverse the path from position i forward to position j, or the rest of the cycle if that is shorter."""
    n = len(tour)
    inside = (j - i) % n + 1
    if 2 * inside > n:
        i, j = (j + 1) % n, (i - 1) % n
        inside = n - inside
    for _ in range(inside // 2):
        u, v = tour[i], tour[j]
        tour[i], tour[j] = v, u
        position[v], position[u] = i, j
        i, j = i + 1, j - 1
        if i == n:
            i = 0
        if j < 0:
            j = n - 1


@njit(cache=True)
def _or_opt(tour, position, near, points, matrix, kind, queue, queued, state, a):  # type: ignore[no-untyped-def]
    """Move the 1 to 3 nodes that begin with `a`, in either direction, so that `a` comes beside a near neighbour."""
    n = len(tour)
    for step in (1, -1):
        p = tour[(position[a] - step) % n]
        for size in range(1, min(4, n - 2)):
            e = tour[(position[a] + step * (size - 1)) % n]
            q = tour[(position[a] + step * size) % n]
            removed = distance(points, matrix, kind, p, a) + distance(points, matrix, kind, e, q)
            saved = removed - distance(points, matrix, kind, p, q)
            for k in range(near.shape[1]):
                c = near[a, k]
                gain = saved - distance(points, matrix, kind, a, c)
                if gain <= IMPROVEMENT * removed:
                    break
                if ((position[c] - position[a]) * step) % n < size:
                    continue
                for side in (1, -1):
                    f = tour[(position[c] + side) % n]
                    if ((position[f] - position[a]) * step) % n < size:
                        continue
                    more = distance(points, matrix, kind, c, f) - distance(points, matrix, kind, e, f)
                    if gain + more > IMPROVEMENT * removed:
                        first = position[a] if step == 1 else position[e]
                        left = c if side == 1 else f
                        ahead = (position[left] - (first + size)) % n + 1
                        if min(ahead, n - size - ahead) > state[2]:
                            continue
                        _shift(tour, position, first, size, position[left], (step == 1) != (side == 1))
                        for node in (p, q, a, e, c, f):
                            _push(queue, queued, state, node)
                        return True
    return False


@njit(cache=True)
def _shift(tour, position, first, size, left, backwards):  # type: ignore[no-untyped-def]
    """Move the `size` nodes from position `first` on to after the node at position `left`, reversed if `backwards`."""
    n = len(tour)
    segment = np.empty(size, dtype=np.int32)
    for k in range(size):
        segment[size - 1 - k if backwards else k] = tour[(first + k) % n]
    ahead = (left - (first + size)) % n + 1
    if 2 * ahead <= n - size:
        for k in range(ahead):
            node, at = tour[(first + size + k) % n], (first + k) % n
            tour[at] = node
            position[node] = at
        start = (first + ahead) % n
    else:
        behind = n - size - ahead
        for k in range(behind):
            node, at = tour[(first - 1 - k) % n], (first + size - 1 - k) % n
            tour[at] = node
            position[node] = at
        start = (first - behind) % n
    for k in range(size):
        at = (start + k) % n
        tour[at] = segment[k]
        position[segment[k]] = at
