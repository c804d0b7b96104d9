"""Time loading: pla85900 and Flanders2 in under 1 s each, and bound the memory that a 200 MB file takes.

Run: NCO_BENCH_MIRROR=DIR python benchmarks/load_libraries.py
(DIR holds instances/tsplib/pla85900.tsp.gz and instances/cvrplib/XXL/Flanders2.vrp.gz; or pull them and set --instances.)
Each time is the median of five; CPU time beside it tells a busy machine apart.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nco_bench.datasets.formats import read_file, testset, write_file
from nco_bench.datasets.formats.cvrplib import read_instance as read_vrp
from nco_bench.datasets.formats.tsplib import read_instance as read_tsp
from nco_bench.datasets.libraries import find_file
from nco_bench.errors import NcoBenchError

LIMIT_SECONDS = 1.0
BIG_FILE_BYTES = 200_000_000


def timed(action: Callable[[], object], repeats: int = 5) -> tuple[float, float]:
    """Return median seconds and CPU seconds."""
    seconds, cpu = [], []
    for _ in range(repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        action()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return statistics.median(seconds), statistics.median(cpu)


def library_times(places: list[Path]) -> bool:
    """Time the two largest library files; True if both are under the limit."""
    good = True
    for folder, file, read in (
        ("tsplib", "pla85900.tsp", read_tsp),
        ("cvrplib/XXL", "Flanders2.vrp", read_vrp),
        ("tsplib", "si1032.tsp", read_tsp),
        ("cvrplib/X", "X-n1001-k43.vrp", read_vrp),
    ):
        path = find_file(places, folder, file)
        if path is None:
            print(f"{file:20s} not found")
            continue
        seconds, cpu = timed(lambda path=path, read=read: read(path))  # type: ignore[misc]
        good &= cpu < LIMIT_SECONDS
        print(f"{file:20s} {seconds:7.3f} s  (CPU {cpu:.3f} s, limit {LIMIT_SECONDS} s)")
    return good


def format_times(places: list[Path]) -> None:
    """Time reading 1000 TSP instances of 100 nodes in each format that holds many."""
    source = find_file(places, "testsets", "amdkd_tsp100_uniform.npz")
    if source is None:
        return
    dataset = testset.read(source)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for fmt, suffix in (
            ("nco-bench", "npz"),
            ("kool", "pkl"),
            ("rl4co", "npz"),
            ("concorde-line", "txt"),
            ("bq", "npz"),
            ("gumbeldore", "pickle"),
            ("invit", "txt"),
        ):
            path = Path(folder) / f"{fmt}.{suffix}"
            write_file(dataset, path, fmt)
            seconds, cpu = timed(lambda path=path: read_file(path), 3)  # type: ignore[misc]
            print(f"1000 x TSP100 {fmt:14s} {seconds:7.3f} s  (CPU {cpu:.3f} s)")


def big_file_memory() -> None:
    """Peak memory of reading 200 MB of coordinates, good and with a DIMENSION that lies, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "big.tsp"
        rows = BIG_FILE_BYTES // 32
        with path.open("w") as out:
            out.write(f"TYPE: TSP\nDIMENSION: {rows}\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n")
            rng = np.random.default_rng(0)
            for start in range(1, rows + 1, 100_000):
                stop = min(start + 100_000, rows + 1)
                xy = rng.random((stop - start, 2))
                out.writelines(f"{i:8d} {x:.9f} {y:.9f}\n" for i, (x, y) in enumerate(xy.tolist(), start))
        for lie in (False, True):
            if lie:
                with path.open("r+b") as out:
                    out.seek(len("TYPE: TSP\n"))
                    out.write(b"DIMENSION: 3      "[: len(f"DIMENSION: {rows}")])
            command = [sys.executable, __file__, "--read", str(path)]
            print(f"{path.stat().st_size / 1e6:.0f} MB, {'lying' if lie else 'honest'}:", end=" ", flush=True)
            subprocess.run(command, check=True)


def read_and_report(path: Path) -> None:
    """Read one file; print what came of it, seconds and peak memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    try:
        what = f"{read_tsp(path).n} nodes"
    except NcoBenchError as error:
        what = str(error).split(": ", 1)[1]
    seconds = time.perf_counter() - start
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"{what}; {seconds:.1f} s, {peak:.0f} MiB above the start")


def main() -> None:
    """Run all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=Path, default=Path("instances"))
    parser.add_argument("--read", type=Path)
    parser.add_argument("--big", action="store_true", help="also measure the 200 MB file")
    options = parser.parse_args()
    if options.read:
        read_and_report(options.read)
        return
    mirror = os.environ.get("NCO_BENCH_MIRROR")
    places = [options.instances] + ([Path(mirror) / "instances"] if mirror else [])
    good = library_times(places)
    format_times(places)
    if options.big:
        big_file_memory()
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
