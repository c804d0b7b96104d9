"""On what machine and by what code weights were made, for their manifest."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from nco_bench import __version__


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
