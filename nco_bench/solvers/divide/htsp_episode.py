"""Episodes of H-TSP: a partial tour that grows fragment by fragment, where the upper model points.

Follows the official environment (Learning4Optimization-HUST/H-TSP). Distances decide in float32, taken from float64, with
the first minimum in index order. Fragments that cannot have `fragment` cities (a tour still short beside a cluster that
is cut off) are shorter here; the official code has no answer to them.

Letters in shapes: B instances, N cities, n cities of a fragment, G trajectories.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nco_bench.nn.device import PerDevice
from nco_bench.progress import tracked
from nco_bench.solvers.divide.htsp import Htsp, LowerModel
from nco_bench.solvers.divide.htsp_paths import solve_paths

METRES = 1000.0
"""The official code keeps distances of coordinates times 1,000 in float32."""

ROWS_AT_A_TIME = 512
FRAGMENTS_AT_A_TIME = PerDevice(cpu=1, gpu=32)
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sizes:
    """How an episode is cut.

    Attributes
    ----------
    fragment
        Cities of a fragment.
    new
        New cities of a fragment at most, once the tour is long enough.
    neighbours
        Length k of the lists of nearest cities.
    """

    fragment: int = 200
    new: int = 190
    neighbours: int = 40

    def fit(self, cities: int) -> Sizes:
        """Return sizes for an instance of at least 3 cities that may be smaller than a fragment."""
        fragment = min(self.fragment, cities)
        return Sizes(fragment, min(self.new, fragment - 2), min(self.neighbours, cities - 1))


@dataclass
class Episode:
    """A partial tour.

    Attributes
    ----------
    coords
        ``(N, 2)`` float32 in the unit square.
    near
        ``(N, k)`` nearest cities, nearest first.
    tour
        Visited cities in order.
    visited
        ``(N,)`` bool.
    """

    coords: NDArray[np.float32]
    near: Ints
    tour: Ints
    visited: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.visited = np.zeros(len(self.coords), dtype=bool)
        self.visited[self.tour] = True

    @property
    def done(self) -> bool:
        """Whether all cities are in the tour."""
        return len(self.tour) == len(self.coords)

    def length(self) -> float:
        """Length of the closed partial tour; two cities count their edge twice."""
        points = self.coords[self.tour].astype(np.float64)
        return float(np.linalg.norm(points - np.roll(points, -1, axis=0), axis=1).sum())


def begin(coords: NDArray[np.float32], neighbours: int) -> Episode:
    """Start at city 0 and its nearest neighbour."""
    near = nearest_lists(coords, neighbours)
    return Episode(coords, near, np.array([0, near[0, 0]], dtype=np.int64))


def nearest_lists(coords: NDArray[np.float32], k: int) -> Ints:
    """Return the k nearest cities of each, ``(N, k)``, nearest first, without ever holding all distances."""
    scaled = coords.astype(np.float64) * METRES
    lists = []
    for start in range(0, len(coords), ROWS_AT_A_TIME):
        rows = np.arange(start, min(start + ROWS_AT_A_TIME, len(coords)))
        distance = cdist(scaled[rows], scaled).astype(np.float32)
        distance[np.arange(len(rows)), rows] = np.inf
        limit = np.partition(distance, k - 1, axis=1)[:, k - 1 : k]
        # Of cities equally far, those of lower index: argpartition alone would pick any.
        order = np.argsort(np.where(distance <= limit, distance, np.inf), axis=1, kind="stable")
        lists.append(order[:, :k])
    return np.concatenate(lists)


def state_of(episode: Episode) -> NDArray[np.float32]:
    """Return what the upper model sees, ``(N, 8)``: position, visited, available, successor and predecessor.

    A visited city is available if one of its nearest cities is not visited.
    """
    state = np.zeros((len(episode.coords), 8), dtype=np.float32)
    state[:, :2] = episode.coords
    state[:, 2] = episode.visited
    state[:, 3] = episode.visited & ~episode.visited[episode.near].all(axis=1)
    state[episode.tour, 4:6] = episode.coords[np.roll(episode.tour, -1)]
    state[episode.tour, 6:8] = episode.coords[np.roll(episode.tour, 1)]
    return state


@dataclass(frozen=True)
class Fragment:
    """Cities to be reordered: a stretch of the tour, new cities, the rest of the stretch.

    Attributes
    ----------
    cities
        ``(n,)``; the first and the last stay.
    new
        The new ones in the order in which they were found.
    anchor
        City of the tour beside which they were found.
    """

    cities: Ints
    new: Ints
    anchor: int


def fragment_at(episode: Episode, action: NDArray[np.float64], sizes: Sizes) -> Fragment:
    """Turn an action in [-1, 1]^2 into a fragment; once the tour is complete, into a stretch of it."""
    point = 0.5 * action + 0.5
    if episode.done:
        anchor = _nearest(episode, point, np.arange(len(episode.coords)))
        new = np.zeros(0, dtype=np.int64)
    else:
        free, taken = np.flatnonzero(~episode.visited), np.flatnonzero(episode.visited)
        first = _nearest(episode, point, free)
        anchor = _nearest(episode, episode.coords[first], taken)
        second = _nearest(episode, episode.coords[anchor], free)
        new = _search(episode, second, max(sizes.new, sizes.fragment - len(episode.tour)))
    kept = min(sizes.fragment - len(new), len(episode.tour))
    at = int(np.flatnonzero(episode.tour == anchor)[0])
    turned = np.roll(episode.tour, kept // 2 - at)
    return Fragment(np.concatenate([turned[: kept // 2], new, turned[kept // 2 : kept]]), new, anchor)


def _nearest(episode: Episode, point: NDArray[np.floating], among: Ints) -> int:
    away = episode.coords[among].astype(np.float64) - np.asarray(point, dtype=np.float64)
    distance = np.sqrt((away * away).sum(axis=1)).astype(np.float32)
    return int(among[int(distance.argmin())])


def _search(episode: Episode, start: int, limit: int) -> Ints:
    """Search breadth first over lists of nearest cities for unvisited ones."""
    queued = episode.visited.copy()
    queued[start] = True
    queue = deque([start])
    found: list[int] = []
    while queue and len(found) < limit:
        city = queue.popleft()
        found.append(city)
        for other in episode.near[city]:
            if not queued[other]:
                queued[other] = True
                queue.append(int(other))
    return np.array(found, dtype=np.int64)


def replace_stretch(episode: Episode, path: Ints) -> None:
    """Put a path in the place of the tour's stretch between its two ends."""
    tour = episode.tour
    first, last = (int(np.flatnonzero(tour == city)[0]) for city in (path[0], path[-1]))
    if last < first:
        episode.tour = np.concatenate([tour[last + 1 : first], path])
    else:
        episode.tour = np.concatenate([tour[:first], path, tour[last + 1 :]])
    episode.visited[path] = True


