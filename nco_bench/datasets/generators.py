"""How the instances of each problem are generated: a `Generator` in the module that draws them, named in `GENERATORS`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from nco_bench.errors import UnknownNameError
from nco_bench.problems import Instance
from nco_bench.problems.distributions import DISTRIBUTIONS, parse_distribution

if TYPE_CHECKING:
    from nco_bench.datasets.names import GenerationSpec

Text = Mapping[str, str]


def default_count(n: int) -> int:
    """Return the literature's usual number of test instances: 10,000 up to n = 100, 128 up to 1,000, 16 beyond."""
    if n <= 100:
        return 10000
    return 128 if n <= 1000 else 16


def _point_distribution_parameters(name: str) -> Collection[str]:
    return DISTRIBUTIONS[name].parameters if name in DISTRIBUTIONS else ()


@dataclass(frozen=True)
class Generator:
    """How the instances of one problem are made.

    Attributes
    ----------
    build
        `GenerationSpec` to instances; the spec has been checked.
    smallest_n
        Smallest size that makes sense.
    bytes_per_node
        Of the arrays of one instance, to refuse what does not fit into memory.
    parameters
        Name to a function that takes a value's place, for messages, and its text, and returns the canonical text or raises
        `BadInputError`.
    defaults
        ``(given, n)`` to the canonical text of every parameter's default; one may depend on another.
    check
        ``(given, place)``: raises where values do not fit together; `place` says where one stands.
    always_named
        Parameters that stand in the name even at their defaults.
    canonical_distribution
        Text to canonical text; raises for an unknown one.
    distribution_parameters
        Names of the parameters of a distribution.
    default_distribution, default_count, default_n
        What a bare name means; a problem without a default size needs one in its name.
    """

    build: Callable[[GenerationSpec], list[Instance]]
    smallest_n: int
    bytes_per_node: int
    parameters: Mapping[str, Callable[[str, str], str]] = field(default_factory=dict)
    defaults: Callable[[Text, int], Text] = lambda given, n: {}
    check: Callable[[Text, Callable[[str], str]], None] = lambda given, place: None
    always_named: frozenset[str] = frozenset()
    canonical_distribution: Callable[[str], str] = lambda text: parse_distribution(text).name
    distribution_parameters: Callable[[str], Collection[str]] = _point_distribution_parameters
    default_distribution: str = "uniform"
    default_count: Callable[[int], int] = default_count
    default_n: int | None = None


GENERATORS: dict[str, str] = {
    "tsp": "nco_bench.datasets.routing:TSP",
    "cvrp": "nco_bench.datasets.routing:CVRP",
    "bpp3d": "nco_bench.datasets.packing:BPP3D",
    "lra-listops": "nco_bench.datasets.lra:LISTOPS",
    "lra-pathfinder": "nco_bench.datasets.lra:PATHFINDER",
}
"""Problem name to where its `Generator` stands; modules are imported when first asked for."""


def generator(problem: str) -> Generator:
    """Return how the instances of a problem are made; raises `UnknownNameError`."""
    if problem not in GENERATORS:
        raise UnknownNameError("problem", problem, GENERATORS)
    module, _, name = GENERATORS[problem].partition(":")
    found: Generator = getattr(import_module(module), name)
    return found
