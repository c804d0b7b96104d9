"""Paths with fixed ends, solved near-optimally by fast-tsp: what on-policy learning is told to do in the policy's states."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.interrupts import ignore_interrupts

LARGEST = 65_535
"""Distances of fast-tsp are 16-bit integers."""
CALLS = 3
"""Of fast-tsp for one path at most."""
Paths = Sequence[NDArray[np.floating]]


class Solvers:
    """Processes that solve paths while training goes on.

    Parameters
    ----------
    processes
        How many.
    seconds
        As `best_path` takes them.
    """

    def __init__(self, processes: int, seconds: float) -> None:
        self.processes, self.seconds = processes, seconds
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, initializer=_begin)
        self._waiting: deque[Future[list[NDArray[np.floating]]]] = deque()

    @property
    def busy(self) -> bool:
        """Whether every process has something to do, and as much again waits."""
        return len(self._waiting) >= 2 * self.processes

    def give(self, paths: Paths) -> None:
        """Hand paths to whichever process is free first."""
        self._waiting.append(self._pool.submit(best_paths, paths, self.seconds))

    def take(self) -> Iterator[NDArray[np.floating]]:
        """Yield the paths that are solved by now, in the order in which they were given."""
        while self._waiting and self._waiting[0].done():
            yield from self._waiting.popleft().result()

    def close(self) -> None:
        """End the processes; what they have not solved is forgotten."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._waiting.clear()


def _begin() -> None:
    """Leave Ctrl-C to the training process, and end when it ends, however it does."""
    ignore_interrupts()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_it() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_it, daemon=True).start()


def best_paths(paths: Paths, seconds: float) -> list[NDArray[np.floating]]:
    """Return `best_path` of each."""
    return [best_path(path, seconds) for path in paths]


def best_path(coords: NDArray[np.floating], seconds: float) -> NDArray[np.floating]:
    """Order the rows ``(L, 2)`` of a path problem: near-optimal from the first through all others to the last.

    Given `seconds` for 100 nodes, shorter paths in proportion. Where the given order is the shorter one, it stays.

    A path with fixed ends is a tour that contains the edge between the ends: all other edges are made longer by the
    same amount, so that no tour without it is shorter.
    """
    if len(coords) < 4:
        return coords
    points = coords.astype(np.float64)
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    distance = np.sqrt(np.square(points[:, None] - points[None]).sum(-1)) / extent + 2.0
    distance[0, -1] = distance[-1, 0] = 0.0
    np.fill_diagonal(distance, 0.0)
    scaled = np.rint(distance * (LARGEST / (2.0 + math.sqrt(2.0)))).astype(np.int32)
    tour = _searched(scaled, seconds * len(coords) / 100)
    tour = np.roll(tour, -int(np.flatnonzero(tour == 0)[0]))
    tour = tour if tour[-1] == len(coords) - 1 else np.roll(tour[::-1], 1)
    found = points[tour]
    return (
        coords[tour] if tour[-1] == len(coords) - 1 and walk_length(found) < walk_length(points) else coords
    )


def _searched(distances: NDArray[np.int32], seconds: float) -> NDArray[np.integer]:
    """Return the shortest tour that fast-tsp finds in so many seconds, asked again where it had less than half of them.

    A call is limited in wall time, of which a machine with other work may leave it little: beside a load of 8 a tenth of the
    tours were longer, by up to 2 %.
    """
    began, own, found = time.perf_counter(), time.thread_time(), list[NDArray[np.integer]]()
    while not found or (len(found) < CALLS and time.thread_time() - own < (time.perf_counter() - began) / 2):
        found.append(np.asarray(loaded_fast_tsp().find_tour(distances, duration_seconds=seconds)))
    return min(found, key=lambda tour: int(distances[tour, np.roll(tour, -1)].sum(dtype=np.int64)))


def walk_length(points: NDArray[np.floating]) -> float:
    """Return the length of the way through the points in their order."""
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


def loaded_fast_tsp() -> Any:
    """Return the module that solves; raises `BadInputError` where it is not installed."""
    try:
        import fast_tsp
    except ImportError as error:
        raise BadInputError(
            "learner=on-policy: solves paths by fast-tsp, which is not installed; pip install fast-tsp."
        ) from error
    return fast_tsp
