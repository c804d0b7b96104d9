"""``nco-bench``, and ``python -m nco_bench``: what is interrupted while the command line is still imported ends quietly."""

import os
import sys

SPIN, POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
SPINS = 8000
"""Rounds that a thread of GNU's OpenMP, PyTorch's on Linux, waits for the others of its team before it sleeps; 300,000
otherwise. On a core that others use, too, one that waits takes the time of the one that is waited for: four runs together on
two cores took 18 seconds, with 8,000 rounds 10. These last from one operation to the next (``benchmarks/shared_cores.py``).
"""


def main() -> None:
    """Run the command line and exit with its status."""
    sleep_while_waiting()
    try:
        from nco_bench.cli.app import main as command

        command()
    except KeyboardInterrupt:
        sys.exit(130)


def sleep_while_waiting() -> None:
    """Let PyTorch's threads leave cores to others, unless the user says how they wait; before it is loaded."""
    if POLICY not in os.environ:
        os.environ.setdefault(SPIN, str(SPINS))


if __name__ == "__main__":
    main()
