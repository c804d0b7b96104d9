"""Tropical attention without the N x N x C tensor against the direct formulation: time and peak memory, both in one run.

    python benchmarks/tropical_speed.py [--batch 32] [--length 1024] [--direct-batch 1] [--rounds 3]

Each side runs in a process of its own, so that peak memory is its own. The direct formulation of the full batch takes
2 x 4 bytes x batch x heads x length^2 x 32 channels (17 GB at the defaults), so it runs on `--direct-batch` instances at
a time and its memory is stated for those; our side runs the full batch too. Times are per instance, medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

HEADS, CHANNELS = 2, 32


def direct(u: Tensor, weights: list[Tensor]) -> Tensor:
    """Compute the formulas of the paper as they stand, with all differences in memory at once."""
    q, k, v = ((u[..., None, :] + w).amax(-1) for w in weights)
    delta = q[:, :, None, :] - k[:, None, :, :]
    scores = delta.amin(-1) - delta.amax(-1)
    return (scores[..., None] + v[:, None, :, :]).amax(2)


def ours(u: Tensor, weights: list[Tensor]) -> Tensor:
    """Compute the same as `nco_bench.solvers.sequences.tropical` does."""
    from nco_bench.solvers.sequences.tropical import attend, max_plus

    q, k, v = max_plus(u, torch.cat(weights)).chunk(3, dim=-1)
    return attend(q, k, v)


def measure(side: str, batch: int, length: int, rounds: int) -> dict[str, float]:
    """Run one side; returns seconds and CPU seconds per instance, peak memory above the inputs in GB, and a checksum."""
    wall, cpu = [], []
    torch.manual_seed(0)
    torch.set_num_threads(1)
    function = {"direct": direct, "ours": ours}[side]
    weights = [torch.randn(CHANNELS, CHANNELS) for _ in range(3)]
    with torch.inference_mode():
        function(torch.rand(HEADS, 16, CHANNELS), weights)  # compile
        u = torch.rand(batch * HEADS, length, CHANNELS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(rounds):
            start, start_cpu = time.perf_counter(), time.process_time()
            out = function(u, weights)
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "seconds": statistics.median(wall) / batch, "cpu_seconds": statistics.median(cpu) / batch,
        "peak_gb": peak * 1024 / 1e9,
        "checksum": float(out[:HEADS].double().sum()),
    }  # fmt: skip


def in_a_process(side: str, batch: int, length: int, rounds: int) -> dict[str, float]:
    """Measure a side in a process of its own."""
    command = [sys.executable, __file__, "--side", side, "--batch", str(batch), "--length", str(length)]
    command += ["--rounds", str(rounds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print both sides and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--direct-batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=("direct", "ours"))
    given = parser.parse_args()
    if given.side:
        print(json.dumps(measure(given.side, given.batch, given.length, given.rounds)))
        return
    sides = (("direct", given.direct_batch), ("ours", given.direct_batch), ("ours", given.batch))
    rows = [(side, batch, in_a_process(side, batch, given.length, given.rounds)) for side, batch in sides]
    for side, batch, found in rows:
        print(
            f"{side:6s} batch {batch:3d}, length {given.length}: {1000 * found['seconds']:8.1f} ms per instance "
            f"({1000 * found['cpu_seconds']:.1f} ms of processor time), peak memory {found['peak_gb']:.3f} GB"
        )
    first, second = rows[0][2], rows[1][2]
    agree = (
        "the same"
        if abs(first["checksum"] - second["checksum"]) < 1e-6 * abs(first["checksum"])
        else "DIFFERENT"
    )
    print(
        f"direct / ours at batch {given.direct_batch}: {first['cpu_seconds'] / second['cpu_seconds']:.1f} x processor time, "
        f"{first['peak_gb'] / max(second['peak_gb'], 1e-3):.0f} x memory; outputs are {agree}"
    )


if __name__ == "__main__":
    main()
