"""What a child is charged for: neither the memory that it shares with us nor the time in which others had the processor."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import psutil
import pytest

from nco_bench.isolation.child import ChildProcess
from nco_bench.isolation.clock import descendants, waited_seconds
from nco_bench.problems.tsp import TSPInstance
from nco_bench.runs.clock import PeakMemory
from nco_bench.solvers.protocol import Solved

BURN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
def test_memory_that_a_child_shares_with_us_is_counted_once() -> None:
    ballast = np.ones(16_000_000)
    child = ChildProcess("child_targets:who_am_i", {})
    child.start()
    try:
        both = PeakMemory("cpu").host_mb()
    finally:
        child.close()
    own = psutil.Process().memory_info().rss / 2**20
    assert own > ballast.nbytes / 2**20
    assert both < own + 0.7 * ballast.nbytes / 2**20


@pytest.mark.skipif(not waited_seconds(os.getpid()), reason="nobody counts how long threads wait here")
def test_a_child_that_gets_no_processor_is_not_taken_for_hung() -> None:
    """With four others on its core, a second of processor time takes five by the wall clock, twice the limit."""
    core = min(os.sched_getaffinity(0))
    burners = [
        subprocess.Popen(
            [sys.executable, "-c", BURN, str(core)], stdout=subprocess.PIPE, start_new_session=True
        )
        for _ in range(4)
    ]
    child = ChildProcess("child_targets:burn", {"core": core, "seconds": 1.0})
    try:
        for burner in burners:
            assert burner.stdout is not None
            burner.stdout.readline()
        batch = [TSPInstance("a", np.eye(4, 2))]
        outcome = child.solve(batch, seed=0, time_limit=None, kill_after=2.4, progress=lambda done: None)[0]
    finally:
        child.close()
        for burner in burners:
            burner.kill()
            burner.communicate()
    assert isinstance(outcome, Solved), outcome


@pytest.mark.skipif(
    not os.path.exists(f"/proc/self/task/{os.getpid()}/children"), reason="the kernel does not list children"
)
def test_grandchildren_are_found() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'])"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    found = descendants(process.pid)
    assert [psutil.Process(pid).ppid() for pid in found] == [process.pid]
    assert set(found) <= set(descendants(os.getpid()))
    process.communicate(b"\n")
