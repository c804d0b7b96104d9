"""Time the generators of the algorithmic tasks, with labels: samples per second of one core, and of `--jobs` processes.

The figure of one core is samples per second of processor time, so that a busy machine does not show; the wall-clock
figure beside it is what was seen. Aim: 1,000,000 samples/s on two cores for the cheap tasks at the training length.

Usage: python benchmarks/task_generators.py [--jobs 2] [--settings id length-ood] [--samples 100000]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time

from nco_bench.problems.tasks import SETTINGS, VARIANTS, stream, task

BATCH = 8192


def drain(arguments: tuple[str, str, str, int, int]) -> tuple[int, float, float]:
    """Draw about so many samples; return how many, the wall and the processor seconds."""
    name, variant, setting, samples, seed = arguments
    feed = stream(name, setting, batch=BATCH, seed=seed, variant=variant)
    next(feed)  # imports and first allocations
    wall, processor, drawn = time.perf_counter(), time.process_time(), 0
    while drawn < samples:
        drawn += len(next(feed))
    return drawn, time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["id"])
    parser.add_argument(
        "--samples", type=int, default=100_000, help="for a task of 8 tokens; others get fewer"
    )
    parser.add_argument("--tasks", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    given = parser.parse_args()
    print(f"{'task':<36}{'setting':<12}{'tokens':>7}{'one core':>12}{f'{given.jobs} process(es)':>15}")
    for name in given.tasks:
        for variant in VARIANTS[name]:
            for setting in given.settings:
                chosen = task(name, variant)
                tokens = chosen.tokens(chosen.default_n(setting))
                samples = max(BATCH, given.samples * 8 // tokens)
                work = [(name, variant, setting, samples, seed) for seed in range(given.jobs)]
                start = time.perf_counter()
                if given.jobs == 1:
                    results = [drain(work[0])]
                else:
                    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
                        results = pool.map(drain, work)
                slowest = max(wall for _, wall, _ in results)
                total, processor = sum(r[0] for r in results), sum(r[2] for r in results)
                print(
                    f"{name + ':' + variant:<36}{setting:<12}{tokens:>7}"
                    f"{total / processor:>10,.0f}/s{total / slowest:>13,.0f}/s",
                    flush=True,
                )
                assert slowest <= time.perf_counter() - start


if __name__ == "__main__":
    main()
