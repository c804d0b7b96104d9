"""Dropping boxes onto a height map, deepest-bottom-left (after Karabulut and Inceoglu, 2004), base fixed, height open.

Boxes come in a given order and are lowered from above. Of all orientations and whole positions the one with the lowest top
is taken, then the lowest, rearmost, leftmost. Holes under boxes are lost, but every box rests on the floor or on another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.bpp3d import ORIENTATIONS

Int = NDArray[np.int64]


def sliding_max(values: NDArray[np.int32], window: int) -> NDArray[np.int32]:
    """Return the maxima of all windows along the first axis, ``(A, B)`` to ``(A - window + 1, B)``."""
    width, out = 1, values
    while 2 * width <= window:
        out = np.maximum(out[:-width], out[width:])
        width *= 2
    rest = window - width
    return np.maximum(out[:-rest], out[rest:]) if rest else out


def pack_deepest_bottom_left(boxes: Int, base: Int, order: Int) -> Int:
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
    heights = np.zeros(tuple(base), dtype=np.int32)
    rows = np.empty((len(boxes), 4), np.int64)
    permutations = np.array(ORIENTATIONS)
    for box in order:
        extents, turns = np.unique(boxes[box][permutations], axis=0, return_index=True)
        (top, z, x, y), chosen = _best(heights, extents)
        ex, ey, _ = extents[chosen]
        heights[x : x + ex, y : y + ey] = top
        rows[box] = x, y, z, turns[chosen]
    return rows


def _best(heights: NDArray[np.int32], extents: Int) -> tuple[tuple[int, int, int, int], int]:
    """Return (top, z, x, y) of the best place, and the row of `extents` that it is for."""
    places: list[tuple[tuple[int, int, int, int], int]] = []
    along_x: dict[int, NDArray[np.int32]] = {}
    for turn, (ex, ey, ez) in enumerate(extents.tolist()):
        if ex > heights.shape[0] or ey > heights.shape[1]:
            continue
        if ex not in along_x:
            along_x[ex] = np.ascontiguousarray(sliding_max(heights, ex).T)
        rests = sliding_max(along_x[ex], ey).T  # (L - ex + 1, W - ey + 1)
        z = int(rests.min())
        x, y = (int(k) for k in np.argwhere(rests == z)[0])
        places.append(((z + ez, z, x, y), turn))
    return min(places)
