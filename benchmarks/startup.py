"""
How long `nco-bench --help` takes as a whole process (claim: under 0.3 s), median of several runs.

    python benchmarks/startup.py [--rounds 11]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    rounds = parser.parse_args().rounds
    for arguments in (["--help"], ["--version"], ["list", "solvers"], ["run", "--help"]):
        command = [sys.executable, "-m", "nco_bench", *arguments]
        times = []
        for _ in range(rounds + 1):
            start = time.perf_counter()
            subprocess.run(command, capture_output=True, check=True)
            times.append(time.perf_counter() - start)
        print(
            f"nco-bench {' '.join(arguments)}: median {statistics.median(times[1:]):.3f} s, best {min(times):.3f} s"
        )


if __name__ == "__main__":
    main()
