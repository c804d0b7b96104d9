"""How TSP and CVRP instances are drawn, and what the parameters of their dataset names mean.

Parameters: ``range`` (the square, ``0..1`` by default; the EIE paper uses ``-1..1``), for CVRP also ``capacity``
and ``demand``: ``integer`` is 1..9 as in Kool et al., ``unit`` real numbers in (0, 1] as in the EIE paper.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.generators import Generator
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.distributions import parse_distribution
from nco_bench.problems.tsp import TSPInstance

if TYPE_CHECKING:
    from nco_bench.datasets.names import GenerationSpec
    from nco_bench.problems import Instance

Text = Mapping[str, str]

STREAM_VERSION = 1
"""Part of every stream's key; bumped, with `generate.GENERATOR_VERSION`, when a draw below changes."""

UNIT_SQUARE = "0..1"

CAPACITIES: dict[int, tuple[int, str]] = {
    10: (20, "Kool et al. 2019"),
    20: (30, "Kool et al. 2019"),
    50: (40, "Kool et al. 2019"),
    100: (50, "Kool et al. 2019"),
    200: (80, "LEHD (Luo et al. 2023), test files"),
    500: (100, "LEHD (Luo et al. 2023), test files"),
    1000: (250, "SIT (CVRP1K); also LEHD's file"),
    5000: (500, "SIT (CVRP5K)"),
    10000: (1000, "SIT (CVRP10K)"),
    50000: (2000, "SIT (CVRP50K)"),
    100000: (2000, "SIT (CVRP100K)"),
}
"""Customers to (capacity, source) for demands 1..9. A size between two entries takes the smaller entry's."""

UNIT_DEMAND_CAPACITY = 10
"""For demands in (0, 1): the EIE paper uses 10, 15 and 20 at every size."""


def default_capacity(n: int) -> int:
    """Return the literature's capacity for n customers with demands 1..9: that of the largest table size <= n."""
    sizes = [size for size in CAPACITIES if size <= n]
    return CAPACITIES[max(sizes, default=min(CAPACITIES))][0]


def _generators(spec: GenerationSpec) -> Callable[[int], np.random.Generator]:
    """Return index -> the random generator of that instance, good until the next call.

    Philox is counter-based: the stream's key comes from seed, version, problem, size and distribution, and the
    index is the highest word of the counter, so streams never overlap and moving to one takes a microsecond.
    """
    stream = zlib.crc32(f"{spec.problem}{spec.n}:{spec.distribution.partition(':')[0]}".encode())
    key = np.random.SeedSequence((spec.seed, STREAM_VERSION, stream)).generate_state(2, np.uint64)
    philox = np.random.Philox(key=key)
    generator = np.random.Generator(philox)
    fresh: Any = philox.state

    def at(index: int) -> np.random.Generator:
        fresh["state"]["counter"][3] = index
        philox.state = fresh
        return generator

    return at


def _instance_names(spec: GenerationSpec) -> list[str]:
    return [f"{spec.problem}{spec.n}-{i:05d}" for i in range(spec.count)]


def build_tsp(spec: GenerationSpec) -> list[Instance]:
    sampler, rng_of = parse_distribution(spec.distribution), _generators(spec)
    coords = np.empty((spec.count, spec.n, 2))
    for i in range(spec.count):
        coords[i] = sampler(rng_of(i), spec.n)
    _stretch(coords, dict(spec.params)["range"])
    return [TSPInstance(name, c) for name, c in zip(_instance_names(spec), coords, strict=True)]


def build_cvrp(spec: GenerationSpec) -> list[Instance]:
    """Draw depot, customers, demands in this order; the depot is uniform whatever the customers' distribution."""
    from nco_bench.problems.cvrp import CVRPInstance

    sampler, rng_of, params = parse_distribution(spec.distribution), _generators(spec), dict(spec.params)
    unit = params["demand"] == "unit"
    depots, customers = np.empty((spec.count, 2)), np.empty((spec.count, spec.n, 2))
    demand = np.empty((spec.count, spec.n), dtype=np.float64 if unit else np.int64)
    for i in range(spec.count):
        rng = rng_of(i)
        depots[i] = rng.random(2)
        customers[i] = sampler(rng, spec.n)
        # 1 - [0, 1) excludes a demand of 0.
        demand[i] = 1.0 - rng.random(spec.n) if unit else rng.integers(1, 10, spec.n)
    _stretch(depots, params["range"])
    _stretch(customers, params["range"])
    capacity = float(params["capacity"])
    columns = zip(_instance_names(spec), depots, customers, demand, strict=True)
    return [CVRPInstance(name, depot, points, d, capacity) for name, depot, points, d in columns]


def _stretch(coords: NDArray[np.float64], square: str) -> None:
    """Map the unit square to the square ``LO..HI``, in place."""
    if square == UNIT_SQUARE:
        return
    low, high = (float(side) for side in square.split(".."))
    coords *= high - low
    coords += low
    # Rounding of low + 1 * (high - low) can overshoot.
    np.clip(coords, low, high, out=coords)


def parse_range(place: str, text: str) -> str:
    low_text, dots, high_text = text.partition("..")
    try:
        low, high = float(low_text), float(high_text)
    except ValueError:
        low = high = math.nan
    if not (dots and math.isfinite(high - low) and low < high):
        raise BadInputError(f"{place} is {text!r}; expected LO..HI with numbers LO < HI, such as -1..1.")
    return f"{low:.15g}..{high:.15g}"


def parse_capacity(place: str, text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadInputError(f"{place} is {text!r}; expected a positive number.")
    return f"{value:.15g}"


def parse_demand(place: str, text: str) -> str:
    if text not in ("integer", "unit"):
        raise UnknownNameError("demand", text, ["integer", "unit"])
    return text


def cvrp_defaults(given: Text, n: int) -> Text:
    unit = given.get("demand") == "unit"
    capacity = UNIT_DEMAND_CAPACITY if unit else default_capacity(n)
    return {"capacity": str(capacity), "demand": "integer", "range": UNIT_SQUARE}


def check_capacity(given: Text, place: Callable[[str], str]) -> None:
    """Refuse a capacity that a customer's demand may exceed."""
    smallest = 1 if given.get("demand") == "unit" else 9
    if float(given.get("capacity", smallest)) < smallest:
        raise BadInputError(
            f"{place('capacity')} is {given['capacity']}, below the largest possible demand, {smallest}; give at least that."
        )


TSP = Generator(
    build=build_tsp,
    smallest_n=2,
    bytes_per_node=16,
    parameters={"range": parse_range},
    defaults=lambda given, n: {"range": UNIT_SQUARE},
)

CVRP = Generator(
    build=build_cvrp,
    smallest_n=1,
    bytes_per_node=24,
    parameters={"capacity": parse_capacity, "demand": parse_demand, "range": parse_range},
    defaults=cvrp_defaults,
    check=check_capacity,
    always_named=frozenset({"capacity"}),
)