def improve_at(
    lower: LowerModel, episodes: Sequence[Episode], actions: NDArray[np.float64], sizes: Sizes
) -> list[Fragment]:
    """Take one step in every episode; return the fragments as they were before they were solved."""
    fragments = [fragment_at(e, a, sizes) for e, a in zip(episodes, actions, strict=True)]
    device = next(lower.parameters()).device
    for size in sorted({len(f.cities) for f in fragments}):
        rows = [i for i, f in enumerate(fragments) if len(f.cities) == size]
        block = FRAGMENTS_AT_A_TIME.on(device)
        for part in (rows[i : i + block] for i in range(0, len(rows), block)):
            points = np.stack([episodes[i].coords[fragments[i].cities] for i in part])
            order = solve_paths(lower, torch.from_numpy(points).to(device))[0].cpu().numpy()
            for i, path in zip(part, order, strict=True):
                replace_stretch(episodes[i], fragments[i].cities[path])
    return fragments


def construct(policy: Htsp, episodes: Sequence[Episode], sizes: Sizes) -> None:
    """Grow tours until all cities are in them."""
    device = next(policy.parameters()).device
    while active := [e for e in episodes if not e.done]:
        states = torch.from_numpy(np.stack([state_of(e) for e in active])).to(device)
        improve_at(policy.lower, active, policy.act(states).double().cpu().numpy(), sizes)


def improve(
    policy: Htsp,
    episodes: Sequence[Episode],
    sizes: Sizes,
    steps: int,
    generators: Sequence[np.random.Generator],
    deadline: float | None = None,
) -> list[Ints]:
    """Reorder stretches of complete tours around random points; return the shortest tour of each that was met."""
    best = [(e.length(), e.tour) for e in episodes]
    for _ in tracked(range(steps), "improvement"):
        if deadline is not None and time.perf_counter() >= deadline:
            break
        improve_at(policy.lower, episodes, np.stack([g.uniform(-1, 1, 2) for g in generators]), sizes)
        best = [
            min(b, (e.length(), e.tour), key=lambda found: found[0])
            for b, e in zip(best, episodes, strict=True)
        ]
    return [tour for _, tour in best]
