"""Greedy gap of a weights file on datasets with reference solutions, with 95 % intervals.

    nco-bench generate tsp --n 100 --count 1000 --seed 4321 --reference lkh3 --out tsp100.npz
    python benchmarks/train_greedy_gap.py decoder-6x128 tsp100.npz [...] [--weights FILE]

    nco-bench generate cvrp --n 100 --count 128 --seed 4321 --reference hgs:iterations=1000 --out cvrp100.npz
    python benchmarks/train_greedy_gap.py sit cvrp100.npz --weights sit-cvrp

Construction starts at node 0 or the depot, without augmentation. Lengths of both solutions are taken in float64 from
float32 coordinates.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.nn.build import build_path_policy
from nco_bench.training.learners.supervised_course import greedy_cvrp_gap, greedy_gap
from nco_bench.training.shards import read_shard
from nco_bench.weights.store import load_into, resolve


def from_node_0(dataset_name: str) -> np.ndarray:
    """Return coordinates in the order of the reference tours, each beginning at node 0, ``(B, N, 2)``."""
    dataset = load_dataset(dataset_name, Places.from_environment())
    ordered = []
    for instance, reference in zip(dataset.instances, dataset.references, strict=True):
        if reference is None or reference.solution is None:
            raise SystemExit(f"{dataset_name}: no reference tours; add --reference to `generate`.")
        tour = np.asarray(reference.solution)
        ordered.append(instance.arrays()["coords"][np.roll(tour, -int(np.flatnonzero(tour == 0)[0]))])
    return np.stack(ordered)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", nargs="+")
    parser.add_argument("--weights")
    parser.add_argument("--limit", type=int, help="only so many instances of each dataset")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = resolve(options.weights or options.model, options.model)
    policy = build_path_policy(options.model, **file.manifest.config)
    load_into(policy, file)
    for name in options.data:
        began = time.perf_counter()
        if file.manifest.problem == "cvrp":
            gap = greedy_cvrp_gap(policy, read_shard(name).ordered[: options.limit])
        else:
            gap = greedy_gap(policy, from_node_0(name)[: options.limit])
        spent = time.perf_counter() - began
        print(f"{name}: {gap.instances}: {gap.percent:.3f} % +- {gap.ci95:.3f} ({spent:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
