"""Time the referee: checking and scoring a solution with 100,000 nodes takes under 0.1 s, for TSP and CVRP.

Each time is the median of five; CPU time beside it tells a busy machine apart.
Run: python benchmarks/scoring_speed.py
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import tracemalloc

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.generate import generate
from nco_bench.problems import Instance, problem

N = 100_000
LIMIT_SECONDS = 0.1


def cvrp_solution(demand: NDArray[np.int64], capacity: float) -> NDArray[np.int64]:
    """Fill vehicles with the customers in random order."""
    order = np.random.default_rng(0).permutation(len(demand))
    sequence, load = [0], 0
    for customer in order:
        if load + demand[customer] > capacity:
            sequence.append(0)
            load = 0
        sequence.append(int(customer) + 1)
        load += demand[customer]
    return np.array([*sequence, 0])


def measure(instance: Instance, solution: NDArray[np.integer]) -> tuple[float, float, float]:
    """Return seconds and CPU seconds (medians of five) and peak MiB of checking and scoring once."""
    judge = problem(instance.problem)
    seconds, cpu_seconds = [], []
    for _ in range(5):
        start, cpu_start = time.perf_counter(), time.process_time()
        assert judge.violations(instance, solution) == ()
        judge.score(instance, solution)
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    tracemalloc.start()
    judge.violations(instance, solution)
    judge.score(instance, solution)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return statistics.median(seconds), statistics.median(cpu_seconds), peak


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    tsp = generate("tsp", N, 1).instances[0]
    cvrp = generate("cvrp", N, 1).instances[0]
    tour = np.random.default_rng(0).permutation(N)
    slow = 0
    cases = [(tsp, tour), (cvrp, cvrp_solution(cvrp.demand, cvrp.capacity))]  # type: ignore[attr-defined]
    for instance, solution in cases:
        seconds, cpu, peak = measure(instance, solution)
        slow += seconds > LIMIT_SECONDS
        what = f"{instance.problem}{N}: check + score"
        print(
            f"{what} {seconds * 1000:6.1f} ms, CPU {cpu * 1000:6.1f} ms   (limit 100 ms), peak {peak:.1f} MiB"
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
