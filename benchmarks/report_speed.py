"""How long a report over many records takes, and how much memory. Aim: 1,000,000 records in 10 s and 2 GB on 2 cores.

With --counts every record holds counts, as those of tasks whose metrics are pooled do (precision, F1).

Usage: python benchmarks/report_speed.py [--records 1000000] [--html] [--counts]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

from nco_bench.runs.records import SCHEMA, Cell, Record, dump_line
from nco_bench.seals import first_broken

CELLS = 100
COUNTS = {"true_positives": 61.0, "false_positives": 7.0, "false_negatives": 12.0, "true_negatives": 20.0}
REPORT = """
import sys
from pathlib import Path
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.render.latex import render
from nco_bench.reports.tables.table import build_table
frame = load_frame(Path(sys.argv[1]))
for name in ("main", "gaps", "times"):
    render(build_table(name, frame))
if sys.argv[2] == "html":
    from nco_bench.reports.html import page as render_html
    text = render_html.render(frame)
    print(f"HTML page: {len(text.encode()) / 1e6:.2f} MB")
import os, resource
own, forks = (resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(f"peak {own:.0f} MB, and up to {forks:.0f} MB (shared pages counted again) in each of at most {os.cpu_count()} forks")
"""


def write_results(folder: Path, total: int, counts: dict[str, float] | None = None) -> None:
    """Write a run of 10 solvers on 10 datasets."""
    generator = np.random.default_rng(1234)
    run = folder / "20260101-000000-1-benchmark"
    run.mkdir(parents=True)
    (run / "run.json").write_bytes(
        orjson.dumps({"schema": SCHEMA, "version": "0", "environment": {"cpu": "none"}})
    )
    per_cell = total // CELLS
    with (run / "cells.jsonl").open("wb") as cells, (run / "records.jsonl").open("wb") as records:
        for index in range(CELLS):
            solver, n = f"solver-{index // 10}", 100 * (index % 10 + 1)
            cells.write(
                dump_line(
                    Cell(
                        index, solver, solver, "1", "greedy", "neural", {}, f"config-{solver}", None, f"tsp{n}",
                        f"sha-{n}", "tsp", "1", "min", "euclidean", {"distribution": "uniform"}, per_cell, 1, 1234,
                        "lkh3", "cpu", 1,
                    )
                )
            )  # fmt: skip
            costs = generator.normal(8.0, 0.2, per_cell)
            for i, cost in enumerate(costs.tolist()):
                records.write(
                    dump_line(
                        Record(
                            generator.bytes(16).hex(), index, i, f"tsp{n}-{i}", n, 0, 1234 + i, "ok", cost, 7.7,
                            0.01, False, (i * n, n), "0123456789abcdef", "euclidean",
                            instance_sha256=f"{n << 32 | i:016x}", counts=counts,
                        )
                    )
                )  # fmt: skip


def checking(folder: Path) -> float:
    """Return the processor seconds that the checksums of all lines take."""
    lines = next(folder.glob("*/records.jsonl")).read_bytes().split(b"\n")[:-1]
    start = time.process_time()
    assert first_broken(lines) is None
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--html", action="store_true")
    parser.add_argument("--counts", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_results(Path(folder), options.records, COUNTS if options.counts else None)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", REPORT, folder, "html" if options.html else ""], check=True)
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        print(
            f"{options.records:,} records{' with counts' if options.counts else ''}, three tables: "
            f"{seconds:.1f} s ({cpu:.1f} s CPU), of which checksums {checking(Path(folder)):.2f} s CPU"
        )


if __name__ == "__main__":
    main()
