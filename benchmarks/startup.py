"""
How long `nco-bench --help` takes as a whole process (claim: under 0.15 s), and `import nco_bench` (under 0.05 s).

Processor time counts, medians of several runs, since other work moves wall time; beside them what Python itself takes.

    python benchmarks/startup.py [--rounds 11]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    lines = {
        "python -c pass": ["-c", "pass"],
        "import nco_bench": ["-c", "import nco_bench"],
        **{
            f"nco-bench {' '.join(arguments)}": ["-m", "nco_bench", *arguments]
            for arguments in (["--help"], ["--version"], ["list", "solvers"], ["run", "--help"])
        },
    }
    for name, arguments in lines.items():
        times = [whole([sys.executable, *arguments]) for _ in range(rounds + 1)][1:]
        cpu, wall = (statistics.median(one[k] for one in times) for k in (0, 1))
        print(
            f"{name}: {cpu:.3f} s of processor time, at best {min(times)[0]:.3f} s; {wall:.3f} s of wall time"
        )
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


def whole(command: list[str]) -> tuple[float, float]:
    """Return processor and wall seconds of a process that must succeed."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with status {child.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start


if __name__ == "__main__":
    main()
