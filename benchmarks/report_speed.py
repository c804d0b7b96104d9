"""How long a report over many records takes, and how much memory, on 2 cores.

Aims: 1,000,000 records from lines, and 10,000,000 from an archive (--archive), in 10 s and 2 GB. With --counts every record
holds counts, as those of tasks whose metrics are pooled do (precision, F1).

Usage: python benchmarks/report_speed.py [--records 1000000] [--html] [--counts | --archive]
"""

from __future__ import annotations

import argparse
import base64
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import orjson

from nco_bench.runs.archive_check import OF_CELL, archive_schema
from nco_bench.runs.archives import FACTS, FORMAT, HASH, NO_HASH, RUNS, digest
from nco_bench.runs.packing import GROUP_ROWS, NOT_REPEATED
from nco_bench.runs.records import SCHEMA, Cell, Record, dump_line
from nco_bench.seals import first_broken

CELLS = 100
RUN = "20260101-000000-1-benchmark"
INFO = {"schema": SCHEMA, "version": "0", "environment": {"cpu": "none"}}
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


def cell_of(index: int, per_cell: int) -> Cell:
    """Return one of ten solvers on one of ten datasets."""
    solver, n = f"solver-{index // 10}", 100 * (index % 10 + 1)
    return Cell(
        index, solver, solver, "1", "greedy", "neural", {}, f"config-{solver}", None, f"tsp{n}", f"sha-{n}", "tsp", "1",
        "min", "euclidean", {"distribution": "uniform"}, per_cell, 1, 1234, "lkh3", "cpu", 1,
    )  # fmt: skip


def write_results(folder: Path, total: int, counts: dict[str, float] | None = None) -> None:
    """Write a run of 10 solvers on 10 datasets."""
    generator = np.random.default_rng(1234)
    run = folder / RUN
    run.mkdir(parents=True)
    (run / "run.json").write_bytes(orjson.dumps(INFO))
    per_cell = total // CELLS
    with (run / "cells.jsonl").open("wb") as cells, (run / "records.jsonl").open("wb") as records:
        for index in range(CELLS):
            cell = cell_of(index, per_cell)
            n = int(cell.dataset.removeprefix("tsp"))
            cells.write(dump_line(cell))
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


def write_archive(folder: Path, total: int) -> None:
    """Write the same as an archive, without solutions, in row groups of the size that packing makes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = archive_schema()
    generator = np.random.default_rng(1234)
    per_cell = total // CELLS
    cells = [cell_of(index, per_cell) for index in range(CELLS)]
    repeated = [name for name in schema.names if name not in NOT_REPEATED]
    path = folder / "runs.parquet"
    with pq.ParquetWriter(
        path, schema, compression="zstd", store_schema=False, use_dictionary=repeated
    ) as writer:
        for cell in cells:
            n = int(cell.dataset.removeprefix("tsp"))
            for start in range(0, per_cell, GROUP_ROWS):
                i = range(start, min(start + GROUP_ROWS, per_cell))
                fixed = {
                    "run": RUN, "version": "0", "dirty": False, "cell": cell.cell, "n": n, "repeat": 0, "status": "ok",
                    "reference": 7.7, "seconds": 0.01, "optimal": False, "solution_sha256": "0123456789abcdef",
                    "convention": "euclidean", "message": "", **{name: getattr(cell, name) for name in OF_CELL},
                }  # fmt: skip
                own = {
                    "key": [generator.bytes(16).hex() for _ in i], "instance": i, "name": [f"tsp{n}-{k}" for k in i],
                    "seed": [1234 + k for k in i], "cost": generator.normal(8.0, 0.2, len(i)),
                    "instance_sha256": [f"{n << 32 | k:016x}" for k in i],
                }  # fmt: skip
                columns = [
                    pa.array(own[name], field.type) if name in own
                    else pa.repeat(pa.scalar(fixed.get(name), field.type), len(i))
                    for name, field in zip(schema.names, schema, strict=True)
                ]  # fmt: skip
                writer.write_table(pa.table(columns, schema=schema))
        described = [
            {
                "id": RUN,
                "records": per_cell * CELLS,
                "info": INFO,
                "cells": [asdict(c) for c in cells],
                "traces": [],
            }
        ]
        facts = {"format": FORMAT, "version": "0", "revision": {}, "runs": 1, "records": per_cell * CELLS}
        once = base64.b64encode(zlib.compress(orjson.dumps(described)))
        writer.add_key_value_metadata({FACTS: orjson.dumps(facts), RUNS: once, HASH: NO_HASH})
    data = path.read_bytes()
    place = data.rfind(NO_HASH)
    path.write_bytes(data[:place] + digest(data, NO_HASH) + data[place + len(NO_HASH) :])


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
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--counts", action="store_true")
    kind.add_argument("--archive", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.archive:
            write_archive(Path(folder), options.records)
        else:
            write_results(Path(folder), options.records, COUNTS if options.counts else None)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", REPORT, folder, "html" if options.html else ""], check=True)
        seconds = time.perf_counter() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        how = " with counts" if options.counts else " in an archive" if options.archive else ""
        print(f"{options.records:,} records{how}, three tables: {seconds:.1f} s ({cpu:.1f} s CPU)", end="")
        print("" if options.archive else f", of which checksums {checking(Path(folder)):.2f} s CPU")


if __name__ == "__main__":
    main()
