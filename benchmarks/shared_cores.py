"""
What PyTorch's threads cost where commands share cores: a run with 300,000 rounds of waiting against nco-bench's.

Each command is a whole `nco-bench run MODEL --data DATA` in a process of its own, with as many threads as there are cores.
One has the machine to itself, then some start together; the settings take turns. Reported are medians over the rounds:
seconds until the last has ended, seconds of all records of one command (the mean of those that run together), and the
processor time of one.

    python benchmarks/shared_cores.py [--model decoder-6x128] [--data tsp50:count=8] [--together 4] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nco_bench.__main__ import SPIN, SPINS
from nco_bench.runs.solving import processors

SETTINGS = {
    "PyTorch's own (300,000)": {SPIN: "300000"},
    f"nco-bench's ({SPINS:,})": {},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}


def solved(model: str, data: str, setting: dict[str, str], number: int) -> tuple[float, float, float]:
    """Run so many commands together; return the seconds of all, those of one's records, and one's processor seconds."""
    plain = {k: v for k, v in os.environ.items() if k not in (SPIN, "OMP_WAIT_POLICY", "OMP_NUM_THREADS")}
    before, began = processor_seconds(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            subprocess.Popen(
                [sys.executable, "-m", "nco_bench", "run", model, "--data", data, "--results", f"{folder}/{i}"],
                env={**plain, **setting}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for i in range(number)
        ]  # fmt: skip
        if any([command.wait() for command in commands]):
            raise SystemExit("shared_cores.py: a run has failed; start it alone to see why.")
        wall = time.perf_counter() - began
        files = Path(folder).glob("*/*/records.jsonl")
        seconds = [json.loads(line)["seconds"] for file in files for line in file.read_text().splitlines()]
    return wall, sum(seconds) / number, (processor_seconds() - before) / number


def processor_seconds() -> float:
    """Return the processor time of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="decoder-6x128")
    parser.add_argument("--data", default="tsp50:count=8")
    parser.add_argument("--together", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for number in (1, options.together):
        rounds = [
            {name: solved(options.model, options.data, setting, number) for name, setting in SETTINGS.items()}
            for _ in range(options.rounds)
        ]
        print(f"{options.model} on {options.data}, {number} together on {processors()} cores:")
        for name in SETTINGS:
            wall, seconds, used = (statistics.median(turn[name][k] for turn in rounds) for k in range(3))
            print(
                f"  {name:26} {wall:6.1f} s in all, {seconds:7.3f} s in records, {used:6.2f} s of processor time"
            )


if __name__ == "__main__":
    main()
