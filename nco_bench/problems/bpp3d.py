"""Offline packing of boxes into one bin of fixed base and open height: instances, feasibility and load rate.

Instance: N >= 1 boxes with whole sides (l, w, h) and a bin base of whole length L (x) and width W (y); z points up.
Solution: 4 N integers, four per box in the order of the boxes: the corner x, y, z nearest to the origin, the orientation.
Orientation k puts the box's sides in the order `ORIENTATIONS[k]` along x, y, z; all six are allowed, nothing else is.
Score: load rate in percent, 100 x total volume of the boxes / (L x W x height reached). Higher is better. It depends on
where the boxes lie, not on the order in which they were placed; nothing asks that a box rests on another.

Convention ``load-rate`` (EIE, section 5.1; attend2pack calls a hundredth of it utility, with other names for the axes).

Version history: 1 (first).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, UnknownNameError

NAME = "bpp3d"
VERSION = "1"
OBJECTIVE = "max"
CONVENTION = "load-rate"

ORIENTATIONS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
"""Orientation to which of the sides lie along x, y and z."""

LARGEST_HEIGHT = 2**31 - 1
"""Solutions are stored as int32, so a stack of all boxes must not be higher."""

PAIRS_AT_A_TIME = 2**20
"""Pairs of boxes compared together, to bound memory."""


@dataclass(frozen=True, eq=False)
class BPP3DInstance:
    """One instance.

    Attributes
    ----------
    name
        Unique within its dataset.
    boxes
        ``(N, 3)`` int64 sides.
    base
        ``(2,)`` int64 length L (along x) and width W (along y) of the bin.
    convention
        Always ``load-rate``.
    """

    name: str
    boxes: NDArray[np.int64]
    base: NDArray[np.int64]
    convention: str = CONVENTION
    problem: str = field(default=NAME, init=False)

    def __post_init__(self) -> None:
        if self.convention != CONVENTION:
            raise UnknownNameError(f"convention of {NAME}", self.convention, [CONVENTION])
        object.__setattr__(self, "boxes", self._whole("boxes", self.boxes))
        object.__setattr__(self, "base", self._whole("base", self.base))
        if self.base.shape != (2,):
            raise BadInputError(f"{self.name}: the bin's base has shape {self.base.shape}; expected (2,).")
        if self.boxes.ndim != 2 or self.boxes.shape[1] != 3 or len(self.boxes) == 0:
            raise BadInputError(
                f"{self.name}: the boxes have shape {self.boxes.shape}; expected (N, 3) with N >= 1."
            )
        self._check_sides()

    def _whole(self, what: str, values: Any) -> NDArray[np.int64]:
        array = np.asarray(values)
        if array.size and array.dtype.kind not in "iu":  # noqa: SIM102
            if array.dtype.kind != "f" or not np.isfinite(array).all() or (array != np.floor(array)).any():
                raise BadInputError(f"{self.name}: the {what} must be whole numbers; scale them up first.")
        return array.astype(np.int64)

    def _check_sides(self) -> None:
        length, width = (int(side) for side in self.base)
        if length <= 0 or width <= 0:
            raise BadInputError(f"{self.name}: the bin's base is {length} x {width}; both must be positive.")
        if (self.boxes <= 0).any():
            box = int(np.flatnonzero((self.boxes <= 0).any(1))[0])
            raise BadInputError(
                f"{self.name}: box {box} has sides {_sides(self.boxes[box])}; all must be positive."
            )
        ordered = np.sort(self.boxes, axis=1)  # lying on its largest side gives a box the smallest footprint
        too_large = (ordered[:, 0] > min(length, width)) | (ordered[:, 1] > max(length, width))
        if too_large.any():
            box = int(np.flatnonzero(too_large)[0])
            raise BadInputError(
                f"{self.name}: box {box} with sides {_sides(self.boxes[box])} does not fit the bin of base "
                f"{length} x {width} in any orientation; leave it out or take a larger bin."
            )
        if ordered[:, 2].astype(np.float64).sum() > LARGEST_HEIGHT or max(length, width) > LARGEST_HEIGHT:
            raise BadInputError(f"{self.name}: sides add up to more than {LARGEST_HEIGHT}; scale them down.")

    @property
    def n(self) -> int:
        """Number of boxes."""
        return len(self.boxes)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance, for hashing and storage."""
        return {"boxes": self.boxes, "base": self.base}


def _sides(sides: NDArray[np.int64]) -> str:
    return " x ".join(str(int(side)) for side in sides)


