"""
How long greedy packing takes: both classical rules, and the referee, at growing numbers of boxes.

    python benchmarks/packing_speed.py [--sizes 100,400,1600] [--base 120x100] [--count 1] [--attend2pack]

Prints wall and processor seconds per instance; a machine with other work on it moves only the former. Claim: the
extreme-point rule places 1,600 boxes in under 5 s. With ``--attend2pack`` an untrained network packs them greedily, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from nco_bench.datasets.generate import generate
from nco_bench.problems import bpp3d
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.solvers.packing.greedy import (
    best_of,
    pack_at_extreme_points,
    pack_deepest_bottom_left,
)

Pack = Callable[[BPP3DInstance], np.ndarray]
BY_VOLUME = {"tries": 1, "order": "volume", "noise": 0.0}
LIMIT_S = 5.0


def network() -> Pack:
    """Return greedy packing by an untrained attend2pack."""
    import torch

    from nco_bench.solvers.packing.attend2pack import Attend2PackConfig, build
    from nco_bench.solvers.packing.decode import decode_packing, to_solutions

    torch.set_num_threads(1)

    def pack(instance: BPP3DInstance) -> np.ndarray:
        length, width = (int(side) for side in instance.base)
        policy = build(Attend2PackConfig(bin_length=length, bin_width=width)).eval()
        boxes = instance.boxes[None]
        packed = decode_packing(
            policy, torch.from_numpy(np.sort(boxes, axis=2)), torch.zeros(1, dtype=torch.int64)
        )
        return to_solutions(boxes, packed.rows.numpy())[0]

    return pack


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="100,400,1600")
    parser.add_argument("--base", default="120x100")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--attend2pack", action="store_true")
    arguments = parser.parse_args()
    packers: dict[str, Pack] = {
        "extreme-point": lambda i: best_of(pack_at_extreme_points, i, 0, None, BY_VOLUME),
        "deepest-bottom-left": lambda i: best_of(pack_deepest_bottom_left, i, 0, None, BY_VOLUME),
    }
    if arguments.attend2pack:
        packers["attend2pack"] = network()
    print(f"{'solver':<20} {'boxes':>6} {'load rate':>9} {'wall s':>8} {'cpu s':>8} {'judge ms':>9}")
    for size in map(int, arguments.sizes.split(",")):
        instances = [
            i
            for i in generate("bpp3d", size, arguments.count, arguments.base)
            if isinstance(i, BPP3DInstance)
        ]
        for name, pack in packers.items():
            wall, cpu = time.perf_counter(), time.process_time()
            packings = [pack(instance) for instance in instances]
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            began = time.process_time()
            assert not any(bpp3d.violations(i, p) for i, p in zip(instances, packings, strict=True))
            judge = time.process_time() - began
            rate = np.mean([bpp3d.score(i, p) for i, p in zip(instances, packings, strict=True)])
            count = len(instances)
            print(
                f"{name:<20} {size:>6} {rate:>9.2f} {wall / count:>8.3f} {cpu / count:>8.3f} {1e3 * judge / count:>9.2f}"
            )
            if name == "extreme-point" and size <= 1600 and cpu / count > LIMIT_S:
                print(f"  slower than the {LIMIT_S:g} s that are claimed for 1,600 boxes")


if __name__ == "__main__":
    main()
