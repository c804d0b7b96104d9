"""A folder with a solver that can be held, commands run in it, and the one node of `tools/cluster/one_node.sh`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nco_bench.runs.finding import find_runs

PATIENCE = 300.0
"""Seconds that something may take on a busy machine before a test fails."""
LOOK = 0.3
SMALL = ("--executor", "slurm", "--slurm", "memory=400M")
SOLVER = """\
import os, time
from pathlib import Path
import numpy as np
from nco_bench.solvers import register

PLACE = Path(__file__).parent

@register("slow", problems=("tsp",))
class Slow:
    def __init__(self, options):
        self.params = options.params
        self.free = int(self.params.get("free", 10**9))
    def unsupported(self, dataset):
        return None
    def prepare(self, dataset):
        pass
    def solve(self, batch, *, seed, time_limit, progress):
        time.sleep(float(self.params.get("seconds", 0.1)))
        if batch[0].name.endswith(self.params.get("hungry", "none")) and "SLURM_JOB_ID" in os.environ:
            held = []
            while True:
                held.append(np.ones(4 << 20))
                time.sleep(0.05)
        while self.free <= 0 and "SLURM_JOB_ID" in os.environ and not (PLACE / "go").exists():
            time.sleep(0.05)
        self.free -= 1
        return [np.arange(one.n) for one in batch]
"""
"""Solves `free` instances in each process; before the next, in a job, it waits for a file."""


def command(*words: str) -> list[str]:
    """Return the command line of nco-bench."""
    return [sys.executable, "-m", "nco_bench", *words]


@dataclass(frozen=True)
class Place:
    """A working folder."""

    folder: Path

    def call(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run nco-bench to its end."""
        done = subprocess.run(
            command(*words), cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def statuses(self, results: str = "results/runs") -> Counter[str]:
        """Count records by status; no key has two."""
        records = [record for one in find_runs(self.folder / results) for record in one.records()]
        assert len({record.key for record in records}) == len(records)
        return Counter(record.status for record in records)

    def tasks(self, results: str = "results/runs") -> list[dict[str, Any]]:
        """Return what the jobs of the latest submission say of themselves; SLURM is not asked."""
        submissions = sorted(
            (self.folder / results / "slurm").glob("*/submission.json"), key=lambda path: path.stat().st_mtime
        )
        if not submissions:
            return []
        files = sorted(submissions[-1].parent.glob("task-*.json"))
        return [json.loads(file.read_bytes().rstrip() or b"{}") for file in files]

    def records(self, results: str = "results/runs") -> int:
        """Return how many lines of records there are."""
        return sum(path.read_bytes().count(b"\n") for path in (self.folder / results).glob("*/records.jsonl"))

    def until_records(self, count: int, results: str = "results/runs") -> None:
        """Wait until so many records are stored, and the jobs have said so."""
        until(lambda: self.records(results) >= count, f"{count} records")
        until(lambda: sum(task.get("solved", 0) for task in self.tasks(results)), "news of a job")

    def status(self) -> dict[str, Any]:
        """Return what ``runs status`` says of the submission."""
        return dict(json.loads(self.call("runs", "status", "--json").stdout)[0])

    def go(self) -> None:
        """Let held solvers go."""
        (self.folder / "go").touch()


def until(true: Callable[[], Any], what: str = "", patience: float = PATIENCE) -> Any:
    """Wait until something is true."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(LOOK)
    queue = subprocess.run(["squeue", "-r", "-t", "all"], capture_output=True, text=True, check=False).stdout
    raise AssertionError(f"{what or true} did not become true\n{queue}")
