"""
How much of a decoder's command line is matrix products: `run decoder-6x128 --data tsp100:count=250`, harness included.

    python benchmarks/decoder_command.py [--solver decoder-6x128] [--data tsp100] [--count 250]

The command runs whole in this process, from Python's start to the last record; its processor seconds are told in parts: what
the solver's clock covers, and the rest (starting Python, importing torch, weights, warming up, timing one instance alone,
judging, writing). Then, in the same process, the floor: the matrix products of one batch, written down as the solver calls
them and made again alone (`official.engine`), times the number of batches; and the same operations by the rate of a
product of two 1024 x 1024 matrices. The aim: the floor is 75 % of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

AIM = 0.75
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--solver", default="decoder-6x128")
    parser.add_argument("--data", default="tsp100")
    parser.add_argument("--count", type=int, default=250)
    options = parser.parse_args()
    name = f"{options.data}:count={options.count}"
    cell, whole, before = commanded(options.solver, name)
    floor, operations, rate = products(options.solver, name, cell["batch_size"])
    share = options.count / cell["batch_size"]
    floor, operations = floor * share, operations * share
    print(f"nco-bench run {options.solver} --data {name}, in batches of {cell['batch_size']}:")
    print(
        f"  whole command {whole:.1f} s of processor time, {before:.1f} s of it before the command was parsed"
    )
    print(f"  solver's clock {cell['seconds_total']:.1f} s of wall time")
    print(f"  floor: {floor:.1f} s of products made again alone -> {floor / whole:.0%} of the whole command")
    print(
        f"  operations over peak: {operations / 1e9:.0f} GFLOP at {rate / 1e9:.0f} GFLOP/s,"
        f" {operations / rate:.1f} s -> {operations / rate / whole:.0%}"
    )
    print(f"  aim {AIM:.0%} of the floor: {'reached' if floor / whole >= AIM else 'missed'}", end="")
    print(f"; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def commanded(solver: str, data: str) -> tuple[dict[str, Any], float, float]:
    """Run the command; return its cell, and the processor seconds since Python began and until the command was parsed."""
    before = time.process_time()
    from nco_bench.cli.app import run

    text = TextIOWrapper(BytesIO())
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(text):
        status = run(
            ["run", solver, "--data", data, "--device", "cpu", "--results", str(Path(folder) / "r"), "--json"]
        )
    if status:
        sys.exit(status)
    text.seek(0)
    cell: dict[str, Any] = json.load(text)["cells"][0]
    return cell, time.process_time(), before


def products(solver: str, data: str, size: int) -> tuple[float, float, float]:
    """Return the median seconds of one batch's products alone, its operations, and operations per second at the peak."""
    from official.engine import peak, recorded, timed

    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.solvers.protocol import SolverOptions
    from nco_bench.solvers.registry import choose, create

    dataset = load_dataset(data, Places(Path("instances"))).slice(0, size)
    made = create(choose(solver, SolverOptions(device="cpu")))
    made.prepare(dataset)

    def solve() -> Any:
        return made.solve(dataset.instances, seed=0, time_limit=None, progress=lambda _: None)

    _, floor, operations = recorded(solve)
    return statistics.median(timed(floor)[0] for _ in range(ROUNDS)), operations, peak()


if __name__ == "__main__":
    main()
