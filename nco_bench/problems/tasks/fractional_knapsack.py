"""Fractional knapsack: the optimal value, or which fraction of each item is taken.

Tokens as in the 0/1 knapsack. Variant ``value``: ln(1 + optimal value), one number per instance, the target of the public
training script and the one that the published errors fit. Variant ``fractions``: one fraction per token, as the paper
describes it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks import knapsack
from nco_bench.problems.tasks.arrange import with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

perturb = knapsack.perturb


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values, weights, capacity = knapsack.sample_items(draws, n, ranges)
    fractions = label(values, weights, capacity)
    inputs = with_shared([values, weights], capacity)
    if variant == "fractions":
        return Clean(inputs, fractions.astype(np.float32))
    return Clean(inputs, log_value(values, fractions))


def label(
    values: NDArray[np.integer], weights: NDArray[np.integer], capacity: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return ``(B, n)`` fractions: items by value / weight descending, ties in token order, the last one in part."""
    # Equal ratios of integers are equal floats, so a stable sort keeps their ties.
    order = np.argsort(-(values / weights), axis=1, kind="stable")
    heavy = np.take_along_axis(weights, order, axis=1).astype(np.float64)
    before = np.cumsum(heavy, axis=1) - heavy
    fractions = np.empty(values.shape)
    np.put_along_axis(fractions, order, np.clip((capacity[:, None] - before) / heavy, 0.0, 1.0), axis=1)
    return fractions


def log_value(values: NDArray[np.integer], fractions: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return ``(B,)`` ln(1 + total value)."""
    return np.log1p((values * fractions).sum(axis=1)).astype(np.float32)
