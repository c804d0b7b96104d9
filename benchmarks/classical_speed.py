"""Time the classical solvers at size, and what the child process costs.

Claims: nearest neighbour + 2-opt/Or-opt on 100,000 nodes under 30 s; random insertion and LKH finish there; the child
process costs under 50 microseconds per TSP-100. CPU seconds beside wall seconds tell a busy machine apart.
Run: python benchmarks/classical_speed.py [--n 100000] [solver ...]
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import psutil

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.problems.tsp import TSPInstance, score, violations
from nco_bench.solvers.protocol import Solved, SolverOptions
from nco_bench.solvers.registry import choose, create

LIMITS = {"two-opt": 30.0}
DEFAULT = ("nearest-neighbor", "two-opt", "random-insertion", "lkh3:max_trials=1")
OVERHEAD_MICROSECONDS = 50.0


def uniform(n: int, count: int) -> Dataset:
    rng = np.random.default_rng(1234)
    instances = [TSPInstance(f"{k}", rng.random((n, 2))) for k in range(count)]
    return Dataset(f"tsp{n}", "tsp", instances, [None] * count, Origin("benchmark"))


def cpu_seconds() -> float:
    own = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (own, *own.children(recursive=True)))


def timed(name: str, dataset: Dataset) -> tuple[list[Solved], float, float]:
    solver = create(choose(name, SolverOptions()))
    solver.prepare(dataset)
    size = solver.batch_size(dataset)
    outcomes: list[Solved] = []
    start, cpu = time.perf_counter(), cpu_seconds()
    for k in range(0, len(dataset), size):
        batch = dataset.instances[k : k + size]
        outcomes += solver.solve(batch, seed=k, time_limit=None, progress=lambda done: None)
    wall, cpu = time.perf_counter() - start, cpu_seconds() - cpu
    solver.close()
    return outcomes, wall, cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("solvers", nargs="*", default=DEFAULT)
    args = parser.parse_args()
    missed = 0
    dataset = uniform(args.n, 1)
    for name in args.solvers:
        (outcome,), wall, cpu = timed(name, dataset)
        assert not violations(dataset.instances[0], outcome.solution)
        ratio = score(dataset.instances[0], outcome.solution) / np.sqrt(args.n)
        limit = LIMITS.get(name)
        missed += limit is not None and min(wall, cpu) > limit
        claim = f", claimed under {limit:g} s" if limit else ""
        print(
            f"{name} on {args.n} nodes: {wall:.1f} s ({cpu:.1f} s CPU){claim}; length {ratio:.4f} sqrt(n A)"
        )
    outcomes, wall, _ = timed("random-insertion", uniform(100, 2000))
    overhead = (wall - sum(o.seconds or 0.0 for o in outcomes)) / len(outcomes) * 1e6
    missed += overhead > OVERHEAD_MICROSECONDS
    print(
        f"child process: {overhead:.0f} microseconds per TSP-100, claimed under {OVERHEAD_MICROSECONDS:.0f}"
    )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
