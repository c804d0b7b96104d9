"""How much longer a library's published optimal tours are by plain Euclidean length than by the library's rounded one.

    python benchmarks/library_rounding.py tsplib:sit tsplib:decoder-scaling tsplib:pens-100 tsplib:pens-1000

Papers that give the gap of an unrounded length to a rounded optimum carry this in their numbers. Only
instances whose optimal tour is published count.
"""

from __future__ import annotations

import argparse

import numpy as np

from nco_bench.datasets.load import Places, load_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    for name in parser.parse_args().data:
        dataset = load_dataset(name, Places.from_environment())
        longer = {}
        for instance, reference in zip(dataset.instances, dataset.references, strict=True):
            if reference is None or reference.solution is None:
                continue
            tour = instance.arrays()["coords"].astype(np.float64)[np.asarray(reference.solution)]
            length = np.hypot(*(tour - np.roll(tour, -1, axis=0)).T).sum()
            longer[instance.name] = 100 * (length / reference.cost - 1)
        most = max(longer, key=lambda key: abs(longer[key]))
        mean = np.mean(list(longer.values()))
        print(
            f"{name}: {len(longer)} of {len(dataset)} tours, mean {mean:+.3f} %, most {most} {longer[most]:+.2f} %"
        )


if __name__ == "__main__":
    main()
