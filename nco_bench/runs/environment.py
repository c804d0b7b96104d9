"""The machine and software a run happened on, captured once per run."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from nco_bench import __version__

PACKAGES = (
    "numpy", "scipy", "pandas", "torch", "elkai", "LKHpy", "random-insertion", "fast-tsp", "hygese", "pyvrp",
    "ml4co-kit", "ortools", "numba",
)  # fmt: skip


def capture() -> dict[str, Any]:
    """Return what a reader needs to judge a time: processor, memory, threads, versions, GPU, code revision."""
    return {
        "nco_bench": __version__,
        "revision": code_revision(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpu_count": os.cpu_count(),
        "cpu_affinity": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else [],
        "threads": {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")},
        "packages": package_versions(),
        "gpu": gpus(),
    }


def package_versions() -> dict[str, str]:
    """Return versions of the installed packages that can move a number."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = _version(metadata.distribution(name))
        except metadata.PackageNotFoundError:
            continue
    return found


def _version(package: metadata.Distribution) -> str:
    """Read the version line alone: `metadata.version` parses all metadata as an e-mail, which takes ten times as long."""
    for line in (package.read_text("METADATA") or "").splitlines():
        if line.startswith("Version:"):
            return line.partition(":")[2].strip()
    return package.version


def cpu_model() -> str:
    """Return the processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpus() -> list[dict[str, str]]:
    """Return name, memory and driver of each NVIDIA GPU, from nvidia-smi; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    keys = ("name", "memory", "driver")
    return [dict(zip(keys, (f.strip() for f in line.split(",")), strict=False)) for line in out.splitlines()]


def code_revision() -> dict[str, Any]:
    """Return commit and dirty flag where nco-bench runs from a git checkout, else an empty dict."""
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return {}
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {
            "commit": commit,
            "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no")),
        }
    except (OSError, subprocess.SubprocessError):
        return {}


def _git(folder: Path, *arguments: str) -> str:
    # Without optional locks: a status that is killed half-way must not leave the checkout locked.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


def command_line() -> str:
    """Return the command as it was given."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
