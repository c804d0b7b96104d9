"""From scores of edges to a tour: greedy insertion of the edges with the best score per length (DIFUSCO, Section 3).

Edges are sorted by (score of i to j + score of j to i) / length; an edge is inserted where both of its ends are ends of
different paths (union-find), so E edges cost O(E log E). Only the edges that are given are looked at: the complete graph
of small instances, K nearest neighbours of large ones; no N x N matrix is made.

Where the edges run out before the tour is whole (sparse graphs; scores that are exactly 0 or not finite count as no edge),
the official code takes the missing edges in whatever order an unstable sort leaves equal keys. Here the paths that are left
are joined end to end, the shortest gap first. For complete graphs with positive scores both give the same tour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nco_bench.errors import BadInputError
from nco_bench.nn.compiling import njit

NEAR_ENDS = 12
"""Ends of paths that are looked at around each end while paths are joined; at least 3 are needed."""


@dataclass(frozen=True)
class EdgeMap:
    """Scores of the edges of one graph.

    Attributes
    ----------
    coords
        ``(N, 2)``.
    first, second
        ``(E,)`` int64 ends of each directed edge.
    scores
        ``(E,)``.
    """

    coords: NDArray[np.float64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    scores: NDArray[np.float64]

    def __post_init__(self) -> None:
        n, shape = len(self.coords), self.scores.shape
        if self.coords.shape != (n, 2) or not np.isfinite(self.coords).all():
            raise BadInputError(f"an edge map needs finite coordinates (N, 2), got {self.coords.shape}.")
        if len(shape) != 1 or self.first.shape != shape or self.second.shape != shape:
            raise BadInputError(
                f"an edge map's ends {self.first.shape}, {self.second.shape} and scores {shape} differ."
            )
        ends = np.concatenate([self.first, self.second])
        if len(ends) and (ends.min() < 0 or ends.max() >= n):
            raise BadInputError(
                f"an edge map of {n} nodes has an edge to node {ends.max()}, or a negative one."
            )


@dataclass(frozen=True)
class Merged:
    """A tour and how it came about.

    Attributes
    ----------
    tour
        ``(N,)`` from node 0, towards its neighbour of the larger number.
    examined
        Undirected edges looked at, the last inserted one among them.
    joined
        Edges that the graph did not have.
    """

    tour: NDArray[np.int64]
    examined: int
    joined: int


def edge_map(
    coords: NDArray[np.float64], scores: NDArray[np.floating], neighbours: NDArray[np.int64] | None = None
) -> EdgeMap:
    """Make an edge map of a row of scores per node.

    Parameters
    ----------
    coords
        ``(N, 2)``.
    scores
        ``(N, K)``; column k of row i is the edge from i to ``neighbours[i, k]``, or to k where `neighbours` is None.
    neighbours
        ``(N, K)``.
    """
    n, width = scores.shape
    first = np.repeat(np.arange(n), width)
    second = np.tile(np.arange(n), n) if neighbours is None else neighbours.reshape(-1).astype(np.int64)
    return EdgeMap(coords, first, second, scores.reshape(-1).astype(np.float64))


def lengths(coords: NDArray[np.float64], a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return Euclidean lengths of edges, ``(E,)``."""
    difference = coords[a] - coords[b]
    return np.sqrt((difference * difference).sum(axis=1))


def merge_greedily(edges: EdgeMap) -> Merged:
    """Make a tour of an edge map; any scores give a valid tour."""
    n = len(edges.coords)
    if n <= 3:
        return Merged(np.array([0, *range(n - 1, 0, -1)][:n], dtype=np.int64), 0, 0)
    a, b = _by_merit(edges)
    links = np.full((n, 2), -1, dtype=np.int64)
    parent = np.arange(n)
    inserted, examined = _insert(a, b, links, parent, 0)
    joined = n - 1 - inserted
    while inserted < n - 1:
        a, b = _gaps(edges.coords, links, parent)
        inserted, _ = _insert(a, b, links, parent, inserted)
    ends = np.flatnonzero(links[:, 1] < 0)
    links[ends[0], 1], links[ends[1], 1] = ends[1], ends[0]
    return Merged(_walk(links), examined, joined)


def _by_merit(edges: EdgeMap) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return both ends of each undirected edge, best score per length first, equal ones by number of node."""
    n = len(edges.coords)
    usable = (edges.first != edges.second) & np.isfinite(edges.scores)
    low = np.minimum(edges.first, edges.second)[usable]
    key, place = np.unique(low * n + np.maximum(edges.first, edges.second)[usable], return_inverse=True)
    score = np.bincount(place, weights=edges.scores[usable], minlength=len(key))
    key, score = key[score != 0], score[score != 0]
    a, b = key // n, key % n
    with np.errstate(divide="ignore", over="ignore"):
        merit = score / lengths(edges.coords, a, b)  # infinite where two nodes share a place
    order = np.argsort(-merit, kind="stable")
    return a[order], b[order]


def _gaps(
    coords: NDArray[np.float64], links: NDArray[np.int64], parent: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of ends of different paths that lie near each other, nearest first.

    A path has at most two ends, so among the three ends nearest to one is always that of another path: each call joins
    every path to another one, and their number is at least halved.
    """
    ends = np.flatnonzero(links[:, 1] < 0)
    count = min(max(3, NEAR_ENDS), len(ends))
    near = ends[cKDTree(coords[ends]).query(coords[ends], k=count)[1]]
    a, b = np.repeat(ends, count), near.reshape(-1)
    roots = _roots(parent)
    apart = roots[a] != roots[b]
    a, b = a[apart], b[apart]
    order = np.lexsort((b, a, lengths(coords, a, b)))
    return a[order], b[order]


@njit(cache=True)
def _root(parent, node):  # type: ignore[no-untyped-def]
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


@njit(cache=True)
def _roots(parent):  # type: ignore[no-untyped-def]
    found = np.empty_like(parent)
    for node in range(len(parent)):
        found[node] = _root(parent, node)
    return found


@njit(cache=True)
def _insert(a, b, links, parent, inserted):  # type: ignore[no-untyped-def]
    """Insert edges in order while they join two paths; return how many there are, and how many were examined."""
    most = len(parent) - 1
    for e in range(len(a)):
        i, j = a[e], b[e]
        if links[i, 1] >= 0 or links[j, 1] >= 0:
            continue
        root_i, root_j = _root(parent, i), _root(parent, j)
        if root_i == root_j:
            continue
        parent[root_i] = root_j
        links[i, 0 if links[i, 0] < 0 else 1] = j
        links[j, 0 if links[j, 0] < 0 else 1] = i
        inserted += 1
        if inserted == most:
            return inserted, e + 1
    return inserted, len(a)


@njit(cache=True)
def _walk(links):  # type: ignore[no-untyped-def]
    """Follow the links from node 0, first to its neighbour of the larger number."""
    tour = np.empty(len(links), dtype=np.int64)
    tour[0] = 0
    before, node = 0, max(links[0, 0], links[0, 1])
    for k in range(1, len(links)):
        tour[k] = node
        onward = links[node, 0] if links[node, 0] != before else links[node, 1]
        before, node = node, onward
    return tour
