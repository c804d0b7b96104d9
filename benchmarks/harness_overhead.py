"""
What the harness costs: random insertion called bare against `nco-bench run`, on the same instances.

Both sides run in this process, in turn, several times, on two numbers of instances: the slope of the difference is what
one more instance costs, the rest is set-up (loading, environment, child process, latency measurement). Claim: at
most 2 % of the run or 50 microseconds an instance, whichever is more. Medians; CPU time beside wall time.

    python benchmarks/harness_overhead.py [--n 100] [--count 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import save_dataset
from nco_bench.runs.executors import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.solvers.base import SolverOptions
from nco_bench.solvers.registry import choose, create

NOTHING = """
import numpy as np
from nco_bench.solvers import register

@register("identity", problems=("tsp",))
class Identity:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 256
    def solve(self, batch, *, seed, time_limit, progress): return [np.arange(i.n) for i in batch]
"""


@dataclass(frozen=True)
class Cost:
    """Wall seconds and CPU seconds of this process (a busy machine stretches the first, not the second)."""

    wall: float
    cpu: float


def measured(call: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def bare(name: str, dataset: Dataset) -> Cost:
    """Cost of the solver alone, prepared before, in the batches that the runner uses."""
    solver = create(choose(name, SolverOptions()))
    solver.prepare(dataset)
    size = getattr(solver, "batch_size", lambda _: 1)(dataset)

    def solve_all() -> None:
        for first in range(0, len(dataset), size):
            batch = dataset.instances[first : first + size]
            solver.solve(batch, seed=first, time_limit=None, progress=lambda _: None)

    solver.solve(dataset.instances[:1], seed=0, time_limit=None, progress=lambda _: None)
    cost = measured(solve_all)
    getattr(solver, "close", lambda: None)()
    return cost


def through_run(name: str, path: Path, folder: Path) -> Cost:
    """Cost of a whole run() call, loading and set-up included."""
    request = RunRequest((name,), (str(path),), folder / f"{time.monotonic_ns()}", Places(folder), fresh=True)
    return measured(lambda: run(request, QuietDisplay()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "identity.py").write_text(NOTHING)
        few, many = (
            generate("tsp", arguments.n, count, "uniform", 1234)
            for count in (arguments.count // 10, arguments.count)
        )
        paths = [save_dataset(d, folder / f"set{len(d)}.npz") for d in (few, many)]
        for solver in (str(folder / "identity.py"), "random-insertion"):
            report(solver, (few, many), paths, folder, arguments.rounds)


def report(solver: str, sets: tuple[Dataset, Dataset], paths: list[Path], folder: Path, rounds: int) -> None:
    """Print the cost per further instance (slope between the two sizes) and the cost of a run as such."""
    rows = []
    for _ in range(rounds + 1):
        alone = [bare(solver, d) for d in sets]
        whole = [through_run(solver, path, folder) for path in paths]
        rows.append([(w.wall - a.wall, w.cpu - a.cpu, w.wall) for w, a in zip(whole, alone, strict=True)])
    few, many = (np.median([row[k] for row in rows[1:]], axis=0) for k in (0, 1))
    further = len(sets[1]) - len(sets[0])
    slope = 1e6 * (many - few) / further
    print(
        f"{Path(solver).stem}: harness {slope[1]:.0f} us CPU ({slope[0]:.0f} us wall) per further instance; "
        f"a run of {len(sets[1])} costs {1000 * many[1]:.0f} ms CPU ({1000 * many[0]:.0f} ms wall) more than "
        f"the bare solver, set-up included; the whole run took {many[2]:.2f} s"
    )


if __name__ == "__main__":
    main()
