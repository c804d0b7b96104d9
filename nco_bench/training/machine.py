"""The machine that trains: what a manifest says of it and of the code, and how its memory is to be handled."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

from nco_bench import __version__

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Names of glibc's ``malloc.h``."""

MAPPED_FROM = 256 << 20
KEPT_FREE = 1 << 30
"""Bytes."""


def keep_freed_memory() -> None:
    """Tell glibc's allocator to reuse what an update frees; does nothing with another C library.

    By default tensors of some megabytes are mapped anew and zeroed page by page at every update: 2,000 to 3,500 page faults
    and a fifth of the time in training a task network with a batch of 500.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAPPED_FROM)
        mallopt(M_TRIM_THRESHOLD, KEPT_FREE)


def machine(device: torch.device) -> dict[str, str]:
    """Return processor, cores and threads used, GPU and torch version."""
    facts = {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "device": device.type,
    }
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def code_version() -> str:
    """Return the package's version, with the commit where it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return __version__
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        commit = subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__}+{commit}"
