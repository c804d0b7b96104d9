"""The machine and software a run happened on, captured once per run."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import psutil

from nco_bench import __version__

PACKAGES = (
    "numpy", "scipy", "pandas", "torch", "elkai", "LKHpy", "random-insertion", "fast-tsp", "hygese", "pyvrp",
    "ml4co-kit", "ortools", "numba",
)  # fmt: skip
SMI = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
ANSWER_SECONDS = 10.0


class Capture:
    """The environment of a run; git and nvidia-smi are asked at the start and answer while the run prepares itself.

    Use as a context manager, so that nothing of them is left behind.
    """

    def __init__(self) -> None:
        self._git = None if _checkout() is None else _ask(_git_status(_checkout()))
        self._smi = _ask(SMI) if shutil.which(SMI[0]) else None
        self._done = False
        self.facts: dict[str, Any] = {
            "nco_bench": __version__,
            "revision": {},
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cpu": cpu_model(),
            "cpu_count": os.cpu_count(),
            "cpu_affinity": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
            "load_average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else [],
            "threads": {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS")},
            "packages": {},
            "gpu": [],
        }

    def finish(self) -> dict[str, Any] | None:
        """Wait for the answers and return all facts; None where that was done before."""
        if self._done:
            return None
        self._done = True
        packages = package_versions()
        self.facts |= {
            "revision": _revision(_answer(self._git)),
            "packages": packages,
            "gpu": _gpus(_answer(self._smi)),
        }
        return self.facts

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self._git, self._smi):
            if process is not None and process.returncode is None:
                process.kill()
                process.communicate()


def package_versions() -> dict[str, str]:
    """Return versions of the installed packages that can move a number.

    An installed package's folder is called NAME-VERSION.dist-info, so listing the folders of the path is enough;
    asking `importlib.metadata` for each package takes ten times as long.
    """
    found: dict[str, str] = {}
    for entry in sys.path:
        try:
            changed = os.stat(entry or ".").st_mtime_ns
        except OSError:
            continue
        for name, version in _installed(os.path.abspath(entry), changed):
            found.setdefault(name, version)
    return {name: found[name] for name in PACKAGES if name in found}


@lru_cache(maxsize=64)
def _installed(folder: str, changed: int) -> tuple[tuple[str, str], ...]:
    """Return names and versions of the packages in a folder; `changed` is its time, so that a new package is seen."""
    wanted = {name.lower().replace("-", "_"): name for name in PACKAGES}
    try:
        entries = os.listdir(folder)
    except OSError:
        return ()
    parts = [one.removesuffix(".dist-info").partition("-") for one in entries if one.endswith(".dist-info")]
    known = ((wanted.get(name.lower().replace(".", "_")), version) for name, _, version in parts)
    return tuple((name, version) for name, version in known if name is not None and version)


def cpu_model() -> str:
    """Return the processor's name."""
    try:
        with open("/proc/cpuinfo") as lines:  # the first one is enough, and hundreds take long
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def gpus() -> list[dict[str, str]]:
    """Return name, memory and driver of each NVIDIA GPU, from nvidia-smi; empty where there is none."""
    return _gpus(_answer(_ask(SMI)))


def _gpus(answer: str) -> list[dict[str, str]]:
    keys = ("name", "memory", "driver")
    return [
        dict(zip(keys, (f.strip() for f in line.split(",")), strict=False)) for line in answer.splitlines()
    ]


def code_revision() -> dict[str, Any]:
    """Return commit and dirty flag where nco-bench runs from a git checkout, else an empty dict."""
    folder = _checkout()
    return {} if folder is None else _revision(_answer(_ask(_git_status(folder))))


def _checkout() -> Path | None:
    folder = Path(__file__).resolve().parents[2]
    return folder if (folder / ".git").exists() else None


def _git_status(folder: Path | None) -> list[str]:
    # Without optional locks: a status that is killed half-way must not leave the checkout locked.
    status = ["status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    return ["git", "--no-optional-locks", "-C", str(folder), *status]


def _revision(status: str) -> dict[str, Any]:
    """Read commit and dirty flag from ``git status --porcelain=v2 --branch``."""
    lines = status.splitlines()
    commit = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), None)
    if commit is None:
        return {}
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


def _ask(command: list[str]) -> subprocess.Popen[str] | None:
    """Start a program whose output is wanted later; None where there is none."""
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    except OSError:
        return None


def _answer(process: subprocess.Popen[str] | None) -> str:
    """Wait for a program's output; empty where it failed or took too long."""
    if process is None:
        return ""
    try:
        output, _ = process.communicate(timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return ""
    return output if process.returncode == 0 else ""


def command_line() -> str:
    """Return the command as it was given, quoted for a shell."""
    name = Path(sys.argv[0]).name
    return shlex.join(["nco-bench" if name == "__main__.py" else name, *sys.argv[1:]])  # python -m nco_bench
