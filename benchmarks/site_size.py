"""How large the leaderboard of many records is, and how long it takes to make. Aim: 100,000 records under 3 MB.

Records are synthetic: solvers on sets of random instances, a run per cell, with real hashes of instances and the solutions
of the first few of each set, so that pictures count too. Costs have all their digits, as real ones do.

Usage: python benchmarks/site_size.py [--records 100000] [--solvers 10] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.reports.site.build import PICTURES, build_site
from nco_bench.runs.environment import cpu_model, package_versions
from nco_bench.runs.records import SCHEMA, Cell, Record, dump_line

SIZES = (20, 50, 100, 200, 300, 400, 500, 600, 800, 1000)


def write_results(folder: Path, total: int, solvers: int) -> None:
    """Write a run of every solver on every set."""
    generator = np.random.default_rng(1234)
    count = total // (solvers * len(SIZES))
    environment = {"cpu": cpu_model(), "cpu_count": 2, "packages": package_versions(), "gpu": []}
    for n in SIZES:
        dataset = load_dataset(f"tsp{n}:count={count}", Places(folder / "none"))
        for solver in range(solvers):
            name = f"solver-{solver}"
            run = folder / f"20260101-0000{solver:02d}-000000-{n}-abcdef"
            run.mkdir(parents=True)
            info = {"schema": SCHEMA, "version": "0", "environment": environment}
            info["command"] = (
                f"nco-bench run {name} --data tsp{n}:count={count} --decoding greedy --results results/runs"
            )
            (run / "run.json").write_bytes(orjson.dumps(info))
            cell = Cell(
                0, name, name, "1", "greedy", "neural", {"params": {}}, f"{generator.bytes(32).hex()}", None, dataset.name,
                dataset.sha256, "tsp", "1", "min", "euclidean", {"generator": "nco-bench", "version": "1"}, count, 1, 1234,
                "lkh3", "cpu", 1, source=dataset.name, asked=(0, count),
            )  # fmt: skip
            (run / "cells.jsonl").write_bytes(dump_line(cell))
            tours = [generator.permutation(n).astype("<i4") for _ in range(min(count, PICTURES))]
            (run / "solutions.bin").write_bytes(b"".join(tour.tobytes() for tour in tours))
            records = [
                Record(
                    generator.bytes(16).hex(), 0, i, instance.name, n, 0, 1234 + i, "ok",
                    float(generator.normal(0.75 * n**0.5, 0.02)), float(0.7124 * n**0.5 + 0.001 * (i % 997)),
                    float(generator.gamma(2.0, 0.01)), False, (i * n, n) if i < len(tours) else None, None, "euclidean",
                    instance_sha256=dataset.instance_hashes[i],
                )
                for i, instance in enumerate(dataset.instances)
            ]  # fmt: skip
            (run / "records.jsonl").write_bytes(b"".join(map(dump_line, records)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument(
        "--solvers", type=int, default=10, help="1 is the hardest: no instance is shared by two rows"
    )
    parser.add_argument("--out", type=Path, help="Keep the site there.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "runs"
        write_results(results, options.records, options.solvers)
        start, cpu = time.perf_counter(), time.process_time()
        built = build_site([results], options.out or Path(folder) / "site", Places(Path(folder) / "none"))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(cpu_model())
    print(
        f"{built.records:,} records, {built.rows} rows, {built.pictures} instances drawn: {built.bytes / 1e6:.2f} MB in "
        f"{built.files} files, {seconds:.1f} s ({cpu:.1f} s CPU)"
    )
    if built.bytes > 3e6:
        raise SystemExit("over 3 MB")


if __name__ == "__main__":
    main()
