"""Placing boxes at extreme points (Crainic, Perboli and Tadei, 2008), for a bin of fixed base and open height.

Boxes come in a given order. Each is put, in the best of its six orientations, at one of the extreme points: the corners
that boxes leave when they are projected onto those placed before. Points under other boxes stay usable, so holes get
filled. Among all feasible (point, orientation) pairs the one with the lowest top is taken, then the lowest, rearmost,
leftmost point: `MERITS`. A box needs no support from below.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.bpp3d import ORIENTATIONS

Int = NDArray[np.int64]

CANDIDATES_AT_A_TIME = 32
"""Pairs of point and orientation that are tested together, twice as many each time that none of them is free."""

FAR = 2**40
"""Farther than any box reaches: the bin has no lid."""


class _Packing:
    """Boxes placed so far and the extreme points that they leave.

    `room` is how far one can go from each point along each axis before a box or a wall: a box that is longer cannot be
    put there, which settles most cases without looking at other boxes.
    """

    def __init__(self, base: Int, count: int, smallest: int) -> None:
        self.smallest = smallest
        self.walls = np.array([*base, FAR], dtype=np.int64)
        self.low, self.high = np.empty((count, 3), np.int64), np.empty((count, 3), np.int64)
        self.count = 0
        self.points = np.zeros((1, 3), np.int64)
        self.room = self.walls[None].copy()

    def best(self, extents: Int) -> tuple[Int, int]:
        """Return the best feasible point for a box and the row of `extents` ``(O, 3)`` to use there."""
        point, turn = np.nonzero((extents <= self.room[:, None]).all(2))
        low = self.points[point]
        high = low + extents[turn]
        order = np.lexsort((low[:, 1], low[:, 0], low[:, 2], high[:, 2]))
        start, size = 0, CANDIDATES_AT_A_TIME
        while start < len(order):
            group = order[start : start + size]
            start, size = start + size, 2 * size
            free = ~self._blocked(low[group], high[group])
            if free.any():
                chosen = group[int(free.argmax())]
                return low[chosen], int(turn[chosen])
        # On top of everything there is always room.
        fitting = np.flatnonzero((extents <= self.walls).all(1))
        return np.array([0, 0, self.high[: self.count, 2].max()]), int(fitting[0])

    def _blocked(self, low: Int, high: Int) -> NDArray[np.bool_]:
        """Return ``(A,)``: whether boxes from `low` to `high` share space with one that is placed."""
        others_low, others_high = self.low[: self.count], self.high[: self.count]
        near = (others_high[:, 2] > low[:, 2].min()) & (others_low[:, 2] < high[:, 2].max())
        others_low, others_high = others_low[near], others_high[near]
        shared = (low[:, None, 2] < others_high[:, 2]) & (others_low[:, 2] < high[:, None, 2])
        for axis in (0, 1):
            shared &= low[:, None, axis] < others_high[:, axis]
            shared &= others_low[:, axis] < high[:, None, axis]
        return shared.any(1)

    def place(self, low: Int, extent: Int) -> None:
        """Put a box at `low` and move the extreme points."""
        high = low + extent
        new = self._projections(low, high)
        self.low[self.count], self.high[self.count] = low, high
        self.count += 1
        self._shorten(low, high)
        keep = (self.room >= self.smallest).all(1)
        self.points, self.room = self.points[keep], self.room[keep]
        fresh = ~(new[:, None] == self.points).all(2).any(1)
        room = self._room_of(new)
        fresh &= (room >= self.smallest).all(1)
        if fresh.any():
            self.points = np.concatenate([self.points, new[fresh]])
            self.room = np.concatenate([self.room, room[fresh]])

    def _shorten(self, low: Int, high: Int) -> None:
        """Take the new box into account in the room of all points; one inside it has none."""
        inside = (low <= self.points) & (self.points < high)
        for axis in range(3):
            hit = inside[:, (axis + 1) % 3] & inside[:, (axis + 2) % 3] & (self.points[:, axis] < high[axis])
            away = np.maximum(low[axis] - self.points[hit, axis], 0)
            self.room[hit, axis] = np.minimum(self.room[hit, axis], away)

    def _room_of(self, points: Int) -> Int:
        """Return ``(A, 3)``: how far one can go from each point along each axis."""
        above = self.high[: self.count, 2] > points[:, 2].min()
        others_low, others_high = self.low[: self.count][above], self.high[: self.count][above]
        inside = (others_low <= points[:, None]) & (points[:, None] < others_high)
        room = self.walls - points
        for axis in range(3):
            hit = inside[..., (axis + 1) % 3] & inside[..., (axis + 2) % 3]
            hit &= points[:, None, axis] < others_high[:, axis]
            away = np.maximum(others_low[:, axis] - points[:, None, axis], 0)
            room[:, axis] = np.minimum(room[:, axis], np.where(hit, away, FAR).min(1, initial=FAR))
        return room

    def _projections(self, low: Int, high: Int) -> Int:
        """Return the new box's three far corners, each moved back along both other axes until it meets a box or a wall."""
        placed_low, placed_high = self.low[: self.count], self.high[: self.count]
        found = np.empty((6, 3), np.int64)
        row = 0
        for axis in range(3):
            corner = low.copy()
            corner[axis] = high[axis]
            inside = (placed_low <= corner) & (corner < placed_high)
            for along in ((axis + 1) % 3, (axis + 2) % 3):
                meets = (
                    inside[:, axis] & inside[:, 3 - axis - along] & (placed_high[:, along] <= corner[along])
                )
                found[row] = corner
                found[row, along] = placed_high[meets, along].max(initial=0)
                row += 1
        return np.array(sorted(set(map(tuple, found.tolist()))))


def pack_at_extreme_points(boxes: Int, base: Int, order: Int) -> Int:
    """Place boxes one after another.

    Parameters
    ----------
    boxes, base
        ``(N, 3)`` sides, ``(2,)`` length and width of the bin.
    order
        ``(N,)`` permutation of the boxes.

    Returns
    -------
    NDArray
        ``(N, 4)`` rows x, y, z, orientation, in the order of `boxes`.
    """
    packing = _Packing(base, len(boxes), int(boxes.min()))
    rows = np.empty((len(boxes), 4), np.int64)
    permutations = np.array(ORIENTATIONS)
    for box in order:
        extents, turns = np.unique(boxes[box][permutations], axis=0, return_index=True)
        point, chosen = packing.best(extents)
        packing.place(point, extents[chosen])
        rows[box, :3], rows[box, 3] = point, turns[chosen]
    return rows
