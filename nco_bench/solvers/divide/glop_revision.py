"""GLOP's revision of tours: cut into segments, let a reviser reorder each, keep what is not longer, rotate, repeat.

All lengths that decide something are float32, as in the official code (henry-yeh/GLOP), which reorders coordinates; here
the nodes are moved along with them.

Letters in shapes: B instances, W widths (tours of an instance), R = W B tours, N nodes, S segments, n nodes of each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nco_bench.nn.device import PerDevice
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.draws import mixed
from nco_bench.solvers.decoding.search import greedy_choice, sampling
from nco_bench.solvers.divide.glop import Choose, both_ways
from nco_bench.solvers.stepwise.am import Am

NODES_AT_A_TIME = PerDevice(cpu=2**13, gpu=2**21)
"""Nodes of segments, flips included, that a reviser sees together."""

FLIPS = 4
SMALL = 100
"""Up to this many nodes the flips of a whole instance count as widths."""


@dataclass(frozen=True)
class Revision:
    """How tours are revised.

    Attributes
    ----------
    rounds
        (segment length, iterations) of each reviser, in order.
    width
        Initial tours of each instance, flips included where there are any.
    augment
        Give the reviser each segment flipped in four ways.
    prune
        Keep the best tour of an instance after the first reviser; otherwise at the end.
    sample
        Let revisers draw nodes instead of taking the likeliest.
    """

    rounds: tuple[tuple[int, int], ...]
    width: int = 1
    augment: bool = True
    prune: bool = True
    sample: bool = False

    def flips(self, nodes: int) -> bool:
        """Whether the flips of a whole instance count as widths."""
        return nodes <= SMALL and self.width >= FLIPS

    def insertions(self, nodes: int) -> int:
        """Insertion tours that an instance needs."""
        return self.width // FLIPS if self.flips(nodes) else self.width


@dataclass(frozen=True)
class Tours:
    """Tours with the coordinates of their nodes in the same order.

    Attributes
    ----------
    nodes
        ``(R, N)`` int64.
    points
        ``(R, N, 2)`` float32.
    """

    nodes: Tensor
    points: Tensor

    def take(self, rows: Tensor) -> Tours:
        """Pick tours."""
        return Tours(self.nodes[rows], self.points[rows])

    def lengths(self) -> Tensor:
        """Closed lengths, ``(R,)`` float32."""
        return open_lengths(self.points) + (self.points[:, 0] - self.points[:, -1]).norm(dim=1)


def open_lengths(points: Tensor) -> Tensor:
    """Lengths of paths ``(S, n, 2)``, ``(S,)``."""
    return (points[:, 1:] - points[:, :-1]).norm(dim=2).sum(dim=1)


def transformed(segments: Tensor) -> Tensor:
    """Shift segments to the origin, lay their longer side along x, and scale it to one; ``(S, n, 2)``."""
    shifted = segments - segments.amin(dim=1, keepdim=True)
    extent = shifted.amax(dim=1)  # (S, 2)
    tall = extent[:, 1] > extent[:, 0]
    shifted = torch.where(tall[:, None, None], shifted.flip(2), shifted)
    return shifted / (extent.amax(dim=1)[:, None, None] + 1e-10)


def flipped(points: Tensor) -> Tensor:
    """Return points ``(S, n, 2)`` as they are, flipped along x, along y, and along both: ``(4 S, n, 2)``."""
    x, y = points.unbind(2)
    return torch.cat([torch.stack(pair, 2) for pair in ((x, y), (1 - x, y), (x, 1 - y), (1 - x, 1 - y))])


def new_orders(
    reviser: Am,
    segments: Tensor,
    *,
    augment: bool,
    seeds: Tensor | None = None,
    deadline: float | None = None,
) -> Tensor:
    """Let a reviser reorder segments; the best of its answers, or the old order where all are longer.

    Parameters
    ----------
    reviser
        The network of this length.
    segments
        ``(S, n, 2)`` raw coordinates in path order.
    augment
        Give it each segment in four flips.
    seeds
        ``(S,)`` int64: draw nodes, with these seeds; None takes the likeliest.
    deadline
        Clock time (``time.perf_counter``) after which segments are left as they are.

    Returns
    -------
    Tensor
        ``(S, n)`` int64 orders; first and last node stay.
    """
    count, length, _ = segments.shape
    block = max(1, NODES_AT_A_TIME.on(segments.device) // (length * (FLIPS if augment else 1)))
    orders = torch.arange(length, device=segments.device).repeat(count, 1)
    for rows in (slice(start, start + block) for start in range(0, count, block)):
        if deadline is not None and time.perf_counter() >= deadline:
            break
        orders[rows] = _block_orders(reviser, segments[rows], augment, None if seeds is None else seeds[rows])
    return orders


def _block_orders(reviser: Am, segments: Tensor, augment: bool, seeds: Tensor | None) -> Tensor:
    """Reorder segments that fit into memory together, see `new_orders`."""
    count, length, _ = segments.shape
    copies = FLIPS if augment else 1
    seen = transformed(segments)
    seen = flipped(seen) if augment else seen
    choose: Choose = greedy_choice
    if seeds is not None:
        choose = sampling(torch.cat([mixed(seeds) + flip for flip in range(copies)]), 0, 2)
    paths = both_ways(reviser, seen, choose)
    # Forward answers of all flips, then backward ones; the first of the shortest is taken.
    # Lengths are summed in the order of decoding: paths from the depot to the depot are mirror images, equally long.
    lengths = [open_lengths(_reordered(seen, path)) for path in (paths[:, 0], paths[:, 1].flip(1))]
    best = torch.cat(lengths).view(2 * copies, count).argmin(dim=0)
    candidates = paths.transpose(0, 1).reshape(2 * copies, count, length)
    order = candidates[best, torch.arange(count, device=best.device)]
    longer = open_lengths(_reordered(segments, order)) > open_lengths(segments)
    return torch.where(longer[:, None], torch.arange(length, device=order.device), order)


def _reordered(points: Tensor, order: Tensor) -> Tensor:
    return points.gather(1, order[..., None].expand(-1, -1, 2))


def revise(
    reviser: Am,
    length: int,
    iterations: int,
    tours: Tours,
    *,
    augment: bool = True,
    seeds: Tensor | None = None,
    deadline: float | None = None,
) -> Tours:
    """Revise tours with one reviser.

    Every iteration rotates the tours by ``length // iterations`` (at least 1), leaves the last ``N mod length`` nodes
    alone and revises the segments of the rest.

    Parameters
    ----------
    reviser, length, iterations
        The network, its segment length (at most N), how often.
    tours
        R tours.
    augment
        See `new_orders`.
    seeds
        ``(R,)`` int64 for sampling, or None.
    deadline
        Clock time (``time.perf_counter``) after which nothing more is revised.
    """
    count, size, _ = tours.points.shape
    pieces = size // length
    shift = max(length // iterations, 1)
    nodes, points = tours.nodes, tours.points
    for iteration in tracked(range(iterations), "revision"):
        if deadline is not None and time.perf_counter() >= deadline:
            break
        nodes, points = nodes.roll(-shift, 1), points.roll(-shift, 1)
        segments = points[:, : pieces * length].reshape(-1, length, 2)
        keys = None
        if seeds is not None:
            keys = mixed(mixed(seeds + iteration)[:, None] + torch.arange(pieces, device=seeds.device))
        order = new_orders(
            reviser,
            segments,
            augment=augment,
            seeds=None if keys is None else keys.flatten(),
            deadline=deadline,
        )
        start = torch.arange(pieces, device=order.device)[:, None] * length
        order = (order.view(count, pieces, length) + start).flatten(1)
        rest = torch.arange(pieces * length, size, device=order.device).expand(count, -1)
        order = torch.cat([order, rest], dim=1)
        nodes, points = nodes.gather(1, order), _reordered(points, order)
    return Tours(nodes, points)


def solve_tsp(
    revisers: Mapping[int, Am],
    coords: Tensor,
    initial: Tensor,
    revision: Revision,
    *,
    seeds: Tensor | None = None,
    deadline: float | None = None,
) -> Tours:
    """Revise initial tours, and return the best of each instance.

    Parameters
    ----------
    revisers
        Networks by segment length, those of `revision` among them.
    coords
        ``(B, N, 2)`` float32.
    initial
        ``(W, B, N)`` tours, `Revision.insertions` of each instance.
    revision
        How; segments longer than N are left out.
    seeds
        ``(B,)`` int64, for sampling.
    deadline
        See `revise`.

    Returns
    -------
    Tours
        B tours, rotated arbitrarily; their points are those of the winning flip where flips count as widths.
    """
    batch, size, _ = coords.shape
    nodes = initial.flatten(0, 1)
    points = _reordered(coords.repeat(len(initial), 1, 1), nodes)
    if revision.flips(size):
        nodes, points = nodes.repeat(FLIPS, 1), flipped(points)
    tours = Tours(nodes, points)
    rounds = [(n, i) for n, i in revision.rounds if n <= size]
    for number, (length, iterations) in enumerate(tracked(rounds, "round", [i for _, i in rounds])):
        keys = None
        if revision.sample:
            seeds = torch.arange(batch) if seeds is None else seeds
            widths = torch.arange(len(tours.nodes) // batch, device=coords.device)[:, None]
            keys = mixed(mixed(mixed(seeds.to(coords.device)) + widths) + (number << 32)).flatten()
        tours = revise(
            revisers[length],
            length,
            iterations,
            tours,
            augment=revision.augment,
            seeds=keys,
            deadline=deadline,
        )
        if number == 0 and revision.prune:
            tours = _best(tours, batch)
    return _best(tours, batch)


def _best(tours: Tours, batch: int) -> Tours:
    """Keep the shortest tour of each instance (the first among equals); widths are the outer axis."""
    if len(tours.nodes) == batch:
        return tours
    best = tours.lengths().view(-1, batch).argmin(dim=0)
    return tours.take(best * batch + torch.arange(batch, device=best.device))
