"""Runs on a real SLURM of one node; ``make cluster-test`` brings it up. Without it these tests are skipped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from one_node import PATIENCE, SMALL, Place, command

from nco_bench.runs.finding import find_runs


def test_check_says_that_all_is_well_or_what_is_wrong(place: Place) -> None:
    assert place.call("cluster", "check", "--slurm", "gpus=1").stdout.startswith("ok: job ")
    wrong = place.call("cluster", "check", "--slurm", "partition=nope", status=2).stderr
    assert "invalid partition specified: nope" in wrong.splitlines()[-1].lower()
    same = ("run", "nearest-neighbor", "--data", "tsp20:count=2", *SMALL, "--slurm", "partition=nope")
    assert "invalid partition specified: nope" in place.call(*same, status=2).stderr.splitlines()[-1].lower()
    assert not place.records()
    assert "at most 2" in place.call("cluster", "check", "--slurm", "gpus=9", status=2).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cluster", "check"), "does not see the folder"),
        (("run", "nearest-neighbor", "--data", "tsp20:count=2", *SMALL), "does that node see the folder?"),
    ],
)
def test_a_results_folder_that_the_node_cannot_see_is_said_in_a_line(
    place: Place, words: tuple[str, ...], said: str
) -> None:
    line = " ".join(command(*words, "--results", "hidden"))
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", f"mkdir -p hidden; mount -t tmpfs none hidden; exec {line}"],
        cwd=place.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr.splitlines()[-1], done.stderr


def test_a_job_that_slurm_never_starts_is_cancelled_with_its_reason(place: Place) -> None:
    line = ("run", "nearest-neighbor", "--data", "tsp20:count=2", *SMALL, "--slurm", "time=2:00:00")
    assert "PartitionTimeLimit" in place.call(*line, status=2).stderr.splitlines()[-1]
    assert not place.records()
    queue = subprocess.run(["squeue", "-h", "--me"], capture_output=True, text=True, check=True)
    assert not queue.stdout


def test_several_solvers_and_datasets_are_one_submission_and_are_never_computed_twice(place: Place) -> None:
    sets = ("--data", "tsp20:count=40", "--data", "tsp30:count=20")
    line = ("run", "random-insertion", "nearest-neighbor", *sets, *SMALL)
    first = json.loads(place.call(*line, "--json").stdout)
    assert len(first["cells"]) == 4
    assert place.statuses() == {"ok": 120}
    assert len(list((place.folder / "results/runs/slurm").glob("*/submission.json"))) == 1
    closed = (place.folder / "results/runs/slurm/runs.jsonl").read_bytes().count(b'{"run":')
    assert closed == len(find_runs(place.folder / "results/runs"))
    again = place.call(*line)
    assert "all 120 solutions are stored; nothing was submitted" in again.stderr
    assert place.statuses() == {"ok": 120}


def test_detached_jobs_are_seen_from_any_shell_and_the_same_command_at_once_computes_nothing_twice(
    place: Place,
) -> None:
    line = ("run", "slow.py:free=4", "--data", "tsp20:count=12", "--slurm", "shards=2", "--jobs", "2", *SMALL)
    pair = [
        subprocess.Popen(command(*line, "--detach"), cwd=place.folder, stderr=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    told = [process.communicate(timeout=PATIENCE)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert sorted("in hand" in one for one in told) == [False, True]
    place.until_records(8)
    seen = place.status()
    assert seen["jobs"]["running"] == 2
    assert seen["rate"] > 0
    assert seen["seconds_left"] > 0
    place.go()
    place.call("runs", "wait")
    assert place.status()["jobs"]["done"] == 2
    assert place.statuses() == {"ok": 12}


@pytest.mark.slow
def test_a_job_that_takes_too_much_memory_is_recorded_and_the_rest_goes_on(place: Place) -> None:
    names = [one.name for one in _instances("tsp20:count=6", place.folder)]
    place.call(
        "run",
        f"slow.py:hungry={names[3]}",
        "--data",
        "tsp20:count=6",
        "--slurm",
        "shards=1",
        *SMALL,
        status=1,
    )
    assert place.statuses() == {"ok": 5, "oom": 1}
    runs = find_runs(place.folder / "results/runs")
    (oom,) = [r for one in runs for r in one.records() if r.status == "oom"]
    assert oom.instance == 3


def _instances(name: str, folder: Path) -> Any:
    from nco_bench.datasets.load import Places, load_dataset

    return load_dataset(name, Places(folder / "instances")).instances
