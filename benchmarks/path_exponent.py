"""
How the cost of one construction step grows with the number of nodes: fits an exponent per model.

    python benchmarks/path_exponent.py [--models sit lehd] [--sizes 1000 2000 4000 10000]

SIT should come out near 1 (linear attention), the others between 1 and 2: the quadratic attention takes over from the linear
maps only at some hundred tokens. CPU seconds of the first step are measured. A few layers suffice for the quadratic
models; SIT's first and last layer do less than the others, and some of its cost does not grow, so it keeps its six layers
unless ``--layers`` is given. Peak memory beyond the imports is that of the largest size so far.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.solvers.path.step import action_scores, advance, start

LAYERS = {"lehd": "decoder_layers", "decoder-6x128": "depth", "sigd": "blocks"}
MODELS = ("sit", "lehd", "bq", "decoder-6x128", "pens-a", "pens-r", "coordns")


def seconds_per_step(name: str, count: int, layers: int, repeats: int) -> float:
    """Best CPU time of the first step on one instance of `count` nodes."""
    policy = build_path_policy(name, **{LAYERS.get(name, "layers"): layers})
    problem = tsp_problem(torch.rand(1, count, 2))
    features, frontier, best = policy.embed(problem.nodes), start(problem), np.inf
    for _ in range(repeats):
        begun = time.process_time()
        scores, _ = action_scores(policy, problem, features, frontier, None)
        advance(problem, frontier, scores.argmax(dim=1), None)
        best = min(best, time.process_time() - begun)
    return best


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 2000, 4000, 10_000])
    parser.add_argument("--layers", type=int, help="default: 6 for sit, 2 for the others")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    imports = peak_megabytes()
    with torch.inference_mode():
        for name in arguments.models:
            layers, seconds = arguments.layers or (6 if name == "sit" else 2), []
            for count in arguments.sizes:
                seconds.append(seconds_per_step(name, count, layers, arguments.repeats))
                print(
                    f"{name:8} N={count:6}: {seconds[-1]:8.3f} CPU s per step of {layers} layers,"
                    f" peak {peak_megabytes() - imports:5.0f} MB beyond imports",
                    flush=True,
                )
            exponent = np.polyfit(np.log(arguments.sizes), np.log(seconds), 1)[0]
            last = np.log(seconds[-1] / seconds[-2]) / np.log(arguments.sizes[-1] / arguments.sizes[-2])
            print(f"{name:8} exponent {exponent:.2f} (between the two largest sizes {last:.2f})", flush=True)


if __name__ == "__main__":
    main()
