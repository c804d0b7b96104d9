"""How much is tried: little in the default tests, all of it with ``NCO_BENCH_TORTURE=1``, which `make torture` sets."""

from __future__ import annotations

import os

FULL = os.environ.get("NCO_BENCH_TORTURE") == "1"
SHARE = float(os.environ.get("NCO_BENCH_TORTURE_SHARE", "1"))
"""Of the full amounts; a piece of them where time is short."""


def amount(short: int, full: int) -> int:
    """Return how often something is tried."""
    return max(short, int(full * SHARE)) if FULL else short
