"""Nearest-neighbour routes of the CVRP: by trees against the plain search over all customers, which both must agree on.

python benchmarks/nearest_speed.py [--sizes 1000 5000 20000] [--turns 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nco_bench.solvers.decoding.nearest import nearest_visits, nearest_visits_by_tree

CAPACITY = 250


def seconds(call: Callable[[], Any], turns: int) -> tuple[float, Any]:
    """Median processor seconds of a call, and what it returned."""
    taken, found = [], None
    for _ in range(turns):
        began = time.process_time()
        found = call()
        taken.append(time.process_time() - began)
    return statistics.median(taken), found


def main() -> None:
    """Print a line per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument(
        "--alone", type=int, nargs="+", default=[100_000], help="sizes of the quick one alone"
    )
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args()
    for n in (*args.sizes, *args.alone):
        rng = np.random.default_rng(n)
        points, demand = rng.random((n + 1, 2)), rng.integers(1, 10, n)
        quick, found = seconds(lambda p=points, d=demand: nearest_visits_by_tree(p, d, CAPACITY), args.turns)
        if n in args.alone:
            print(f"{n:,} customers: {quick:.3f} s")
            continue

        def distances(node: int, left: Any, points: Any = points) -> Any:
            return ((points[left] - points[node]) ** 2).sum(1)

        slow, same = seconds(lambda d=demand, f=distances: nearest_visits(d, CAPACITY, f), args.turns)
        assert found.tolist() == same.tolist()
        print(f"{n:,} customers: {quick:.3f} s, plain {slow:.3f} s, {slow / quick:.1f} times")


if __name__ == "__main__":
    main()
