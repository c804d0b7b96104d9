"""
What the harness costs: random insertion called bare against `nco-bench run`, on the same instances.

Both sides run in this process, in turn, several times; the median of the difference per instance is printed. Claim: at
most 2 % of the run or 50 microseconds an instance, whichever is more.

    python benchmarks/harness_overhead.py [--n 100] [--count 1000] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
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

NOTHING = '''
import numpy as np
from nco_bench.solvers import register

@register("identity", problems=("tsp",))
class Identity:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 256
    def solve(self, batch, *, seed, time_limit, progress): return [np.arange(i.n) for i in batch]
'''


def bare(name: str, dataset: Dataset) -> float:
    """Seconds of the solver alone, in the batches that the runner uses."""
    solver = create(choose(name, SolverOptions()))
    solver.prepare(dataset)
    size = solver.batch_size(dataset)
    solver.solve(dataset.instances[:1], seed=0, time_limit=None, progress=lambda _: None)
    start = time.perf_counter()
    for first in range(0, len(dataset), size):
        solver.solve(dataset.instances[first : first + size], seed=first, time_limit=None, progress=lambda _: None)
    elapsed = time.perf_counter() - start
    getattr(solver, "close", lambda: None)()
    return elapsed


def through_run(name: str, path: Path, folder: Path) -> tuple[float, float]:
    """Seconds of the whole run() call and, within it, of the timed solver calls."""
    request = RunRequest((name,), (str(path),), folder / f"{time.monotonic_ns()}", Places(folder), fresh=True)
    start = time.perf_counter()
    outcome = run(request, QuietDisplay())
    return time.perf_counter() - start, float(outcome.cells[0].seconds_total or 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "identity.py").write_text(NOTHING)
        dataset = generate("tsp", arguments.n, arguments.count, "uniform", 1234)
        path = save_dataset(dataset, folder / "set.npz")
        for solver in (str(folder / "identity.py"), "random-insertion"):
            report(solver, dataset, path, folder, arguments.rounds)


def report(solver: str, dataset: Dataset, path: Path, folder: Path, rounds: int) -> None:
    """Print one line for one solver."""
    rows = [(bare(solver, dataset), *through_run(solver, path, folder)) for _ in range(rounds + 1)][1:]
    alone = statistics.median(row[0] for row in rows)
    within = statistics.median(row[2] for row in rows)
    whole = statistics.median(row[1] for row in rows)
    microseconds = 1e6 * np.median([(row[1] - row[2]) / len(dataset) for row in rows])
    print(
        f"{Path(solver).stem}: bare {alone:.4f} s, run() {whole:.4f} s of which {within:.4f} s in the solver; "
        f"harness {microseconds:.1f} us an instance incl. loading, environment capture and set-up "
        f"({100 * (whole - within) / whole:.1f} % of the run)"
    )


if __name__ == "__main__":
    main()
