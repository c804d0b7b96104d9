"""Random point sets in the unit square: the distributions that routing papers train and test on.

A distribution is named as text, with its parameters after colons: ``explosion``, ``explosion:radius=0.2``,
``gaussian-mixture:c=3:l=10``. `parse_distribution` turns the text into a `Sampler`, whose ``name`` is the
canonical text (parameters at their defaults are left out) and which is called as ``sampler(rng, n) -> (n, 2)``.
All coordinates are float64 in [0, 1].

Sources
-------
.. [1] Kool, van Hoof, Welling (2019). Attention, Learn to Solve Routing Problems! *ICLR*.
.. [2] Bossek, Kerschke, Neumann, Wagner, Neumann, Trautmann (2019). Evolving diverse TSP instances by means of novel and
   creative mutation operators. *FOGA*. Code: the R package tspgen.
.. [3] Bi, Ma, Wang, Cao, Chen, Sun, Chee (2022). Learning generalizable models for vehicle routing problems via
   knowledge distillation (AMDKD). *NeurIPS*.
.. [4] Zhou, Wu, Song, Cao, Zhang (2023). Towards omni-generalizable neural methods for vehicle routing problems
   (Omni-VRP). *ICML*; after Zhang, Zhang, Wang, Zhu (2022), *AAAI*.
.. [5] Fang, Song, Weng, Ban (2024). INViT: a generalizable routing problem solver with invariant nested view
   transformer. *ICML*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.invit_distributions import invit_clustered, invit_explosion, invit_implosion
from nco_bench.settings import pairs, parse

FloatArray = NDArray[np.float64]

BLAST_SCALE = 0.1
"""Mean of the exponential throw of explosion and expansion: rate 10 in tspgen [2]_."""


def uniform(rng: np.random.Generator, n: int) -> FloatArray:
    """Draw each coordinate from U(0, 1) [1]_."""
    return rng.random((n, 2))


def clustered(rng: np.random.Generator, n: int, *, clusters: int = 3, std: float = 0.07) -> FloatArray:
    """Draw all points from Gaussian clusters of equal size [3]_.

    Centres are U(0.2, 0.8)^2, points are normal around them with `std` in each coordinate and are clipped to the
    unit square. Notes: differs from the source in the order of the nodes, which is random here, so that an index
    does not give its cluster away, and in cluster sizes, which differ by at most 1 (there the last takes the rest).
    """
    centres = rng.uniform(0.2, 0.8, (clusters, 2))
    member = rng.permutation(n) % clusters
    return np.clip(centres[member] + rng.normal(0.0, std, (n, 2)), 0.0, 1.0)


def mixed(rng: np.random.Generator, n: int, *, clusters: int = 1, std: float = 0.07) -> FloatArray:
    """Draw uniform points and replace a random half (``n // 2``) by `clustered` ones [3]_."""
    points = uniform(rng, n)
    chosen = rng.permutation(n)[: n // 2]
    points[chosen] = clustered(rng, n // 2, clusters=clusters, std=std)
    return points


def explosion(rng: np.random.Generator, n: int, *, radius: float = 0.3) -> FloatArray:
    """Blow a hole into uniform points [2]_.

    Around a uniform centre c, each point p nearer than `radius` moves to ``c + (c - p) / |c - p| (radius + s)``,
    s exponential with mean 0.1; what leaves the square is placed anew, uniformly. The published operator throws a
    point through the centre to the other side, and so does this one. tspgen draws the radius from U(0.1, 0.4);
    the default 0.3 is that of the learning papers' test sets [3]_.
    """
    points = uniform(rng, n)
    centre = rng.random(2)
    inside = _within(points, centre, radius)
    offset = centre - points[inside]
    distance = np.linalg.norm(offset, axis=1, keepdims=True)
    throw = radius + rng.exponential(BLAST_SCALE, (len(offset), 1))
    points[inside] = centre + _divide(offset, distance) * throw
    return _replace_outside(rng, points)


def implosion(rng: np.random.Generator, n: int, *, radius: float = 0.3) -> FloatArray:
    """Drag the uniform points around a uniform centre together [2]_.

    Each point p nearer than `radius` to the centre c moves to ``c + (p - c) min(|w|, radius)``, w standard normal.
    Notes: this is the dense cluster that the paper describes; INViT [5]_ draws another, `invit_implosion`. The code
    of tspgen 1.0 takes that share of the way off instead, ``p + (c - p) min(|w|, radius)``, so that with a radius of
    0.3 no point moves further than 30 % of its way. Default radius as for `explosion`.
    """
    points = uniform(rng, n)
    centre = rng.random(2)
    inside = _within(points, centre, radius)
    kept = np.minimum(np.abs(rng.standard_normal((int(inside.sum()), 1))), radius)
    points[inside] = centre + (points[inside] - centre) * kept
    return points


def expansion(rng: np.random.Generator, n: int, *, width: float = 0.3) -> FloatArray:
    """Sweep uniform points away from a random line [2]_.

    The line has intercept b ~ U(0, 1) and slope U(0, 3) if b < 0.5, else U(-3, 0). A point nearer to it than
    `width` moves, at right angles and to its own side, to the distance ``width + s``, s exponential with mean 0.1;
    what leaves the square is placed anew, uniformly. tspgen draws the width from U(0.1, 0.3); default as in [3]_.
    """
    points = uniform(rng, n)
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
    """Align the uniform points within a random square box on a grid [2]_.

    Of the m points in a `box` x `box` square at a random place, a random ``floor(sqrt(m))^2`` take the places of
    a regular grid that fills the box. tspgen draws both sides from U(0.1, 0.3) and can rotate and jitter the grid;
    the default is one of 0.3 x 0.3, neither rotated nor jittered, as in [3]_.
    """
    points = uniform(rng, n)
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
    """Rotate a random subset of uniform points about the origin and shift it [2]_.

    Each point belongs to the subset with probability `share`; the angle is U(0, 360) degrees, the shift
    U(0, 1)^2; what leaves the square is placed anew, uniformly. tspgen's own default share is 0.1; 0.4 is that
    of the learning papers' test sets.
    """
    points = uniform(rng, n)
    chosen = rng.random(n) < share
    angle = rng.uniform(0.0, 2.0 * np.pi)
    x, y = points[chosen].T
    turned = np.stack(
        [math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y], axis=1
    )
    points[chosen] = turned + rng.random(2)
    return _replace_outside(rng, points)


def gaussian_mixture(rng: np.random.Generator, n: int, *, c: int = 3, l: float = 10.0) -> FloatArray:  # noqa: E741
    """Draw from c unit Gaussians with centres U(0, l)^2, then scale each axis to [0, 1] by its extremes [4]_.

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


@dataclass(frozen=True)
class Parameter:
    """A number that shapes a distribution.

    Attributes
    ----------
    default
        From the literature; its type (int or float) is the parameter's.
    low, high
        Smallest and largest value that makes sense, both allowed.
    """

    default: float
    low: float
    high: float

    def parse(self, place: str, text: str) -> float:
        """Read a value; raises `BadInputError` naming `place`."""
        value: float = parse(place, text, type(self.default), low=self.low, high=self.high)
        return value


@dataclass(frozen=True)
class Distribution:
    """An entry of the table of distributions.

    Attributes
    ----------
    function
        ``(rng, n, **parameters) -> (n, 2)``.
    description
        One line for listings.
    source
        Where the definition comes from.
    used_by
        Papers whose instances are drawn so; of the five that are reproduced here, with the tables.
    parameters
        Name to `Parameter`.
    """

    function: Callable[..., FloatArray]
    description: str
    source: str
    used_by: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


_CLUSTERS = Parameter(3, 1, 1000)
_STD = Parameter(0.07, 0.0001, 1.0)
_RADIUS = Parameter(0.3, 0.001, 1.0)

DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": Distribution(
        uniform,
        "independent uniform coordinates",
        "Kool et al. 2019",
        "decoder-scaling, pens, sit; eie (on -1..1)",
    ),
    "clustered": Distribution(
        clustered,
        "Gaussian clusters (3, std 0.07) around centres in [0.2, 0.8]^2, clipped",
        "Bi et al. 2022 (AMDKD)",
        "AMDKD",
        {"clusters": _CLUSTERS, "std": _STD},
    ),
    "mixed": Distribution(
        mixed,
        "half uniform, half one Gaussian cluster (std 0.07)",
        "Bi et al. 2022 (AMDKD)",
        "AMDKD",
        {"clusters": Parameter(1, 1, 1000), "std": _STD},
    ),
    "explosion": Distribution(
        explosion,
        "uniform, points within 0.3 of a centre thrown out beyond it",
        "Bossek et al. 2019 (tspgen); radius of Bi et al. 2022",
        "AMDKD",
        {"radius": _RADIUS},
    ),
    "implosion": Distribution(
        implosion,
        "uniform, points within 0.3 of a centre dragged to it",
        "Bossek et al. 2019; radius of Bi et al. 2022",
        "AMDKD",
        {"radius": _RADIUS},
    ),
    "expansion": Distribution(
        expansion,
        "uniform, points within 0.3 of a line swept away from it",
        "Bossek et al. 2019 (tspgen); width of Bi et al. 2022",
        "AMDKD",
        {"width": Parameter(0.3, 0.001, 1.0)},
    ),
    "grid": Distribution(
        grid,
        "uniform, points in a 0.3 x 0.3 box aligned on a grid",
        "Bossek et al. 2019 (tspgen); box of Bi et al. 2022",
        "AMDKD",
        {"box": Parameter(0.3, 0.001, 1.0)},
    ),
    "rotation": Distribution(
        rotation,
        "uniform, 40 % of the points rotated about the origin and shifted",
        "Bossek et al. 2019 (tspgen), as in ELG's test sets",
        "ELG",
        {"share": Parameter(0.4, 0.0, 1.0)},
    ),
    "gaussian-mixture": Distribution(
        gaussian_mixture,
        "c unit Gaussians with centres in [0, l]^2 (3, 10), each axis scaled to [0, 1]",
        "Zhou et al. 2023 (Omni-VRP)",
        "Omni-VRP",
        {"c": Parameter(3, 1, 1000), "l": Parameter(10.0, 0.0, 1e6)},
    ),
    "invit-clustered": Distribution(
        invit_clustered,
        "3 unit Gaussians with centres in [0, 10]^2, scaled to the unit box, axes alike",
        "Fang et al. 2024 (INViT)",
        "decoder-scaling (Table 16); INViT",
        {"clusters": _CLUSTERS, "spread": Parameter(10.0, 0.0, 1e6)},
    ),
    "invit-explosion": Distribution(
        invit_explosion,
        "uniform, a disc of radius U(0.1, 0.5) thrown outwards, scaled to the unit box",
        "Fang et al. 2024 (INViT)",
        "decoder-scaling (Table 14); INViT",
    ),
    "invit-implosion": Distribution(
        invit_implosion,
        "uniform, a disc of radius U(0.1, 0.5) dragged to or through its centre, scaled so",
        "Fang et al. 2024 (INViT)",
        "decoder-scaling (Table 15); INViT",
    ),
}
"""Name to definition; adding an entry adds a distribution everywhere."""


@dataclass(frozen=True)
class Sampler:
    """A distribution with its parameters: call it as ``sampler(rng, n)``."""

    name: str
    base: str
    parameters: tuple[tuple[str, float], ...] = ()

    def __call__(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Draw ``(n, 2)`` float64 points in [0, 1]."""
        return DISTRIBUTIONS[self.base].function(rng, n, **dict(self.parameters))


def parse_distribution(text: str) -> Sampler:
    """Read a distribution's name with its parameters.

    Parameters
    ----------
    text
        ``NAME`` or ``NAME:KEY=VALUE:...``.

    Raises
    ------
    UnknownNameError
        For an unknown distribution or parameter.
    BadInputError
        For a value that is no number or out of range, or a parameter given twice.
    """
    name, *settings = text.split(":")
    if name not in DISTRIBUTIONS:
        raise UnknownNameError(
            "distribution", name, DISTRIBUTIONS, hint="See 'nco-bench list distributions'."
        )
    known = DISTRIBUTIONS[name].parameters
    if settings and not known:
        raise BadInputError(f"distribution {name!r} has no parameters, got {settings[0]!r}; leave it out.")
    texts = pairs(f"distribution {text!r}", settings, f"parameter of distribution {name!r}:", known)
    given = {key: known[key].parse(f"{key} of distribution {name!r}", value) for key, value in texts.items()}
    changed = [(key, given[key]) for key in known if key in given and given[key] != known[key].default]
    canonical = ":".join([name, *(f"{key}={value:.15g}" for key, value in changed)])
    return Sampler(canonical, name, tuple(changed))
