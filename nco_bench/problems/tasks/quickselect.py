"""Quickselect: where does the k-th smallest value stand?

Unsorted values, k uniform in 2 .. min(8, n); 1 at every position that holds the k-th smallest value. Variant
``normalised``: tokens ``[(x - min) / (max - min), (k - 1) / (n - 1)]``, and the noise is one real number in [0, 1) added to
both features of a token (the integer range of the paper does not fit these features). Variants ``raw`` (``[x, k]``) and
``legacy`` (``[x, k]``, k = 2 always): one integer from the noise range is added to both features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.arrange import PERTURBED, with_shared
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges

LARGEST_K = 8


def sample(draws: Draws, n: int, ranges: Ranges, variant: str) -> Clean:
    """Draw clean instances with their labels."""
    values = draws.integers(*ranges.values, n)
    k = draws.integers(2, min(LARGEST_K, n))
    if variant == "legacy":
        k = np.full_like(k, 2)
    targets = label(values, k)
    if variant != "normalised":
        return Clean(with_shared([values], k), targets)
    return Clean(with_shared([normalised(values)], (k - 1) / (n - 1)), targets)


def normalised(values: NDArray[np.integer]) -> NDArray[np.float32]:
    """Map each row ``(B, n)`` to [0, 1] by its smallest and largest value; all zero where they are equal."""
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    return (values - low).astype(np.float32) / np.maximum(high - low, 1).astype(np.float32)


def perturb(draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], variant: str) -> None:
    """Add one number to both features of half the tokens, in place."""
    length = inputs.shape[1]
    hit = draws.flags(PERTURBED, length)
    step = draws.uniform(length) if variant == "normalised" else draws.integers(*noise, length)
    inputs += (hit * step).astype(np.float32)[..., None]


def label(values: NDArray[np.number], k: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return ``(B, n)`` 0/1: which entries equal the ``k[b]``-th smallest of row b (k from 1)."""
    kth = np.sort(values, axis=1)[np.arange(len(values)), k - 1]
    return (values == kth[:, None]).astype(np.float32)
