"""Check what a release built, in fresh environments from an empty folder: ``tools/check_release.py dist base neural``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_BASE_MEGABYTES = 3.0


def main() -> int:
    """Check the kinds that were asked for; the first thing that does not hold ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dist", type=Path)
    parser.add_argument("kinds", nargs="+", choices=("base", "neural", "all"))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--torch", default="torch", help="what to install as torch, such as torch==2.13.0")
    given = parser.parse_args()
    for built in sorted(given.dist.glob("nco_bench*")):
        print(f"{built.name}: {built.stat().st_size / 1e6:.2f} MB", flush=True)
    (base,) = given.dist.resolve().glob("nco_bench-*.whl")
    (weights,) = given.dist.resolve().glob("nco_bench_weights-*.whl")
    megabytes = base.stat().st_size / 1e6
    _hold(megabytes < MOST_BASE_MEGABYTES, f"{base.name} has {megabytes:.1f} MB")
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as folder:
            check = {"base": check_base, "neural": check_neural, "all": check_all}[kind]
            here = _Environment(Path(folder), given.python)
            check(here, base, weights, given.torch)
            print(f"{kind}: sound on {here.version}", flush=True)
    return 0


class _Environment:
    """A fresh virtual environment and an empty folder to work in."""

    def __init__(self, folder: Path, python: str) -> None:
        self.work, place = folder / "work", folder / "venv"
        self.work.mkdir()
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        self._bin = place / "bin"
        asked = [str(self._bin / "python"), "--version"]
        self.version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()

    def install(self, *what: str) -> None:
        """Install packages."""
        command = [
            str(self._bin / "python"),
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            *what,
        ]
        subprocess.run(command, cwd=self.work, check=True)

    def call(self, *arguments: str, status: int = 0) -> str:
        """Run nco-bench and return what it printed, both streams."""
        place = {"PATH": str(self._bin), "HOME": str(self.work), "NCO_BENCH_CACHE": str(self.work / "cache")}
        command = [str(self._bin / "nco-bench"), *arguments]
        done = subprocess.run(command, cwd=self.work, env=place, capture_output=True, text=True)
        _hold(done.returncode == status, f"{' '.join(arguments)}: status {done.returncode}\n{done.stderr}")
        return done.stdout + done.stderr


def check_base(here: _Environment, base: Path, weights: Path, _torch: str) -> None:
    """Generate, run and report without torch; weights are found with their package and named without it."""
    here.install(str(base))
    here.call("run", "nearest-neighbor", "--data", "tsp20:count=4")
    _hold("nearest-neighbor" in here.call("report", "--json"), "report lacks the run")
    here.call("verify")
    _hold(_places(here)["decoder-6x128"] == "nco-bench[weights]", "decoder-6x128 is not named as separate")
    _hold(_places(here)["tropical-knapsack-seed0"] == "nco-bench", "the wheel's own weights are not found")
    here.install(str(weights))
    _hold(_places(here)["decoder-6x128"] == "nco-bench-weights", "the data package is not found")


def check_neural(here: _Environment, base: Path, weights: Path, torch: str) -> None:
    """A network says what it lacks, and runs with the data package."""
    here.install(torch)
    here.install(f"{base}[neural]")
    said = here.call("run", "decoder-6x128", "--data", "tsp20:count=4", status=2)
    _hold("nco-bench[weights]" in said, f"the remedy is not named: {said}")
    here.install(str(weights))
    here.call("run", "decoder-6x128", "--data", "tsp20:count=4")
    here.call("verify")


def check_all(here: _Environment, base: Path, weights: Path, torch: str) -> None:
    """All extras install beside each other; a classical solver, a network, an archive, a page and a picture."""
    here.install(torch)
    here.install(f"{base}[all]", str(weights))
    here.call("run", "lkh3", "hgs", "decoder-6x128", "--data", "tsp20:count=4", status=0)
    here.call("runs", "pack", "--out", "runs.parquet")
    _hold(
        "decoder-6x128" in here.call("report", "--json", "--results", "runs.parquet"),
        "the archive lacks a run",
    )
    here.call("report", "--html", "--out", "page.html")
    here.call("plot", "tour", "--solver", "decoder-6x128", "--data", "tsp20:count=4", "--out", "tour.png")
    for made in ("page.html", "tour.png"):
        _hold((here.work / made).stat().st_size > 0, f"{made} is empty")


def _places(here: _Environment) -> dict[str, str]:
    found = here.call("list", "weights", "--json")
    return {one["name"]: one["found_in"] for one in json.loads(found[: found.rindex("]") + 1])}


def _hold(fact: bool, otherwise: str) -> None:
    if not fact:
        raise SystemExit(otherwise)


if __name__ == "__main__":
    sys.exit(main())
