"""Runs on a real SLURM of one node; ``make cluster-test`` brings it up. Without it these tests are skipped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nco_bench.runs.finding import find_runs

pytestmark = pytest.mark.skipif(
    "NCO_BENCH_SLURM_NODE" not in os.environ, reason="needs SLURM: make cluster-test"
)

SOLVER = """\
import os, time
import numpy as np
from nco_bench.solvers import register

@register("slow", problems=("tsp",))
class Slow:
    def __init__(self, options):
        self.options = options
    def unsupported(self, dataset):
        return None
    def prepare(self, dataset):
        pass
    def solve(self, batch, *, seed, time_limit, progress):
        for _ in range(int(10 * float(self.options.params.get("seconds", 0.1)))):
            time.sleep(0.1)
        hungry = self.options.params.get("hungry")
        if hungry and batch[0].name.endswith(hungry) and "SLURM_JOB_ID" in os.environ:
            held = []
            while True:
                held.append(np.ones(4 << 20)); time.sleep(0.05)
        with open("solved", "a") as file:
            file.write(batch[0].name + "\\\\n")
        return [np.arange(one.n) for one in batch]
""".replace("\\\\n", "\\n")
SMALL = ("--executor", "slurm", "--slurm", "memory=400M")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a slow solver; jobs that a test leaves are cancelled."""
    (tmp_path / "slow.py").write_text(SOLVER)
    yield tmp_path
    subprocess.run(["scancel", "--quiet", "--me"], check=False)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nco_bench", *words]


def call(place: Path, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*words), cwd=place, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def statuses(place: Path, folder: str = "results/runs") -> Counter[str]:
    """Records by status; no key has two."""
    records = [record for one in find_runs(place / folder) for record in one.records()]
    assert len({record.key for record in records}) == len(records)
    return Counter(record.status for record in records)


def status(place: Path) -> dict[str, Any]:
    return dict(json.loads(call(place, "runs", "status", "--json").stdout)[0])


def until(place: Path, true: Any, seconds: float = 60) -> dict[str, Any]:
    for _ in range(int(seconds)):
        now = status(place)
        if true(now):
            return now
        time.sleep(1)
    raise AssertionError(now)


def test_check_says_that_all_is_well_or_what_is_wrong(place: Path) -> None:
    assert call(place, "cluster", "check", "--slurm", "gpus=1").stdout.startswith("ok: job ")
    wrong = call(place, "cluster", "check", "--slurm", "partition=nope", status=2).stderr
    assert "invalid partition specified: nope" in wrong.splitlines()[-1].lower()
    assert "at most 2" in call(place, "cluster", "check", "--slurm", "gpus=9", status=2).stderr
    check = " ".join(command("cluster", "check", "--results", "hidden"))
    hidden = f"mkdir -p hidden; mount -t tmpfs none hidden; exec {check}"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", hidden],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "does not see the folder" in done.stderr.splitlines()[-1]


def test_several_solvers_and_datasets_are_one_submission_and_are_never_computed_twice(place: Path) -> None:
    line = ("run", "random-insertion", "nearest-neighbor", "--data", "tsp20:count=40", "--data", "tsp30:count=20",
            "--seed", "1", "--seed", "2", *SMALL)  # fmt: skip
    first = json.loads(call(place, *line, "--json").stdout)
    assert len(first["cells"]) == 8
    assert statuses(place) == {"ok": 240}
    assert len(list((place / "results/runs/slurm").glob("*/submission.json"))) == 1
    again = call(place, *line)
    assert "all 240 solutions are stored; nothing was submitted" in again.stderr
    assert statuses(place) == {"ok": 240}


