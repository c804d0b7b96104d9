"""A job's end kills its processes one after the other; what a solver had in hand then is no failure of the solver."""

from __future__ import annotations

import signal

import pytest

from nco_bench import interrupts
from nco_bench.isolation.main import describe_exit


def test_whose_child_was_killed_in_a_job_gives_the_kill_time_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(interrupts.time, "sleep", slept.append)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert describe_exit(-signal.SIGKILL) == "was killed by SIGKILL"
    assert slept == []
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert describe_exit(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert describe_exit(1) == "ended with exit status 1"
    assert slept == []
    assert describe_exit(-signal.SIGKILL) == "was killed by SIGKILL"
    assert slept == [interrupts.KILLING_SECONDS]
