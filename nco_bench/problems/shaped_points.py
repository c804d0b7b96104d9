"""Point sets that are not uniform: clusters, mixtures, and the blasts, drags and grids that mutate uniform points.

What each is called, and its parameters' ranges, stands in `nco_bench.problems.distributions`.

Sources
-------
.. [1] Bossek, Kerschke, Neumann, Wagner, Neumann, Trautmann (2019). Evolving diverse TSP instances by means of novel and
   creative mutation operators. *FOGA*. Code: the R package tspgen.
.. [2] Bi, Ma, Wang, Cao, Chen, Sun, Chee (2022). Learning generalizable models for vehicle routing problems via
   knowledge distillation (AMDKD). *NeurIPS*.
.. [3] Zhou, Wu, Song, Cao, Zhang (2023). Towards omni-generalizable neural methods for vehicle routing problems
   (Omni-VRP). *ICML*; after Zhang, Zhang, Wang, Zhu (2022), *AAAI*.
.. [4] Fang, Song, Weng, Ban (2024). INViT: a generalizable routing problem solver with invariant nested view
   transformer. *ICML*.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

BLAST_SCALE = 0.1
"""Mean of the exponential throw of explosion and expansion: rate 10 in tspgen [1]_."""


def clustered(rng: np.random.Generator, n: int, *, clusters: int = 3, std: float = 0.07) -> FloatArray:
    """Draw all points from Gaussian clusters of equal size [2]_.

    Centres are U(0.2, 0.8)^2, points are normal around them with `std` in each coordinate and are clipped to the
    unit square. Notes: differs from the source in the order of the nodes, which is random here, so that an index
    does not give its cluster away, and in cluster sizes, which differ by at most 1 (there the last takes the rest).
    """
    centres = rng.uniform(0.2, 0.8, (clusters, 2))
    member = rng.permutation(n) % clusters
    return np.clip(centres[member] + rng.normal(0.0, std, (n, 2)), 0.0, 1.0)


def mixed(rng: np.random.Generator, n: int, *, clusters: int = 1, std: float = 0.07) -> FloatArray:
    """Draw uniform points and replace a random half (``n // 2``) by `clustered` ones [2]_."""
    points = rng.random((n, 2))
    chosen = rng.permutation(n)[: n // 2]
    points[chosen] = clustered(rng, n // 2, clusters=clusters, std=std)
    return points


def explosion(rng: np.random.Generator, n: int, *, radius: float = 0.3) -> FloatArray:
    """Blow a hole into uniform points [1]_.

    Around a uniform centre c, each point p nearer than `radius` moves to ``c + (c - p) / |c - p| (radius + s)``,
    s exponential with mean 0.1; what leaves the square is placed anew, uniformly. The published operator throws a
    point through the centre to the other side, and so does this one. tspgen draws the radius from U(0.1, 0.4);
    the default 0.3 is that of the learning papers' test sets [2]_.
    """
    points = rng.random((n, 2))
    centre = rng.random(2)
    inside = _within(points, centre, radius)
    offset = centre - points[inside]
    distance = np.linalg.norm(offset, axis=1, keepdims=True)
    throw = radius + rng.exponential(BLAST_SCALE, (len(offset), 1))
    points[inside] = centre + _divide(offset, distance) * throw
    return _replace_outside(rng, points)


def implosion(rng: np.random.Generator, n: int, *, radius: float = 0.3) -> FloatArray:
    """Drag the uniform points around a uniform centre together [1]_.

    Each point p nearer than `radius` to the centre c moves to ``c + (p - c) min(|w|, radius)``, w standard normal.
    Notes: this is the dense cluster that the paper describes; INViT [4]_ draws another, `invit_implosion`. The code
    of tspgen 1.0 takes that share of the way off instead, ``p + (c - p) min(|w|, radius)``, so that with a radius of
    0.3 no point moves further than 30 % of its way. Default radius as for `explosion`.
    """
    points = rng.random((n, 2))
    centre = rng.random(2)
    inside = _within(points, centre, radius)
    kept = np.minimum(np.abs(rng.standard_normal((int(inside.sum()), 1))), radius)
    points[inside] = centre + (points[inside] - centre) * kept
    return points


def expansion(rng: np.random.Generator, n: int, *, width: float = 0.3) -> FloatArray:
    """Sweep uniform points away from a random line [1]_.

    The line has intercept b ~ U(0, 1) and slope U(0, 3) if b < 0.5, else U(-3, 0). A point nearer to it than
    `width` moves, at right angles and to its own side, to the distance ``width + s``, s exponential with mean 0.1;
    what leaves the square is placed anew, uniformly. tspgen draws the width from U(0.1, 0.3); default as in [2]_.
    """
    points = rng.random((n, 2))
    intercept, slope = rng.random(), rng.uniform(0.0, 3.0)
    along = np.array([1.0, slope if intercept < 0.5 else -slope])
    along /= np.linalg.norm(along)
    relative = points - np.array([0.0, intercept])
    feet = (relative[:, :1] * along[0] + relative[:, 1:] * along[1]) * along
    away = relative - feet
    distance = np.linalg.norm(away, axis=1, keepdims=True)
    inside = distance[:, 0] < width
    throw = width + rng.exponential(BLAST_SCALE, (int(inside.sum()), 1))
    moved = feet[inside] + _divide(away[inside], distance[inside]) * throw
    points[inside] = moved + np.array([0.0, intercept])
    return _replace_outside(rng, points)


def grid(rng: np.random.Generator, n: int, *, box: float = 0.3) -> FloatArray:
    """Align the uniform points within a random square box on a grid [1]_.

    Of the m points in a `box` x `box` square at a random place, a random ``floor(sqrt(m))^2`` take the places of
    a regular grid that fills the box. tspgen draws both sides from U(0.1, 0.3) and can rotate and jitter the grid;
    the default is one of 0.3 x 0.3, neither rotated nor jittered, as in [2]_.
    """
    points = rng.random((n, 2))
    anchor = rng.uniform(0.0, 1.0 - box, 2)
    candidates = np.flatnonzero(((points > anchor) & (points <= anchor + box)).all(axis=1))
    side = math.isqrt(len(candidates))
    if side < 2:
        return points
    chosen = rng.choice(candidates, side * side, replace=False)
    ticks = np.minimum(anchor[:, None] + np.linspace(0.0, box, side), 1.0)
    points[chosen] = np.stack(np.meshgrid(ticks[0], ticks[1]), axis=-1).reshape(-1, 2)
    return points


def rotation(rng: np.random.Generator, n: int, *, share: float = 0.4) -> FloatArray:
    """Rotate a random subset of uniform points about the origin and shift it [1]_.

    Each point belongs to the subset with probability `share`; the angle is U(0, 360) degrees, the shift
    U(0, 1)^2; what leaves the square is placed anew, uniformly. tspgen's own default share is 0.1; 0.4 is that
    of the learning papers' test sets.
    """
    points = rng.random((n, 2))
    chosen = rng.random(n) < share
    angle = rng.uniform(0.0, 2.0 * np.pi)
    x, y = points[chosen].T
    turned = np.stack(
        [math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y], axis=1
    )
    points[chosen] = turned + rng.random(2)
    return _replace_outside(rng, points)


def gaussian_mixture(rng: np.random.Generator, n: int, *, c: int = 3, l: float = 10.0) -> FloatArray:  # noqa: E741
    """Draw from c unit Gaussians with centres U(0, l)^2, then scale each axis to [0, 1] by its extremes [3]_.

    Numbers of points per Gaussian are multinomial with equal odds. Notes: differs from the source in that the order
    of the nodes is random; the source's own special case ``(1, 1)``, a correlated Gaussian, is not made here.
    """
    centres = rng.uniform(0.0, l, (c, 2))
    points = centres[rng.integers(0, c, n)] + rng.standard_normal((n, 2))
    low = points.min(axis=0)
    return np.minimum(_divide(points - low, points.max(axis=0) - low), 1.0)


def _within(points: FloatArray, centre: FloatArray, radius: float) -> NDArray[np.bool_]:
    offset = points - centre
    return offset[:, 0] * offset[:, 0] + offset[:, 1] * offset[:, 1] < radius * radius


def _divide(a: FloatArray, b: FloatArray) -> FloatArray:
    """Divide, with 0 where the divisor is 0 (a point on the centre, all points on one line)."""
    out = np.zeros_like(a)
    np.divide(a, b, out=out, where=b > 0.0)
    return out


def _replace_outside(rng: np.random.Generator, points: FloatArray) -> FloatArray:
    """Place what left the unit square anew, uniformly (``bound.handling = "uniform"`` of tspgen)."""
    outside = ((points < 0.0) | (points > 1.0)).any(axis=1)
    points[outside] = rng.random((int(outside.sum()), 2))
    return points
