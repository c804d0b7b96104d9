"""Random point sets in the unit square: the distributions that routing papers train and test on.

A distribution is named as text, with its parameters after colons: ``explosion``, ``explosion:radius=0.2``,
``gaussian-mixture:c=3:l=10``. `parse_distribution` turns the text into a `Sampler`, whose ``name`` is the
canonical text (parameters at their defaults are left out) and which is called as ``sampler(rng, n) -> (n, 2)``.
All coordinates are float64 in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import pairs, parse

FloatArray = NDArray[np.float64]

SHAPES, INVIT = "nco_bench.problems.shaped_points", "nco_bench.problems.invit_distributions"
"""Where points other than uniform ones are drawn."""


def uniform(rng: np.random.Generator, n: int) -> FloatArray:
    """Draw each coordinate from U(0, 1) (Kool, van Hoof, Welling 2019)."""
    return rng.random((n, 2))


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
    place
        Module and name of ``(rng, n, **parameters) -> (n, 2)``; imported when it is first drawn from.
    description
        One line for listings.
    source
        Where the definition comes from.
    used_by
        Papers whose instances are drawn so; of the five that are reproduced here, with the tables.
    parameters
        Name to `Parameter`.
    """

    place: str
    description: str
    source: str
    used_by: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    @property
    def function(self) -> Callable[..., FloatArray]:
        """Draws the points."""
        module, _, name = self.place.partition(":")
        found: Callable[..., FloatArray] = getattr(import_module(module), name)
        return found


_CLUSTERS = Parameter(3, 1, 1000)
_STD = Parameter(0.07, 0.0001, 1.0)
_RADIUS = Parameter(0.3, 0.001, 1.0)

DISTRIBUTIONS: dict[str, Distribution] = {
    "uniform": Distribution(
        f"{__name__}:uniform",
        "independent uniform coordinates",
        "Kool et al. 2019",
        "decoder-scaling, pens, sit; eie (on -1..1)",
    ),
    "clustered": Distribution(
        f"{SHAPES}:clustered",
        "Gaussian clusters (3, std 0.07) around centres in [0.2, 0.8]^2, clipped",
        "Bi et al. 2022 (AMDKD)",
        "AMDKD",
        {"clusters": _CLUSTERS, "std": _STD},
    ),
    "mixed": Distribution(
        f"{SHAPES}:mixed",
        "half uniform, half one Gaussian cluster (std 0.07)",
        "Bi et al. 2022 (AMDKD)",
        "AMDKD",
        {"clusters": Parameter(1, 1, 1000), "std": _STD},
    ),
    "explosion": Distribution(
        f"{SHAPES}:explosion",
        "uniform, points within 0.3 of a centre thrown out beyond it",
        "Bossek et al. 2019 (tspgen); radius of Bi et al. 2022",
        "AMDKD",
        {"radius": _RADIUS},
    ),
    "implosion": Distribution(
        f"{SHAPES}:implosion",
        "uniform, points within 0.3 of a centre dragged to it",
        "Bossek et al. 2019; radius of Bi et al. 2022",
        "AMDKD",
        {"radius": _RADIUS},
    ),
    "expansion": Distribution(
        f"{SHAPES}:expansion",
        "uniform, points within 0.3 of a line swept away from it",
        "Bossek et al. 2019 (tspgen); width of Bi et al. 2022",
        "AMDKD",
        {"width": Parameter(0.3, 0.001, 1.0)},
    ),
    "grid": Distribution(
        f"{SHAPES}:grid",
        "uniform, points in a 0.3 x 0.3 box aligned on a grid",
        "Bossek et al. 2019 (tspgen); box of Bi et al. 2022",
        "AMDKD",
        {"box": Parameter(0.3, 0.001, 1.0)},
    ),
    "rotation": Distribution(
        f"{SHAPES}:rotation",
        "uniform, 40 % of the points rotated about the origin and shifted",
        "Bossek et al. 2019 (tspgen), as in ELG's test sets",
        "ELG",
        {"share": Parameter(0.4, 0.0, 1.0)},
    ),
    "gaussian-mixture": Distribution(
        f"{SHAPES}:gaussian_mixture",
        "c unit Gaussians with centres in [0, l]^2 (3, 10), each axis scaled to [0, 1]",
        "Zhou et al. 2023 (Omni-VRP)",
        "Omni-VRP",
        {"c": Parameter(3, 1, 1000), "l": Parameter(10.0, 0.0, 1e6)},
    ),
    "invit-clustered": Distribution(
        f"{INVIT}:invit_clustered",
        "3 unit Gaussians with centres in [0, 10]^2, scaled to the unit box, axes alike",
        "Fang et al. 2024 (INViT)",
        "decoder-scaling (Table 16); INViT",
        {"clusters": _CLUSTERS, "spread": Parameter(10.0, 0.0, 1e6)},
    ),
    "invit-explosion": Distribution(
        f"{INVIT}:invit_explosion",
        "uniform, a disc of radius U(0.1, 0.5) thrown outwards, scaled to the unit box",
        "Fang et al. 2024 (INViT)",
        "decoder-scaling (Table 14); INViT",
    ),
    "invit-implosion": Distribution(
        f"{INVIT}:invit_implosion",
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
