"""Honest clocks: synchronise, clock, solve, synchronise, clock, in one place.

Nothing here imports torch; an accelerator is synchronised only if torch is already loaded.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

import psutil

from nco_bench.isolation.clock import descendants
from nco_bench.nn.device import peak_memory_mb, reset_peak_memory, synchronise

T = TypeVar("T")
CHILD_SAMPLE_SECONDS = 0.5


def timed(call: Callable[[], T], device: str) -> tuple[T, float]:
    """Return the call's value and its wall time in seconds."""
    synchronise(device)
    start = time.perf_counter()
    value = call()
    synchronise(device)
    return value, time.perf_counter() - start


def resident_mb() -> float:
    """Return what this process holds now, in MiB; what the C library kept of freed memory is given back before."""
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
        if trim is not None:
            trim(0)
    return round(_process(os.getpid()).memory_info().rss / 2**20, 1)


@cache
def _process(pid: int) -> psutil.Process:
    """Return a process, asked for once: psutil reads when it began, which takes a millisecond where ``/proc`` is slow."""
    return psutil.Process(pid)


class PeakMemory:
    """Peak memory while solving, in MiB: of this process (and its children) and of the accelerator.

    On Linux the kernel's high-water mark is reset at the start; elsewhere memory is sampled after each batch.
    """

    def __init__(self, device: str) -> None:
        self._process = _process(os.getpid())
        self._device = device
        self._peak_children = 0.0
        self._peak_sampled = self._process.memory_info().rss
        self._next_sample = 0.0
        self._resettable = _reset_high_water_mark()
        reset_peak_memory(device)

    def sample(self) -> None:
        """Look at the children's memory, at most every half second, since asking costs milliseconds."""
        now = time.monotonic()
        if now < self._next_sample:
            return
        self._next_sample = now + CHILD_SAMPLE_SECONDS
        if not self._resettable:
            self._peak_sampled = max(self._peak_sampled, self._process.memory_info().rss)
        self._peak_children = max(self._peak_children, _children_bytes(self._process))

    def host_mb(self) -> float:
        """Peak of this process plus peak of what its children have for themselves."""
        self.sample()
        own = _high_water_mark() if self._resettable else None
        return round(((own or self._peak_sampled) + self._peak_children) / 2**20, 1)

    def device_mb(self) -> float | None:
        """Peak of the accelerator's allocated memory, None on the CPU."""
        return peak_memory_mb(self._device)


def _children_bytes(process: psutil.Process) -> float:
    """Memory of all processes below one, without what they share: a fork's pages count for whom it was forked from."""
    if sys.platform.startswith("linux"):
        return sum(map(_private_bytes, descendants(process.pid)))
    total = 0.0
    for child in process.children(recursive=True):
        try:
            total += child.memory_info().rss
        except psutil.Error:
            continue
    return total


def _private_bytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Private_"))


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _high_water_mark() -> int | None:
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