def test_detached_jobs_are_seen_from_any_shell_and_the_same_command_at_once_computes_nothing_twice(
    place: Path,
) -> None:
    line = (
        "run",
        "slow.py:seconds=0.3",
        "--data",
        "tsp20:count=30",
        "--slurm",
        "shards=2",
        "--jobs",
        "2",
        *SMALL,
    )
    pair = [
        subprocess.Popen(command(*line, "--detach"), cwd=place, stderr=subprocess.PIPE, text=True)
        for _ in "ab"
    ]
    told = [process.communicate(timeout=60)[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0]
    assert sorted("in hand" in one for one in told) == [False, True]
    seen = until(place, lambda now: now["solved"] >= 4 and now["rate"])
    assert seen["jobs"]["running"] == 2
    assert seen["seconds_left"] > 0
    call(place, "runs", "wait")
    assert status(place)["jobs"]["done"] == 2
    assert statuses(place) == {"ok": 30}


def test_a_job_that_takes_too_much_memory_is_recorded_and_the_rest_goes_on(place: Path) -> None:
    line = ("run", "slow.py:hungry=00003", "--data", "tsp20:count=6", "--slurm", "shards=1", *SMALL)
    names = [one.name for one in _instances("tsp20:count=6", place)]
    line = (line[0], f"slow.py:hungry={names[3]}", *line[2:])
    call(place, *line, status=1)
    assert statuses(place) == {"ok": 5, "oom": 1}
    (oom,) = [r for one in find_runs(place / "results/runs") for r in one.records() if r.status == "oom"]
    assert oom.instance == 3


def _instances(name: str, place: Path) -> Any:
    from nco_bench.datasets.load import Places, load_dataset

    return load_dataset(name, Places(place / "instances")).instances


@pytest.mark.slow
def test_a_job_at_its_time_limit_goes_on_at_its_next_instance(place: Path) -> None:
    line = ("run", "slow.py:seconds=1", "--data", "tsp20:count=25", "--slurm", "time=1", "--slurm", "warning=50", *SMALL,
            "--slurm", "shards=1")  # fmt: skip
    call(place, *line)
    assert statuses(place) == {"ok": 25}
    assert status(place)["tasks"][0]["deaths"] >= 1


@pytest.mark.slow
def test_cancelled_jobs_stay_so_and_the_same_command_goes_on(place: Path) -> None:
    line = ("run", "slow.py:seconds=0.5", "--data", "tsp20:count=12", "--slurm", "shards=2", *SMALL)
    shell = subprocess.Popen(command(*line), cwd=place, stderr=subprocess.DEVNULL)
    for _ in range(60):
        if list((place / "results/runs/slurm").glob("*/submission.json")):
            break
        time.sleep(0.5)
    until(place, lambda now: now["solved"] >= 2)
    shell.send_signal(signal.SIGKILL)  # the submitting shell is killed, and then the jobs are cancelled
    shell.wait()
    subprocess.run(["scancel", "--me"], check=True)
    until(place, lambda now: now["jobs"]["lost"] == 2)
    call(place, "runs", "wait", status=1)
    call(place, *line)
    assert statuses(place) == {"ok": 12}


@pytest.mark.slow
def test_a_dead_node_is_survived(place: Path) -> None:
    folder = Path(os.environ["NCO_BENCH_SLURM_NODE"])
    call(
        place,
        "run",
        "slow.py:seconds=0.5",
        "--data",
        "tsp20:count=16",
        "--slurm",
        "shards=1",
        *SMALL,
        "--detach",
    )
    seen = until(place, lambda now: now["solved"] >= 2)
    subprocess.run(
        [
            "scontrol",
            "update",
            f"nodename={seen['tasks'][0]['node'].split('.')[0]}",
            "state=down",
            "reason=test",
        ],
        check=True,
    )
    time.sleep(3)
    subprocess.run(
        ["scontrol", "update", f"nodename={seen['tasks'][0]['node'].split('.')[0]}", "state=resume"],
        check=True,
    )
    call(place, "runs", "wait")
    assert folder.is_dir()
    assert statuses(place) == {"ok": 16}


@pytest.mark.slow
def test_a_full_disk_is_said_in_a_line_and_the_same_command_goes_on(place: Path) -> None:
    small = place / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(small)], check=True)
    try:
        line = (
            "run",
            "slow.py:seconds=0.2",
            "--data",
            "tsp20:count=40",
            "--slurm",
            "shards=1",
            *SMALL,
            "--results",
            "small",
        )
        call(place, *line, "--detach")
        for _ in range(60):
            if any(one.name == "records.jsonl" and one.stat().st_size for one in small.glob("*/*")):
                break
            time.sleep(0.5)
        ballast = small / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        said = call(place, "runs", "wait", "--results", "small", status=1).stderr
        assert "space" in said
        ballast.unlink()
        call(place, *line)
        assert statuses(place, "small")["ok"] == 40
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
