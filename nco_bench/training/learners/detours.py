"""Path problems that a policy gets itself into: prefixes with wrong turns, completed optimally.

Pieces of label tours are the states of a policy that never errs. One that does leaves nodes behind, and meets
states that no label tour contains (the drift that Ross et al. 2011 describe). On a small training budget errors are
frequent, so such states are made on purpose: walk along a label tour, now and then turn to a near neighbour
instead, and let a solver complete the tour from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, MissingDependencyError
from nco_bench.files import replacing

NEAREST = 5
"""A wrong turn goes to one of this many nearest unvisited nodes."""


@dataclass(frozen=True)
class DetourOptions:
    """How wrong the walks are, and how long the solver may take.

    Attributes
    ----------
    wrong
        Range of the share of wrong turns; drawn anew for each instance.
    turn_back
        Probability that the walk goes on in the other direction after a wrong turn.
    seconds
        Time limit of the solver per path.
    """

    wrong: tuple[float, float] = (0.02, 0.2)
    turn_back: float = 0.3
    seconds: float = 0.005


def walk(
    ordered: NDArray[np.floating], unvisited: int, options: DetourOptions, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Walk along a tour with wrong turns until few enough nodes are left.

    Parameters
    ----------
    ordered
        ``(N, 2)`` coordinates in the order of the label tour; the walk starts at node 0.
    unvisited
        Nodes that are left when it ends.

    Returns
    -------
    NDArray
        ``(unvisited + 2,)`` rows of the path problem: current node, unvisited nodes, node 0.
    """
    nodes = len(ordered)
    free = np.ones(nodes, bool)
    free[0] = False
    current, step = 0, int(rng.choice((-1, 1)))
    rate = rng.uniform(*options.wrong)
    for _ in range(nodes - 1 - unvisited):
        if rng.random() < rate:
            left = np.flatnonzero(free)
            distance = np.square(ordered[left] - ordered[current]).sum(1)
            near = left[np.argsort(distance)[:NEAREST]]
            current = int(rng.choice(near))
            step = -step if rng.random() < options.turn_back else step
        else:
            current = (current + step) % nodes
            while not free[current]:
                current = (current + step) % nodes
        free[current] = False
    return np.concatenate([[current], np.flatnonzero(free), [0]])


def shortest_path(coords: NDArray[np.floating], seconds: float) -> NDArray[np.int64]:
    """Order the rows of a path problem, ``(L, 2)``: near-optimal from the first through all others to the last.

    A path with fixed ends is a tour that contains the edge between the ends: all other edges are made longer by the
    same amount, so that no tour without it is shorter.

    Raises
    ------
    MissingDependencyError
        Without the package ``fast-tsp``.
    """
    try:
        import fast_tsp
    except ImportError:
        raise MissingDependencyError(
            "Making detours needs the package fast-tsp: pip install 'nco-bench[classical]'."
        ) from None
    extent = float(np.ptp(coords, axis=0).max()) or 1.0
    points = (coords - coords.min(axis=0)) / extent
    distance = np.sqrt(np.square(points[:, None] - points[None]).sum(-1)) + 2.0
    distance[0, -1] = distance[-1, 0] = 0.0
    np.fill_diagonal(distance, 0.0)
    tour = np.asarray(
        fast_tsp.find_tour(np.rint(distance * 19_000).astype(np.int32), duration_seconds=seconds)
    )
    tour = np.roll(tour, -int(np.flatnonzero(tour == 0)[0]))
    if tour[-1] != len(coords) - 1:
        tour = np.roll(tour[::-1], 1)
    return tour


def make_detours(
    ordered: NDArray[np.floating], rows: int, seed: int, options: DetourOptions | None = None
) -> NDArray[np.float32]:
    """Make one path problem per label tour, and solve it.

    Parameters
    ----------
    ordered
        ``(B, N, 2)`` coordinates in tour order.
    rows
        Rows of each path problem, ends included; 4 to N.
    seed
        Instance i uses the random numbers of ``(seed, i)``.

    Returns
    -------
    NDArray
        ``(B', rows, 2)`` coordinates in the order of the path; B' is smaller than B where the solver did not join the ends.
    """
    if not 4 <= rows <= ordered.shape[1]:
        raise BadInputError(f"Detours of {rows} rows: expected 4 to {ordered.shape[1]}.")
    options = options or DetourOptions()
    paths = []
    for index, instance in enumerate(ordered):
        rng = np.random.default_rng([seed, index])
        shift = int(rng.integers(len(instance)))
        rolled = np.roll(instance, -shift, axis=0)
        problem = rolled[walk(rolled, rows - 2, options, rng)]
        order = shortest_path(problem, options.seconds)
        if order[-1] == rows - 1:
            paths.append(problem[order])
    return np.stack(paths).astype(np.float32)


def save_paths(paths: NDArray[np.float32], file: Path) -> Path:
    """Write a shard of solved path problems, which `data.read_shard` reads."""
    with replacing(file, BadInputError, sync=False) as temporary, temporary.open("wb") as content:
        np.savez(content, paths=paths)
    return file
