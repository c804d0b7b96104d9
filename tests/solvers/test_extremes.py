"""Numbers at the edge: every solver solves them, or says in one line why not; the referee scores what it returns."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from nco_bench.cli.app import run
from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.storage import save_dataset
from nco_bench.problems import Instance
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Record
from nco_bench.solvers.availability import availability
from nco_bench.solvers.registry import find

SQUARE = np.random.default_rng(7).random((9, 2))
LINE = np.stack([np.linspace(0, 1, 9), np.zeros(9)], axis=1)
POINTS = {
    "all equal": np.full((9, 2), 0.25),
    "on a line": LINE,
    "on a slanted line": LINE @ np.array([[0.6, 0.8], [0.0, 0.0]]),
    "each twice": np.repeat(SQUARE[:5], 2, axis=0)[:9],
    "tiny": SQUARE * 1e-12,
    "huge": SQUARE * 1e12,
    "far away": SQUARE + 1e9,
    "negative": SQUARE - 5,
    "two": SQUARE[:2],
    "three": SQUARE[:3],
    "two equal": np.full((2, 2), 0.5),
}
DEMAND = np.array([1, 4, 2, 5, 3, 1, 2, 6])
LOADS = {
    "no demand": (np.zeros(8, dtype=np.int64), 10),
    "some without": (DEMAND * np.array([0, 1] * 4), 10),
    "largest fills a vehicle": (DEMAND, 6),
    "all fill a vehicle": (np.full(8, 10), 10),
    "one vehicle": (DEMAND, int(DEMAND.sum())),
    "one customer": (DEMAND[:1], 10),
    "one customer fills a vehicle": (DEMAND[:1], 1),
}
FULL = os.environ.get("NCO_BENCH_TORTURE") == "1"
TSP = (
    "concorde",
    "lkh3",
    "fast-tsp",
    "random-insertion",
    "nearest-neighbor",
    "farthest-insertion",
    "two-opt",
    "am",
    "lehd",
)
CVRP = ("hgs", "lkh3", "pyvrp", "ortools", "random-insertion", "savings", "two-opt", "am", "lehd")
if FULL:  # one network of each family beside them
    TSP += (
        "bq",
        "pomo",
        "elg",
        "invit",
        "dgl",
        "sit",
        "sigd",
        "pens-ar",
        "coordns",
        "decoder-6x128",
        "difusco",
        "pyvrp",
    )
    CVRP += ("bq", "pomo", "elg", "invit", "dgl", "sit", "sigd", "nearest-neighbor")
QUICK = {"hgs": ":iterations=50", "pyvrp": ":iterations=50", "lkh3": ":max_trials=100"}


def tours() -> list[Instance]:
    return [TSPInstance(name, points) for name, points in POINTS.items()]


def routes() -> list[Instance]:
    shaped = [
        CVRPInstance(name, points[0], points[1:], DEMAND[: len(points) - 1], 10)
        for name, points in POINTS.items()
    ]
    at_the_depot = CVRPInstance("at the depot", SQUARE[0], np.repeat(SQUARE[:1], 8, axis=0), DEMAND, 10)
    loaded = [
        CVRPInstance(name, SQUARE[0], SQUARE[1 : 1 + len(demand)], demand, capacity)
        for name, (demand, capacity) in LOADS.items()
    ]
    return [*shaped, at_the_depot, *loaded]


def solved(solver: str, instances: list[Instance], folder: Path) -> list[Record]:
    """Run a solver on all of them, a network on those of each size, which it takes one at a time; return the records."""
    neural = find(solver).kind == "neural"
    command = ["run", solver + QUICK.get(solver, ""), *(("--weights", "random") if neural else ())]
    for size in dict.fromkeys(instance.n if neural else "any" for instance in instances):
        alike = tuple(instance for instance in instances if size in (instance.n, "any"))
        origin = Origin("test", "1", "", 0, {})
        dataset = Dataset(f"size-{size}", alike[0].problem, alike, (None,) * len(alike), origin)
        command += ["--data", str(save_dataset(dataset, folder / f"size-{size}.npz"))]
    assert run([*command, "--results", str(folder / "runs"), "--instances", str(folder)]) in (0, 1)
    return [record for one in find_runs(folder / "runs") for record in one.records()]


@pytest.mark.parametrize(
    ("solver", "problem"),
    [*((name, "tsp") for name in TSP), *((name, "cvrp") for name in CVRP)],
    ids=" ".join,
)
def test_extremes_are_solved(solver: str, problem: str, tmp_path: Path) -> None:
    """Feasible tours of float64 cost; none longer than the worst order of its points, none of equal points above 0."""
    reason = availability(find(solver)).missing
    if reason:
        pytest.skip(f"{solver}: {reason}")
    instances = tours() if problem == "tsp" else routes()
    records = solved(solver, instances, tmp_path)
    assert {record.name: record.message for record in records if record.status != "ok"} == {}
    by_name = {record.name: record for record in records}
    assert by_name.keys() == {instance.name for instance in instances}
    for instance in instances:
        record = by_name[instance.name]
        points = (
            instance.coords
            if isinstance(instance, TSPInstance)
            else np.vstack([instance.depot, instance.customers])
        )
        extent = float(np.linalg.norm(points - points.mean(axis=0), axis=1).max())
        assert record.cost is not None
        assert 0 <= record.cost <= 4 * extent * max(1, len(points)) + 1e-9
        if "equal" in record.name or record.name == "at the depot":
            assert record.cost == 0
