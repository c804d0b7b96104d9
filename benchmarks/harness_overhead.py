"""
What the harness costs: a solver called bare against `nco-bench run`, on the same TSP instances.

The solvers: one that does nothing, of this process; the same as a user's file, which has a process of its own; random
insertion, which has one, too. The limit: a run of 1,000 TSP-100 instances may cost at most 2 % of itself, or 50
microseconds an instance, whichever is more, beyond what the bare solver takes. The aims, in processor time: 15 ms with
the first, 30 with the last, and 10 microseconds for every further instance.

Bare means the solver's own function in a plain loop in this process: no child process, no clocks, no scoring, no records.
Both sides load the dataset file, which checks its hash; the rest of
a run's set-up (environment, child process, latency measurement, files, fsync) counts against the harness.

A virtual machine's processors may differ in speed from one moment to the next, and a run's child works on another one than
its parent: so the bare solver is measured on each processor in turn, and the mean counts.

Bare and run take turns in this process; the first turn, which imports, is left out; medians of the rest. Wall time is
what counts and needs an idle machine; CPU time of this process and its children, printed beside it, suffers less from
a busy one. Where other virtual machines come and go (the bare solver alone then takes 110 to 210 ms from one call to the
next), the fastest of each are the ones that were disturbed least; they are printed as well.

    python benchmarks/harness_overhead.py [--n 100] [--count 1000] [--rounds 7] [--slow lkh3 --slow-count 100]
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.datasets.storage import save_dataset
from nco_bench.problems import Instance
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.solvers.classical.native import ChildSolver
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose, create

SHARE_OF_RUN = 0.02
SECONDS_PER_INSTANCE = 50e-6
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
    """Wall seconds, and CPU seconds of this process and of the children that ended meanwhile."""

    wall: float
    cpu: float


def measured(call: Callable[[], object]) -> Cost:
    wall, cpu = time.perf_counter(), cpu_seconds()
    call()
    return Cost(time.perf_counter() - wall, cpu_seconds() - cpu)


def on_each_processor(call: Callable[[], object]) -> Cost:
    """Return the mean of what a call costs on each processor that this process may use."""
    if not hasattr(os, "sched_setaffinity"):
        return measured(call)
    allowed = os.sched_getaffinity(0)
    costs: list[Cost] = []
    try:
        for processor in allowed:
            os.sched_setaffinity(0, {processor})
            costs.append(measured(call))
    finally:
        os.sched_setaffinity(0, allowed)
    return Cost(statistics.mean(c.wall for c in costs), statistics.mean(c.cpu for c in costs))


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def bare_solver(name: str, dataset: Dataset) -> Callable[[Sequence[Instance]], object]:
    """Return the solver without any harness, warmed up: the function that a native solver's child would call, in a loop."""
    solver = create(choose(name, SolverOptions()))
    if not isinstance(solver, ChildSolver):
        return lambda batch: solver.solve(batch, seed=0, time_limit=None, progress=lambda _: None)
    module, _, function = solver.SOLVE.partition(":")
    imported = importlib.import_module(module)
    params: dict[str, Any] = {**solver.params, "backend": solver.backend(dataset.problem)}
    getattr(imported, "warm_up", lambda _: None)(params)
    solve = getattr(imported, function)
    return lambda batch: [solve(instance, seed, None, params) for seed, instance in enumerate(batch)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slow", default="", help="also measure a slow solver, such as lkh3")
    parser.add_argument("--slow-count", type=int, default=100)
    options = parser.parse_args()
    exec(NOTHING.replace('"identity"', '"nothing"'), globals())  # registers it as a class of this script
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "identity.py").write_text(NOTHING)
        for solver in ("nothing", str(folder / "identity.py"), "random-insertion"):
            report(solver, options.n, options.count, folder, options.rounds)
        if options.slow:
            report(options.slow, options.n, options.slow_count, folder, options.rounds)


def report(solver: str, n: int, count: int, folder: Path, rounds: int) -> None:
    """Measure on the set and on a tenth of it (for the slope), and print what the harness costs, with pass or fail."""
    sets = [generate("tsp", n, size, "uniform", 1234) for size in (max(1, count // 10), count)]
    paths = [save_dataset(d, folder / f"set{len(d)}.npz") for d in sets]
    places = Places(folder)
    bare = bare_solver(solver, sets[0])
    turns: list[list[tuple[Cost, Cost, Cost]]] = []
    for _ in range(rounds + 1):
        turn = []
        for dataset, path in zip(sets, paths, strict=True):
            load = measured(lambda path=path: load_dataset(str(path), places))
            alone = on_each_processor(lambda dataset=dataset: bare(dataset.instances))
            request = RunRequest(
                (solver,), (str(path),), folder / f"{time.monotonic_ns()}", places, fresh=True
            )
            turn.append((load, alone, measured(lambda request=request: run(request, QuietDisplay()))))
        turns.append(turn)
    few, many = ([turn[k] for turn in turns[1:]] for k in (0, 1))
    extra = median(many, lambda c: c[2].wall - c[1].wall - c[0].wall)
    cpu = median(many, lambda c: c[2].cpu - c[1].cpu - c[0].cpu)
    fixed = median(few, lambda c: c[2].wall - c[1].wall - c[0].wall)
    fixed_cpu = median(few, lambda c: c[2].cpu - c[1].cpu - c[0].cpu)
    whole = median(many, lambda c: c[2].wall)
    limit = max(SHARE_OF_RUN * whole, SECONDS_PER_INSTANCE * count)
    print(f"{Path(solver).stem}, {count} x TSP-{n}, median of {rounds} rounds:")
    print(
        f"  run {1e3 * whole:.1f} ms, bare solver {1e3 * median(many, lambda c: c[1].wall):.1f} ms, ", end=""
    )
    print(f"loading the dataset (both sides) {1e3 * median(many, lambda c: c[0].wall):.1f} ms")
    print(f"  run minus bare: {1e3 * extra:.1f} ms in all ({1e3 * cpu:.1f} ms CPU), ", end="")
    further = count - len(sets[0])
    print(f"{1e6 * (extra - fixed) / further:.1f} us per further instance", end="")
    print(f" ({1e6 * (cpu - fixed_cpu) / further:.1f} us CPU)")
    load, alone, in_all = (1e3 * min(c[k].wall for c in many) for k in range(3))
    print(f"  fastest of each: run {in_all:.1f} ms, bare {alone:.1f} ms, loading {load:.1f} ms", end="")
    print(f": run minus bare {in_all - alone - load:.1f} ms")
    print(
        f"  limit: the larger of 2 % of the run ({1e3 * SHARE_OF_RUN * whole:.1f} ms) and "
        f"50 us an instance ({1e3 * SECONDS_PER_INSTANCE * count:.1f} ms) -> "
        f"{'pass' if extra <= limit else 'FAIL'} ({100 * extra / limit:.0f} % of the limit)"
    )


def median(costs: list[tuple[Cost, Cost, Cost]], of: Callable[[tuple[Cost, Cost, Cost]], float]) -> float:
    return statistics.median(map(of, costs))


if __name__ == "__main__":
    main()
