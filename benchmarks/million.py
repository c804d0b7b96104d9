"""The classical baselines from 10,000 to 1,000,000 nodes: time and peak memory of each step, and how both grow.

Generated, stored, loaded, inserted (``random-insertion:near=20``; 40 for the CVRP), improved (2-opt and Or-opt), scored,
checked for violations, drawn. Each size has a process of its own, so that its memory is its own. Claims: every step's
exponent from the smallest to the largest size is at most 1.15, and no step needs more than 4 GB. Processor seconds count,
since other work moves wall time.

    python benchmarks/million.py [--sizes 10000 100000 1000000] [--problem tsp cvrp]
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXPONENT, GIGABYTES = 1.15, 4.0
LONGEST = 50_000
NEAR = {"tsp": 20, "cvrp": 40}
FASTEST = 0.05
"""Steps that take less at the smallest size are compared from the first size on where they take as much."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--problem", nargs="+", choices=["tsp", "cvrp"], default=["tsp", "cvrp"])
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(steps(options.problem[0], options.sizes[0])))
        return 0
    missed = 0
    for problem in options.problem:
        found = {}
        for size in options.sizes:
            command = [sys.executable, __file__, "--one", "--problem", problem, "--sizes", str(size)]
            found[size] = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
        missed += told(problem, found)
    return int(missed > 0)


def told(problem: str, found: dict[int, dict[str, Any]]) -> int:
    """Print one line per step; return how many miss a claim."""
    sizes, missed = sorted(found), 0
    print(f"{problem}, processor seconds (peak of memory) at {', '.join(f'{n:,}' for n in sizes)} nodes:")
    for step in found[sizes[0]]["steps"]:
        row = [found[n]["steps"][step] for n in sizes]
        slow = [(n, one["cpu"]) for n, one in zip(sizes, row, strict=True) if one["cpu"] >= FASTEST]
        power = (
            math.log(slow[-1][1] / slow[0][1]) / math.log(slow[-1][0] / slow[0][0]) if len(slow) > 1 else None
        )
        most = max(one["peak"] for one in row)
        bad = (power is not None and power > EXPONENT) or most > GIGABYTES
        missed += bad
        cells = "  ".join(f"{one['cpu']:8.2f} ({one['peak']:.2f} GB)" for one in row)
        grows = "too fast to tell" if power is None else f"exponent {power:.2f} from {slow[0][0]:,}"
        print(f"  {step:9} {cells}  {grows}{' MISSED' if bad else ''}")
    costs = "; ".join(f"{n:,}: {found[n]['inserted']:.1f} to {found[n]['improved']:.1f}" for n in sizes)
    print(f"  lengths before and after improving: {costs}")
    return missed


def steps(problem: str, n: int) -> dict[str, Any]:
    """Do all steps on one instance."""
    import numpy as np

    from nco_bench.datasets.generate import generate
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.datasets.storage import save_dataset
    from nco_bench.problems import problem as module_of
    from nco_bench.reports.figures.routes import draw
    from nco_bench.solvers.classical import random_insertion, two_opt

    rules = module_of(problem)
    insertion = {"order": "", "near": NEAR[problem]}
    improving = {"neighbors": 10, "longest": LONGEST, "start": "insertion"}
    random_insertion.warm_up(insertion)
    two_opt.warm_up(improving)
    taken: dict[str, dict[str, float]] = {}

    def timed(step: str, call: Callable[[], Any]) -> Any:
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        cpu, wall = time.process_time(), time.perf_counter()
        made = call()
        spent = time.process_time() - cpu
        taken[step] = {"cpu": spent, "wall": time.perf_counter() - wall, "peak": peak()}
        return made

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = timed("generate", lambda: generate(problem, n, 1, "uniform", 1234))
        file = timed("store", lambda: save_dataset(dataset, folder / "one.npz"))
        instance: Any = timed("load", lambda: load_dataset(str(file), Places(folder))).instances[0]
        built = timed("insert", lambda: random_insertion.solve(instance, 0, None, insertion))
        found = timed("improve", lambda: two_opt.improved(instance, built, improving))
        cost = timed("score", lambda: rules.score(instance, found))
        wrong = timed("verify", lambda: rules.violations(instance, found))
        assert not wrong, wrong
        timed("draw", lambda: draw(instance, folder / "one.png", np.asarray(found)))
    return {"steps": taken, "inserted": rules.score(instance, built), "improved": cost}


def peak() -> float:
    """Return the most memory of this process since it was last forgotten, in GB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


if __name__ == "__main__":
    raise SystemExit(main())
