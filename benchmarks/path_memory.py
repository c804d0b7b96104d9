"""
Peak host memory of the first construction steps of large TSP instances, beyond the imports, one child process per case.

    python benchmarks/path_memory.py [--cases sit:100000 pens-a:10000] [--steps 2] [--layers 2]

Targets: SIT at 100,000 nodes under 1 GB (its paper: 919 MB on a GPU), PENS-A at 10,000 nodes under 2 GB. Later steps
have fewer nodes, so the first ones show the peak. Memory does not grow with the number of layers, since nothing of a
layer is kept at inference; ``--layers`` shortens the wait.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

TARGETS = {("sit", 100_000): 1000, ("pens-a", 10_000): 2000}
"""Megabytes beyond the imports."""


def peak_megabytes() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, count: int, steps: int, layers: int | None, threads: int) -> dict[str, float]:
    """Run the first steps of one greedy construction in this process."""
    import torch
    from path_exponent import LAYERS

    from nco_bench.nn.build import build_path_policy
    from nco_bench.solvers.path.problem import tsp_problem
    from nco_bench.solvers.path.step import action_scores, advance, start

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    imports = peak_megabytes()
    options = {} if layers is None else {LAYERS.get(name, "layers"): layers}
    policy = build_path_policy(name, **options).eval()
    problem = tsp_problem(torch.rand(1, count, 2))
    begun = time.process_time()
    with torch.inference_mode():
        features, frontier = policy.embed(problem.nodes), start(problem)
        for _ in range(steps):
            scores, _ = action_scores(policy, problem, features, frontier, None)
            frontier, _, _ = advance(problem, frontier, scores.argmax(dim=1), None)
    return {
        "imports_mb": round(imports),
        "beyond_mb": round(peak_megabytes() - imports),
        "cpu_seconds": round(time.process_time() - begun, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cases = [f"{name}:{count}" for name, count in TARGETS]
    parser.add_argument("--cases", nargs="*", default=cases, help="MODEL:NODES")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, help="fewer layers than the published model has")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--here", action="store_true", help="in this process, as JSON; one case")
    arguments = parser.parse_args()
    for case in arguments.cases:
        name, _, count = case.partition(":")
        if arguments.here:
            found = measure(name, int(count), arguments.steps, arguments.layers, arguments.threads)
            print(json.dumps(found), flush=True)
            return
        command = [sys.executable, __file__, "--here", "--cases", case, "--threads", str(arguments.threads)]
        command += ["--steps", str(arguments.steps)]
        command += [] if arguments.layers is None else ["--layers", str(arguments.layers)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        target = TARGETS.get((name, int(count)))
        verdict = (
            ""
            if target is None
            else f", target {target} MB: {'met' if found['beyond_mb'] < target else 'MISSED'}"
        )
        print(
            f"{name:8} N={count:>6}: {found['beyond_mb']:5} MB beyond imports ({found['imports_mb']} MB),"
            f" {arguments.steps} steps in {found['cpu_seconds']} CPU s{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
