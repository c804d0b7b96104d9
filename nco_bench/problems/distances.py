"""Distance conventions: named rules for the length of an edge.

The same tour has another length under another convention (berlin52: 7542 or 7544.37), so every dataset
carries the name of one, and every table prints it. TSPLIB's rules are those of Reinelt (1995), "TSPLIB 95".
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import UnknownNameError

FloatArray = NDArray[np.float64]
EdgeRule = Callable[[FloatArray, FloatArray], FloatArray]

EARTH_RADIUS_KM = 6378.388
"""TSPLIB's idealised sphere; other radii give other optima for GEO instances."""

TSPLIB_PI = 3.141592
"""TSPLIB truncates pi, and its optima depend on it."""

LARGEST_COORDINATE = 1e150
"""Squares of larger ones overflow: an edge would have no finite length, and a tour no cost."""


def coordinate_fault(coords: FloatArray) -> tuple[int, str] | None:
    """Return the first row of ``(N, 2)`` coordinates that no distance can be taken of, and why; None where all can."""
    # Where this is finite, so is the square of every distance; one number is quick to check.
    if isfinite(4.0 * np.vdot(coords, coords)):
        return None
    beyond = f"are beyond {LARGEST_COORDINATE:g}, where lengths overflow; scale them down"
    faults = {"are not finite numbers": ~np.isfinite(coords), beyond: np.abs(coords) > LARGEST_COORDINATE}
    return next(((int(bad.any(-1).argmax()), what) for what, bad in faults.items() if bad.any()), None)


def matrix_fault(matrix: FloatArray) -> str | None:
    """Say which entry of a square matrix cannot be a distance, not finite or negative; None where all can."""
    for what, bad in (("is not a finite number", ~np.isfinite(matrix)), ("is negative", matrix < 0)):
        if bad.any():
            a, b = np.argwhere(bad)[0]
            return f"the distance from node {a} to node {b} {what}"
    return None


def euclidean(a: FloatArray, b: FloatArray) -> FloatArray:
    """Unrounded Euclidean distance in float64, ``(..., 2)`` x ``(..., 2)`` to ``(...)``."""
    d = a - b
    return np.sqrt(d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1])


def nint(a: FloatArray, b: FloatArray) -> FloatArray:
    """EUC_2D: Euclidean distance rounded by floor(x + 0.5), as TSPLIB and CVRPLIB's X set do."""
    return np.floor(euclidean(a, b) + 0.5)


def ceil(a: FloatArray, b: FloatArray) -> FloatArray:
    """CEIL_2D: Euclidean distance rounded up."""
    return np.ceil(euclidean(a, b))


def att(a: FloatArray, b: FloatArray) -> FloatArray:
    """ATT: pseudo-Euclidean distance, sqrt(d^2 / 10) rounded up where rounding would fall below it."""
    d = a - b
    r = np.sqrt((d[..., 0] * d[..., 0] + d[..., 1] * d[..., 1]) / 10.0)
    t = np.floor(r + 0.5)
    return np.where(t < r, t + 1.0, t)


def _radians(coords: FloatArray) -> FloatArray:
    """Turn TSPLIB's DDD.MM notation into radians; degrees are truncated, not rounded."""
    degrees = np.trunc(coords)
    minutes = coords - degrees
    return TSPLIB_PI * (degrees + 5.0 * minutes / 3.0) / 180.0


def geo(a: FloatArray, b: FloatArray) -> FloatArray:
    """GEO: distance on the sphere in kilometres, truncated after adding 1."""
    p, q = _radians(a), _radians(b)
    q1 = np.cos(p[..., 1] - q[..., 1])
    q2 = np.cos(p[..., 0] - q[..., 0])
    q3 = np.cos(p[..., 0] + q[..., 0])
    cosine = np.clip(0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3), -1.0, 1.0)
    return np.floor(EARTH_RADIUS_KM * np.arccos(cosine) + 1.0)


def manhattan(a: FloatArray, b: FloatArray) -> FloatArray:
    """MAN_2D: Manhattan distance rounded by floor(x + 0.5)."""
    return np.floor(np.abs(a - b).sum(-1) + 0.5)


def maximum(a: FloatArray, b: FloatArray) -> FloatArray:
    """MAX_2D: the larger of the two rounded coordinate differences."""
    return np.floor(np.abs(a - b) + 0.5).max(-1)


CONVENTIONS: dict[str, EdgeRule] = {
    "euclidean": euclidean,
    "tsplib-nint": nint,
    "cvrplib-nint": nint,
    "ceil": ceil,
    "att": att,
    "geo": geo,
    "manhattan": manhattan,
    "maximum": maximum,
}
"""Rules on coordinates. The convention ``explicit`` reads a matrix instead and has no rule here."""


def edge_rule(convention: str) -> EdgeRule:
    """Return the rule called `convention`; raises `UnknownNameError` for any other name."""
    try:
        return CONVENTIONS[convention]
    except KeyError:
        raise UnknownNameError("distance convention", convention, [*CONVENTIONS, "explicit"]) from None


def cycle_length(coords: FloatArray, order: NDArray[np.integer], convention: str = "euclidean") -> float:
    """Length of the closed walk that visits `order` and returns to its start.

    Parameters
    ----------
    coords
        ``(N, 2)`` raw coordinates.
    order
        ``(L,)`` node indices.
    convention
        Name of the rule for one edge.

    Returns
    -------
    float
        The sum in float64; O(L) memory.
    """
    points = coords[order]
    following = np.empty_like(
        points
    )  # np.roll does the same at three times the cost, which counts at n = 100
    following[:-1] = points[1:]
    following[-1] = points[0]
    return float(edge_rule(convention)(points, following).sum())
