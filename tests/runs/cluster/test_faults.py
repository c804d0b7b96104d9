"""What goes wrong on a cluster, done for real: time limits, dead nodes, cancelled jobs, killed shells, full disks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from one_node import PATIENCE, SMALL, Place, command, until

TAKES_JOBS = {"IDLE", "MIXED", "ALLOCATED", "PLANNED", "COMPLETING"}
AT_TEN_SECONDS = ("--slurm", "time=1", "--slurm", "warning=50", "--slurm", "shards=1")
"""A job that is warned ten seconds after its begin."""


@pytest.mark.slow
def test_a_job_at_its_time_limit_goes_on_at_its_next_instance(place: Place) -> None:
    place.call("run", "slow.py:free=3", "--data", "tsp20:count=5", *AT_TEN_SECONDS, *SMALL)
    assert place.statuses() == {"ok": 5}
    (task,) = place.tasks()
    assert task["deaths"] == 1
    assert (task["stored"], task["solved"]) == (3, 2)


@pytest.mark.slow
def test_a_job_reaches_its_time_limit_so_often_and_then_says_so(place: Place) -> None:
    line = (
        "run",
        "slow.py:free=2",
        "--data",
        "tsp20:count=9",
        *AT_TEN_SECONDS,
        "--slurm",
        "retries=1",
        *SMALL,
    )
    said = place.call(*line, status=1).stderr
    assert "reached its time limit 2 times" in said
    assert place.statuses() == {"ok": 4}
    place.go()
    place.call(*line)
    assert place.statuses() == {"ok": 9}


def test_cancelled_jobs_stay_so_and_the_same_command_goes_on(place: Place) -> None:
    line = ("run", "slow.py:free=2", "--data", "tsp20:count=12", "--slurm", "shards=2", *SMALL)
    shell = subprocess.Popen(command(*line), cwd=place.folder, stderr=subprocess.PIPE, text=True)
    place.until_records(4)
    subprocess.run(["scancel", "--me"], check=True)
    told = shell.communicate(timeout=PATIENCE)[1]  # the command that watches ends, and says what to do
    assert shell.returncode == 1
    assert "start the same command again" in told
    assert place.status()["jobs"]["lost"] == 2
    place.call("runs", "wait", status=1)
    assert place.statuses() == {"ok": 4}
    place.go()
    place.call(*line)
    assert place.statuses() == {"ok": 12}


def test_jobs_outlive_the_shell_that_submitted_them(place: Place) -> None:
    line = ("run", "slow.py:free=2", "--data", "tsp20:count=8", "--slurm", "shards=2", *SMALL)
    shell = subprocess.Popen(
        command(*line), cwd=place.folder, stderr=subprocess.DEVNULL, start_new_session=True
    )
    place.until_records(4)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    place.go()
    place.call("runs", "wait")
    assert place.statuses() == {"ok": 8}
    assert sum(task["deaths"] for task in place.tasks()) == 0


def test_a_shell_killed_between_sbatch_and_its_note_loses_nothing(place: Place) -> None:
    real = shutil.which("sbatch")
    assert real is not None
    fake = place.folder / "bin" / "sbatch"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n{real} "$@"\nkill -9 $PPID\n')
    fake.chmod(0o755)
    line = ("run", "slow.py", "--data", "tsp20:count=8", "--slurm", "shards=2", *SMALL)
    path = f"{fake.parent}:{os.environ['PATH']}"
    killed = subprocess.run(
        command(*line), cwd=place.folder, env={**os.environ, "PATH": path}, capture_output=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    place.call("runs", "wait")
    assert place.statuses() == {"ok": 8}


@pytest.mark.slow
def test_a_node_that_dies_loses_no_more_than_what_it_had_in_hand(place: Place) -> None:
    line = ("run", "slow.py:free=3", "--data", "tsp20:count=8", "--slurm", "shards=1", *SMALL)
    shell = subprocess.Popen(command(*line), cwd=place.folder, stderr=subprocess.PIPE, text=True)
    place.until_records(3)
    with dead_node(Path(os.environ["NCO_BENCH_SLURM_NODE"])):
        place.go()
        assert place.records() == 3
    told = shell.communicate(timeout=PATIENCE)[1]
    assert shell.returncode == 0, told
    assert place.statuses() == {"ok": 8}


def test_a_node_that_is_taken_down_by_its_keeper_is_survived(place: Place) -> None:
    place.call("run", "slow.py:free=3", "--data", "tsp20:count=8", "--slurm", "shards=1", *SMALL, "--detach")
    place.until_records(3)
    name = node_name()
    subprocess.run(["scontrol", "update", f"nodename={name}", "state=down", "reason=test"], check=True)
    place.go()
    until_idle(name)  # it registers again by itself (ReturnToService)
    place.call("runs", "wait")
    assert place.statuses() == {"ok": 8}


@pytest.mark.parametrize("by", ["tmpfs", pytest.param("limit of a file's size", marks=pytest.mark.slow)])
def test_a_full_disk_is_said_in_a_line_and_the_same_command_goes_on(place: Place, by: str) -> None:
    line = [
        "run",
        "slow.py:free=8",
        "--data",
        "tsp20:count=40",
        "--slurm",
        "shards=1",
        *SMALL,
        "--results",
        "small",
    ]
    with small_disk(place.folder / "small") if by == "tmpfs" else nullcontext(lambda: None) as fill:
        limits = [] if by == "tmpfs" else ["--slurm", "setup=ulimit -f 8"]
        place.call(*line, *limits, "--detach")
        place.until_records(8, "small")
        clear = fill()
        place.go()
        told = place.call("runs", "wait", "--results", "small", status=1).stderr
        assert "space" in told if by == "tmpfs" else "large" in told
        stored = place.records("small")
        if clear is not None:
            clear()
        place.call(*line)
        assert place.statuses("small") == {"ok": 40}
        assert stored >= 8


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], Callable[[], None]]]:
    """Mount a disk of its own; yields what fills it, which returns what frees it again."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    ballast = folder / "ballast"

    def fill() -> Callable[[], None]:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(512)):
                pass
        return ballast.unlink

    try:
        yield fill
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def node_name() -> str:
    """Return the name of the one node."""
    return subprocess.run(
        ["sinfo", "-h", "-o", "%n"], capture_output=True, text=True, check=True
    ).stdout.split()[0]


