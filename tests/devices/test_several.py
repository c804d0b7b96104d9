"""Several accelerators: a process for each, shards from a queue, and no two processes on one unless it is named twice.

Processes of their own know the second device as they would any other that is installed: by an entry point of torch.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import second
from sweep import plain, solved

from nco_bench.api import load, plan
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import score_batch
from nco_bench.runs.devices import processes, resolve_device, resolve_devices
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell
from nco_bench.study import Study

COUNT = 8
"""Instances: with a batch size of 1 every one of the 2 devices has 4 shards of 1."""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the second device is installed."""
    package = tmp_path / "site" / "second-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[torch.backends]\nsecond = second:register\n")
    here = Path(__file__).parent
    path = [str(package.parent), str(here), str(here.parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}


def run(environment: dict[str, str], folder: Path, device: str, *more: str, solver: str = "am") -> Any:
    line = [
        sys.executable,
        "-m",
        "nco_bench",
        "run",
        solver,
        "--data",
        f"tsp5:count={COUNT}",
        "--device",
        device,
    ]
    line += ["--weights", "random", "--batch-size", "1"] if solver == "am" else []
    line += ["--results", str(folder / "runs"), "--instances", str(folder), "--json", *more]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, cwd=folder)


def cells(folder: Path) -> list[Cell]:
    return [cell for run in find_runs(folder / "runs") for cell in run.cells()]


def test_each_device_has_a_process_and_what_comes_out_is_the_same(
    installed: dict[str, str], tmp_path: Path
) -> None:
    both = run(installed, tmp_path, "all")
    assert both.returncode == 0, both.stderr
    assert "2 jobs on second:0, second:1: 8 to solve" in both.stderr
    made = cells(tmp_path)
    assert {cell.device for cell in made} <= {"second:0", "second:1"}
    assert len(made) == COUNT
    assert all(cell.notes == ["timed with 2 jobs at once"] for cell in made)
    costs = [record["cost"] for found in find_runs(tmp_path / "runs") for record in found.raw_records()]
    data = f"tsp5:count={COUNT}"
    tours = [plain(tour) for tour in solved("am", data, "cpu")]
    assert sorted(costs) == pytest.approx(sorted(score_batch(load(data).instances, tours)))
    study = Study("am", data, weights="random", batch_size=1, results=tmp_path / "runs", instances=tmp_path)
    assert plan(replace(study, device="second:1")).to_solve == 0, "the same keys, whichever device it was"


def test_a_device_that_is_named_twice_is_shared_and_its_times_say_so(
    installed: dict[str, str], tmp_path: Path
) -> None:
    shared = run(installed, tmp_path, "second:1,1")
    assert shared.returncode == 0, shared.stderr
    assert {cell.device for cell in cells(tmp_path)} == {"second:1"}
    assert all("2 of them on second:1" in cell.notes[0] for cell in cells(tmp_path))


@pytest.mark.parametrize(
    ("device", "jobs", "message"),
    [
        (f"{second.NAME}:0", 2, "2 processes would share second:0"),
        (f"{second.NAME}:0,1", 3, "3 processes would share 2 GPUs"),
    ],
)
def test_jobs_share_no_device_silently(device: str, jobs: int, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        processes(device, resolve_devices(device), jobs)


def test_devices_are_those_that_are_there() -> None:
    assert resolve_devices("second:1,0") == ("second:1", "second:0")
    assert resolve_devices("all") == ("second:0", "second:1")
    assert resolve_devices("second") == ("second",)
    assert processes("cpu", resolve_devices("cpu"), 3) == ("cpu",) * 3
    assert processes("all", resolve_devices("all"), 2) == ("second:0", "second:1")
    for name, message in {
        "second:0,2": "has 2 second devices; use --device all",
        "cuda:0,1": "has 0 CUDA devices; use --device cpu",
        "cpu:0,1": "expected auto",
        "cuda:0,": "expected auto",
        "cuda:0,,1": "expected auto",
    }.items():
        with pytest.raises(BadInputError, match=message):
            resolve_devices(name)
    with pytest.raises(BadInputError, match="one device is needed"):
        resolve_device("second:0,1")
