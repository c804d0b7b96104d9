"""Functions that misbehave on command, run in the child by test_child.py. The seed says what to do."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.protocol import Failure

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


def surroundings(
    instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]
) -> Failure:
    """Report what of the parent is within reach of the solver; as a failure's message, which may be any text."""
    files = sorted(_file_kind(fd) for fd in os.listdir("/proc/self/fd"))
    handlers = sorted(n.name for n in signal.Signals if callable(signal.getsignal(n)))
    facts = {
        "files": ",".join(f for f in files if f),
        "handlers": ",".join(handlers),
        "ignored": ",".join(sorted(n.name for n in signal.Signals if signal.getsignal(n) == signal.SIG_IGN)),
        "blocked": str(len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))),
        "hooks": str((sys.gettrace(), sys.getprofile(), faulthandler.is_enabled())),
        "session": str(os.getsid(0) == os.getpid()),
        "folder": str(os.path.basename(os.getcwd()).startswith("nco-bench-")),
        "stdin": sys.stdin.read(),
    }
    return Failure("failed", ";".join(f"{key}={value}" for key, value in facts.items()))


def _file_kind(descriptor: str) -> str:
    """What a descriptor is, without what differs between two processes; empty for the listing of the folder itself."""
    try:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    return os.path.basename(target.split(":")[0])


def burn(instance: TSPInstance, seed: int, time_limit: float | None, params: dict[str, Any]) -> NDArray[Any]:
    """Use a core for some seconds of processor time, however long that takes."""
    os.sched_setaffinity(0, {params["core"]})
    end = time.process_time() + params["seconds"]
    while time.process_time() < end:
        pass
    return np.arange(instance.n)
