"""
Gap of the insertion variant that SIT's code ships (angular order, depot-edge quirk) on CVRP-1000.

SIT's Table 1 prints 58.2 % for it, against HGS on its own 128 instances with C = 250.

    python benchmarks/insertion_cvrp.py [--data lehd_cvrp1000] [--count 20]
"""

from __future__ import annotations

import argparse

import numpy as np

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.decoding.insertion import insert_cvrp
from nco_bench.problems import cvrp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="lehd_cvrp1000")
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    dataset = load_dataset(arguments.data, Places.from_environment())
    gaps, costs = [], []
    for instance, reference in list(zip(dataset.instances, dataset.references, strict=True))[
        : arguments.count
    ]:
        arrays = instance.arrays()
        coords = np.concatenate([arrays["depot"].reshape(1, 2), arrays["customers"]]).astype(np.float32)
        demand = np.concatenate([[0], arrays["demand"]]).astype(np.int64)
        customers, via_depot = insert_cvrp(coords, demand, int(arrays["capacity"]))
        first = via_depot.copy()
        first[0] = True
        solution = np.append(np.insert(customers, np.flatnonzero(first), 0), 0)
        if cvrp.violations(instance, solution) or reference is None:
            raise SystemExit(f"{instance.name}: infeasible or without a reference")
        costs.append(cvrp.score(instance, solution))
        gaps.append(100 * (costs[-1] / reference.cost - 1))
    print(
        f"{dataset.name}, first {len(gaps)}: mean length {np.mean(costs):.2f}, mean gap {np.mean(gaps):.1f} %"
    )


if __name__ == "__main__":
    main()