def node_state(name: str) -> str:
    """Return what SLURM says of a node, such as ``DOWN+NOT_RESPONDING``."""
    asked = ["scontrol", "-o", "show", "node", name]
    words = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    return next(word for word in words if word.startswith("State=")).removeprefix("State=")


def until_idle(name: str) -> None:
    """Wait until a node takes jobs."""
    until(lambda: set(node_state(name).split("+")) <= TAKES_JOBS, "the node is back")


@contextmanager
def dead_node(folder: Path) -> Iterator[None]:
    """Kill the node's daemon and all that it runs; another daemon is started at the end."""
    name, mine = node_name(), f"SLURM_CONF={folder}/slurm.conf".encode()
    daemon = int((folder / "slurmd.pid").read_text())
    os.kill(daemon, signal.SIGKILL)
    for found in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            facts = (found / "environ").read_bytes().split(b"\0")
            step = (found / "cmdline").read_bytes().startswith(b"slurmstepd")
            if mine in facts and (step or any(fact.startswith(b"SLURM_JOB_ID=") for fact in facts)):
                os.kill(int(found.name), signal.SIGKILL)
    try:
        until(lambda: node_state(name).startswith("DOWN"), "the node is down")
        yield
    finally:
        with (folder / "daemons.log").open("ab") as log:  # one_node.sh ends it
            subprocess.Popen(["slurmd", "-D"], stdout=log, stderr=log, start_new_session=True)
        until_idle(name)
