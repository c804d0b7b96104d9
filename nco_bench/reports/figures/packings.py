"""Pictures of packings in three dimensions: the bin seen from above one of its corners; PNG, PDF or SVG.

Boxes are projected isometrically and drawn from the back to the front with their three visible faces, so hidden ones stay
hidden whatever their shape, which matplotlib's own 3D axes do not guarantee. Colours are Okabe and Ito's.
"""

from __future__ import annotations

import heapq
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems import Instance, bpp3d
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.reports.figures.style import checked_target, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
EDGE, WALL = "#222222", "#aaaaaa"
FACES = (
    (((0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)), 0.45),  # top
    (((1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1)), 0.18),  # high x
    (((0, 1, 0), (1, 1, 0), (1, 1, 1), (0, 1, 1)), 0.0),  # high y
)
"""Corners of a visible face as shares of the box, and how much white its colour takes."""

INCHES = 5.0
TALLEST = 2.2
"""Largest height of a picture, in multiples of its width."""


def draw_packing(
    instance: Instance,
    path: Path | str,
    solution: NDArray[np.integer] | None = None,
    *,
    author: str = "",
    dpi: int = 300,
) -> Path:
    """Draw a packing into a file.

    Parameters
    ----------
    instance
        A packing instance.
    path
        ``.png``, ``.pdf`` or ``.svg``; replaced as a whole or not at all.
    solution
        ``(4 N,)`` rows x, y, z, orientation. Without one, or with one that overlaps itself or leaves the bin, there is
        nothing to draw.
    author
        Who packed, for the title, which says the instance, its number of boxes, height and load rate too.
    dpi
        Of a PNG.

    Raises
    ------
    BadInputError
        For an instance of another problem, or a solution that is missing or infeasible.
    MissingDependencyError
        Without matplotlib.
    """
    target = checked_target(path)
    if not isinstance(instance, BPP3DInstance):
        raise BadInputError(f"{instance.name}: a {instance.problem} instance is not a packing.")
    if solution is None:
        raise BadInputError(f"{instance.name}: name a solver whose packing is to be drawn, with --solver.")
    wrong = bpp3d.violations(instance, solution)
    if wrong:
        raise BadInputError(f"{instance.name}: the packing cannot be drawn, {wrong[0]}.")
    low, high = bpp3d.corners(instance, solution)
    text = _caption(instance, solution)
    with figure(1, target, square=True, dpi=dpi) as (fig, (axes,)):
        span = _draw(axes, instance, low, high)
        fig.set_size_inches(INCHES, INCHES * min(TALLEST, span[1] / span[0]) + 0.4)
        axes.set_title(f"{author} on {text}".replace(": ", "\n", 1) if author else text)
    return target


def _caption(instance: BPP3DInstance, solution: NDArray[np.integer]) -> str:
    length, width = instance.base
    return (
        f"{instance.name}: {instance.n} boxes on {length} x {width}, height {bpp3d.height(instance, solution)}, "
        f"load rate {bpp3d.score(instance, solution):.1f} %"
    )


def project(points: NDArray[np.integer] | Floats) -> Floats:
    """Project ``(..., 3)`` points isometrically to ``(..., 2)``; the viewer is where x, y and z are large."""
    x, y, z = np.moveaxis(np.asarray(points, dtype=np.float64), -1, 0)
    return np.stack([(y - x) * np.sqrt(3) / 2, z - (x + y) / 2], axis=-1)


def _draw(
    axes: Axes, instance: BPP3DInstance, low: NDArray[np.int64], high: NDArray[np.int64]
) -> tuple[float, float]:
    """Draw walls and boxes; return width and height of what was drawn."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgb

    length, width = (float(side) for side in instance.base)
    top = float(high[:, 2].max())
    walls = [
        [(length, 0, 0), (0, 0, 0), (0, width, 0), (length, width, 0), (length, 0, 0), (length, 0, top)],
        [(0, 0, 0), (0, 0, top), (0, width, top), (0, width, 0)],
        [(0, 0, top), (length, 0, top)],
    ]
    lines = [project(np.array(w)) for w in walls]
    axes.add_collection(LineCollection(lines, colors=WALL, linewidths=0.8, zorder=1))
    faces, colours = [], []
    for box in back_to_front(low, high):
        colour = np.array(to_rgb(COLOURS[box % len(COLOURS)]))
        for corners, white in FACES:
            share = np.array(corners)
            faces.append(project(low[box] + share * (high[box] - low[box])))
            colours.append(colour + (1 - colour) * white)
    thin = 0.6 if len(low) <= 200 else 0.25
    polygons = PolyCollection(faces, facecolors=colours, edgecolors=EDGE, linewidths=thin, zorder=2)
    axes.add_collection(polygons)
    outline = project(np.array([(0, width, 0), (length, 0, 0), (length, width, 0), (0, 0, top)]))
    margin = 0.02 * (length + width)
    axes.set_xlim(outline[:, 0].min() - margin, outline[:, 0].max() + margin)
    axes.set_ylim(outline[:, 1].min() - margin, outline[:, 1].max() + margin)
    axes.set_aspect("equal")
    axes.set_axis_off()
    return float(np.ptp(outline[:, 0])), float(np.ptp(outline[:, 1]))


def back_to_front(low: NDArray[np.int64], high: NDArray[np.int64]) -> list[int]:
    """Order boxes so that none is drawn after one that hides a part of it.

    Two boxes that share no space are apart along some axis; the one with the smaller coordinates there cannot hide
    the other. Only pairs whose pictures meet matter. Where such pairs form a ring, which boxes rarely do, the one with
    the fewest before it is drawn first.

    Parameters
    ----------
    low, high
        ``(N, 3)`` corners of boxes that do not overlap.
    """
    count = len(low)
    behind = np.zeros((count, count), dtype=bool)  # [a, b]: a cannot hide b
    for axis in range(3):
        behind |= high[:, axis, None] <= low[None, :, axis]
    # Pictures are hexagons: they meet if they do along all three directions of their sides.
    meets = np.ones((count, count), dtype=bool)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        first, last = low[:, one] - high[:, other], high[:, one] - low[:, other]
        meets &= (first[:, None] < last) & (first < last[:, None])
    before = behind & ~behind.T & meets
    waiting = before.sum(0)
    heap = [(int(waiting[k]), k) for k in range(count)]
    heapq.heapify(heap)
    order, done = [], np.zeros(count, dtype=bool)
    while heap:
        left, box = heapq.heappop(heap)
        if done[box] or left != waiting[box]:
            continue
        done[box] = True
        order.append(box)
        for other in np.flatnonzero(before[box] & ~done).tolist():
            waiting[other] -= 1
            heapq.heappush(heap, (int(waiting[other]), other))
    return order
