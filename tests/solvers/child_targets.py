"""Functions that misbehave on command, run in the child by test_child.py. The seed says what to do."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tsp import TSPInstance

calls = 0


def misbehave(instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]) -> Any:
    what = params["what"].get(seed, "solve")
    if what == "exit":
        print("LKH says: cannot open file", file=sys.stderr, flush=True)
        os._exit(3)
    if what == "segfault":
        ctypes.string_at(0)
    if what == "abort":
        os.abort()
    if what == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
        ctypes.CDLL(None).sleep(1000)
    if what == "sleep":
        time.sleep(0.3)
    if what == "raise":
        raise ValueError("no such city")
    if what == "floats":
        return np.ones(3)
    if what == "nothing":
        return None
    if what == "noise":
        print("noise on stdout")
    return np.arange(instance.n)[::-1]


def crash_after_two(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[Any]:
    """Crash at every third call in one process, as a leak or a corrupted heap would, whatever the instance."""
    global calls
    calls += 1
    if calls == 3:
        os.abort()
    return np.arange(instance.n)


def who_am_i(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> NDArray[Any]:
    return np.array([os.getpid(), os.getppid()])


def warm_up(params: dict[str, Any]) -> None:
    if params.get("broken_start"):
        raise ImportError("libhgs.so: cannot open shared object file")