def from_arrays(name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> BPP3DInstance:
    """Build an instance from its arrays; undoes `BPP3DInstance.arrays`."""
    return BPP3DInstance(name, arrays["boxes"], arrays["base"], convention)


def corners(
    instance: BPP3DInstance, solution: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where boxes begin and end, two ``(N, 3)`` arrays, of a solution of the right length and orientations."""
    rows = np.asarray(solution).astype(np.int64).reshape(-1, 4)
    along_axes = np.array(ORIENTATIONS)[rows[:, 3]]
    return rows[:, :3], rows[:, :3] + np.take_along_axis(instance.boxes, along_axes, axis=1)


def violations(instance: BPP3DInstance, solution: NDArray[np.integer]) -> tuple[str, ...]:
    """Say what is wrong with a packing; empty for a feasible one.

    Parameters
    ----------
    instance
        The instance.
    solution
        Candidate packing; any array is accepted and judged.
    """
    flat, n = np.asarray(solution), instance.n
    if flat.ndim != 1 or not np.issubdtype(flat.dtype, np.integer):
        return (f"a packing is a flat array of integers, got {flat.dtype} with shape {flat.shape}",)
    if len(flat) != 4 * n:
        return (f"{len(flat)} integers for {n} boxes; expected 4 per box: x, y, z, orientation",)
    rows = flat.reshape(n, 4)
    turned = np.flatnonzero((rows[:, 3] < 0) | (rows[:, 3] > 5))
    if len(turned):
        return (f"box {int(turned[0])} has orientation {int(rows[turned[0], 3])}, expected 0..5",)
    if rows.max() > LARGEST_HEIGHT or rows.min() < -LARGEST_HEIGHT:
        return (f"a position is beyond {LARGEST_HEIGHT}",)
    low, high = corners(instance, flat)
    outside = np.flatnonzero((low < 0).any(1) | (high[:, :2] > instance.base).any(1))
    if len(outside):
        box = int(outside[0])
        return (f"box {box} reaches out of the bin: from {_point(low[box])} to {_point(high[box])}",)
    pair = first_overlap(low, high)
    return () if pair is None else (f"boxes {pair[0]} and {pair[1]} overlap",)


def _point(corner: NDArray[np.int64]) -> str:
    return "(" + ", ".join(str(int(c)) for c in corner) + ")"


def first_overlap(low: NDArray[np.int64], high: NDArray[np.int64]) -> tuple[int, int] | None:
    """Return two boxes that share space, or None; touching faces share none.

    Boxes are sorted by z. Each is compared with those that begin above where it begins and below where it ends.

    Parameters
    ----------
    low, high
        ``(N, 3)`` corners.
    """
    order = np.argsort(low[:, 2], kind="stable")
    low, high = low[order], high[order]
    ends = np.searchsorted(low[:, 2], high[:, 2], side="left")
    start, n = 0, len(low)
    while start < n:
        stop = start + max(1, PAIRS_AT_A_TIME // n)
        end = int(ends[start:stop].max())
        rows, columns = slice(start, min(stop, n)), slice(start + 1, max(end, start + 1))
        shared = np.ones((rows.stop - start, columns.stop - columns.start), dtype=bool)
        for axis in range(3):
            shared &= low[rows, axis][:, None] < high[columns, axis]
            shared &= low[columns, axis] < high[rows, axis][:, None]
        # Only pairs with the second box after the first: no box is compared with itself.
        shared &= np.arange(start, rows.stop)[:, None] < np.arange(columns.start, columns.stop)
        if shared.any():
            i, j = (int(k) for k in np.argwhere(shared)[0])
            a, b = int(order[start + i]), int(order[columns.start + j])
            return min(a, b), max(a, b)
        start = stop
    return None


def height(instance: BPP3DInstance, solution: NDArray[np.integer]) -> int:
    """Return the height that a packing reaches."""
    return int(corners(instance, solution)[1][:, 2].max())


def score(instance: BPP3DInstance, solution: NDArray[np.integer]) -> float:
    """Load rate of a feasible packing in percent, from whole numbers.

    Parameters
    ----------
    instance
        The instance.
    solution
        ``(4 N,)`` rows x, y, z, orientation; check with `violations` first.
    """
    volume = sum(a * b * c for a, b, c in instance.boxes.tolist())
    length, width = instance.base.tolist()
    return 100.0 * volume / (length * width * height(instance, solution))
