"""Time the generators: 10,000 x TSP-100 under 1 s, 16 x TSP-100,000 under 2 s, 16 x CVRP-100,000 under 3 s.

Each time includes the content hash and is the median of five; CPU seconds beside it tell a busy machine apart.
Run: python benchmarks/generate_speed.py [--all]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from nco_bench.datasets.generate import generate
from nco_bench.problems.distributions import DISTRIBUTIONS

CLAIMS = [("tsp", 100, 10_000, 1.0), ("tsp", 100_000, 16, 2.0), ("cvrp", 100_000, 16, 3.0)]


def median_seconds(
    problem: str, n: int, count: int, distribution: str, repeats: int = 5
) -> tuple[float, float]:
    seconds, cpu_seconds = [], []
    for _ in range(repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        dataset = generate(problem, n, count, distribution)
        assert len(dataset.sha256) == 64
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
    return statistics.median(seconds), statistics.median(cpu_seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="every distribution, not only uniform")
    everything = parser.parse_args().all
    generate("tsp", 10, 1)  # imports, and NumPy's first use of its generators
    slow = 0
    for distribution in DISTRIBUTIONS if everything else ["uniform"]:
        for problem, n, count, limit in CLAIMS:
            seconds, cpu = median_seconds(problem, n, count, distribution)
            slow += seconds > limit and distribution == "uniform"
            verdict = "ok" if seconds <= limit else "SLOW"
            what = f"{count} x {problem}{n} {distribution}"
            print(f"{what:40s}{seconds:7.3f} s, CPU {cpu:6.3f} s   (limit {limit:g} s) {verdict}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
