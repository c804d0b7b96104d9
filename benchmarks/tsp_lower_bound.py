"""
How far stored tours are from optimal at most: their lengths beside lower bounds by Concorde's cutting planes.

    NCO_BENCH_CONCORDE=/path/to/concorde python benchmarks/tsp_lower_bound.py --solver lkh3:max_trials=100 \
        --data fu_tsp1000 --results results/classical --count 20 --out bounds.csv

Runs the Concorde executable with -B (cut, do not branch) on each instance, with the stored tour as its upper bound. Tour
and bound are both taken on the integer distances that Concorde gets, so the bound is exact for those; each edge is
rounded by at most two millionths of the extent. Instances whose bound --out has already are left out.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.problems.tsp import TSPInstance
from nco_bench.runs.finding import find_runs
from nco_bench.solvers.classical.tsplib_text import scaled_points, tsp_text

FIELDS = (
    "dataset",
    "instance",
    "solver",
    "cost",
    "tour_units",
    "bound_units",
    "gap_percent_at_most",
    "cpu_seconds",
)
BOUNDS = re.compile(r"(?:Exact lower bound|Optimal Solution|New lower bound): +([0-9.]+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solver", default="lkh3")
    parser.add_argument("--data", default="fu_tsp1000")
    parser.add_argument("--results", type=Path, default=Path("results/classical"))
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("bounds.csv"))
    arguments = parser.parse_args()
    program = shutil.which(os.environ.get("NCO_BENCH_CONCORDE", "concorde"))
    if program is None:
        raise SystemExit("no Concorde executable; name one in NCO_BENCH_CONCORDE")
    dataset = load_dataset(arguments.data, Places.from_environment())
    tours = stored_tours(arguments.results, arguments.solver, dataset.sha256)
    rows = read_rows(arguments.out)
    done = {int(row["instance"]) for row in rows}
    for index in sorted(set(tours) & set(range(arguments.count)) - done):
        cost, tour = tours[index]
        instance = dataset.instances[index]
        if not isinstance(instance, TSPInstance) or instance.coords is None:
            raise SystemExit(f"{dataset.name} has no coordinates or is no TSP")
        points = scaled_points(instance.coords, dataset.convention)
        edges = np.hypot(*(points[tour] - np.roll(points[tour], -1, axis=0)).T)
        units = int(np.floor(edges + 0.5).sum())
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        bound = lower_bound(program, tsp_text(instance), tour)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        gap = 100 * (units / bound - 1)
        values = (dataset.name, index, arguments.solver, cost, units, bound, f"{gap:.4f}", f"{seconds:.1f}")
        rows.append(dict(zip(FIELDS, map(str, values), strict=True)))
        write_rows(arguments.out, rows)
        print(
            f"{dataset.name} {index}: {cost:.6f}, at most {gap:.4f} % above optimal, {seconds:.1f} s",
            flush=True,
        )
    total = sum(int(row["tour_units"]) for row in rows) / sum(float(row["bound_units"]) for row in rows)
    print(f"{len(rows)} instances: mean length at most {100 * (total - 1):.4f} % above that of optimal tours")


def stored_tours(
    results: Path, solver: str, dataset_sha256: str
) -> dict[int, tuple[float, NDArray[np.int32]]]:
    """Return cost and tour by instance from the records of one solver on one dataset."""
    tours = {}
    for run in find_runs(results):
        cells = {c.cell for c in run.cells() if (c.label, c.dataset_sha256) == (solver, dataset_sha256)}
        for record in run.records():
            if record.cell in cells and record.cost is not None:
                tours[record.instance] = (record.cost, run.solution(record))
    return tours


def lower_bound(program: str, problem: str, tour: NDArray[np.int32]) -> float:
    """Return the best bound that Concorde prints; it needs no proof of optimality."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "p.tsp").write_text(problem)
        Path(folder, "p.tour").write_text(f"{len(tour)}\n{' '.join(map(str, tour))}\n")
        command = [program, "-s", "1", "-B", "-x", "-t", "p.tour", "-o", "p.sol", "p.tsp"]
        # Its status says nothing: with -B it also ends with one when it did as asked.
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    bounds = [float(bound) for bound in BOUNDS.findall(ended.stdout)]
    if not bounds:
        raise SystemExit(f"Concorde printed no bound: {ended.stderr[-300:]}")
    return max(bounds)


def read_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
