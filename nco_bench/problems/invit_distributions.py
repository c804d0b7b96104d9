"""Cluster, explosion and implosion as INViT's generator draws them: the unit box of what is drawn, not of where.

They differ from the distributions of the same names in `nco_bench.problems.distributions`: the radius of a blast is random,
points are thrown outwards instead of through the centre, nothing is clipped or placed anew, and at the end the instance is
shifted and scaled, both axes alike, until it touches the origin's axes and its longer side is 1.

Sources
-------
Fang, Song, Weng, Ban (2024). INViT: a generalizable routing problem solver with invariant nested view transformer. *ICML*;
settings of the authors' generator. Its CVRP also draws the depot so and scales it along; here a depot is uniform in the unit
square, as for every other distribution.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

RADIUS = (0.1, 0.5)
"""Least and largest radius of explosion and implosion, uniform per instance."""
MEAN_THROW = 0.1
"""Of the exponential distance that an explosion throws beyond its radius: rate 10."""


def invit_clustered(
    rng: np.random.Generator, n: int, *, clusters: int = 3, spread: float = 10.0
) -> FloatArray:
    """Draw from unit Gaussians with centres U(0, `spread`)^2; each point belongs to any of them with equal odds."""
    centres = rng.uniform(0.0, spread, (clusters, 2))
    return to_unit_box(centres[rng.integers(0, clusters, n)] + rng.standard_normal((n, 2)))


def invit_explosion(rng: np.random.Generator, n: int) -> FloatArray:
    """Throw uniform points out of a disc around a uniform centre.

    Each point p nearer to the centre c than the radius r ~ U(0.1, 0.5) moves to ``c + (p - c) / |p - c| (r + s)``, s
    exponential with mean 0.1.
    """
    points, centre, radius = rng.random((n, 2)), rng.random(2), rng.uniform(*RADIUS)
    offset = points - centre
    distance = np.linalg.norm(offset, axis=1, keepdims=True)
    inside = distance[:, 0] < radius
    throw = radius + rng.exponential(MEAN_THROW, (n, 1))
    away = np.divide(offset, distance, out=np.zeros_like(offset), where=distance > 0.0)
    points[inside] = centre + (away * throw)[inside]
    return to_unit_box(points)


def invit_implosion(rng: np.random.Generator, n: int) -> FloatArray:
    """Drag a disc of uniform points towards its uniform centre, or through it.

    Each point p nearer to the centre c than the radius r ~ U(0.1, 0.5) moves to ``c + (p - c) min(w, r)``, with one standard
    normal w for the instance: where w < 0 the disc is mirrored, and below -1 it grows.
    """
    points, centre, radius = rng.random((n, 2)), rng.random(2), rng.uniform(*RADIUS)
    offset = points - centre
    inside = np.linalg.norm(offset, axis=1) < radius
    points[inside] = centre + offset[inside] * min(rng.standard_normal(), radius)
    return to_unit_box(points)


def to_unit_box(points: FloatArray) -> FloatArray:
    """Shift ``(n, 2)`` points to the axes and scale both by the larger extent; points that all coincide go to 0."""
    shifted: FloatArray = points - points.min(axis=0)
    extent = shifted.max()
    return shifted / extent if extent > 0.0 else shifted
