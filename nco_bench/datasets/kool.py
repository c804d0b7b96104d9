"""The sets of Kool et al. (2019), made exactly as their ``generate_data.py`` does with NumPy's legacy generator.

Seed 1234 is the test set that most routing papers report on, 4321 the validation set; 10,000 instances of 20, 50
and 100 nodes. TSP is prefix-stable: the first 1,000 of 10,000 are the set of 1,000. CVRP is not: all depots are
drawn first, then all customers, then all demands, so another count gives other customers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nco_bench.problems import Instance

SIZES = (20, 50, 100)
SEEDS = {1234: "test", 4321: "validation"}
COUNT = 10000
TEST_SEED = 1234
CAPACITIES = {10: 20.0, 20: 30.0, 50: 40.0, 100: 50.0}
"""Customers to capacity; Kool et al. define no others."""

SOURCE = "wouterkool/attention-learn-to-route generate_data.py"
SHORT_NAMES = {"tsp": "tsp", "cvrp": "vrp"}
"""Problem name to Kool et al.'s."""


def kool_name(problem: str, n: int, seed: int = TEST_SEED, count: int = COUNT) -> str:
    """Return the canonical name, such as ``kool-vrp100`` or ``kool-tsp50:seed=4321``."""
    head = f"kool-{SHORT_NAMES[problem]}{n}"
    return (
        head + (f":seed={seed}" if seed != TEST_SEED else "") + (f":count={count}" if count != COUNT else "")
    )


def kool_tsp(n: int, seed: int = TEST_SEED, count: int = COUNT) -> Dataset:
    """Make Kool et al.'s TSP set: coordinates U(0, 1), float64.

    Raises
    ------
    BadInputError
        For n below 2 or a count below 1.
    """
    check("tsp", n, seed, count)
    coords = np.random.RandomState(seed).uniform(size=(count, n, 2))
    instances = [TSPInstance(f"kool-tsp{n}-{i:05d}", c) for i, c in enumerate(coords)]
    return _dataset("tsp", n, seed, count, instances)


def kool_vrp(n: int, seed: int = TEST_SEED, count: int = COUNT) -> Dataset:
    """Make Kool et al.'s CVRP set: depot and customers U(0, 1), demands 1..9, capacity by n.

    Raises
    ------
    BadInputError
        For an n that they give no capacity for, or a count below 1.
    """
    check("cvrp", n, seed, count)
    random = np.random.RandomState(seed)
    depots = random.uniform(size=(count, 2))
    customers = random.uniform(size=(count, n, 2))
    demand = random.randint(1, 10, size=(count, n), dtype=np.int64)
    rows = zip(depots, customers, demand, strict=True)
    instances = [
        CVRPInstance(f"kool-vrp{n}-{i:05d}", depot, points, d, CAPACITIES[n])
        for i, (depot, points, d) in enumerate(rows)
    ]
    return _dataset("cvrp", n, seed, count, instances)


def check(problem: str, n: int, seed: int, count: int) -> None:
    """Raise `BadInputError` for arguments that `kool_tsp` or `kool_vrp` would refuse."""
    name = kool_name(problem, n)
    if problem == "cvrp" and n not in CAPACITIES:
        sizes = ", ".join(str(size) for size in CAPACITIES)
        raise BadInputError(
            f"{name}: Kool et al. give capacities for {sizes} customers only; use 'cvrp{n}' instead."
        )
    if n < 2:
        raise BadInputError(f"{name}: an instance needs at least 2 nodes; give a larger n.")
    if count < 1:
        raise BadInputError(f"{name}: count is {count}; a dataset needs at least 1 instance.")
    if not 0 <= seed < 2**32:
        raise BadInputError(f"{name}: seed is {seed}; expected a whole number in [0, {2**32 - 1}].")


def _dataset(problem: str, n: int, seed: int, count: int, instances: Sequence[Instance]) -> Dataset:
    origin = Origin("kool", SOURCE, "uniform", seed, {"capacity": CAPACITIES[n]} if problem == "cvrp" else {})
    return Dataset(kool_name(problem, n, seed, count), problem, tuple(instances), (None,) * count, origin)
