"""Token features: how several tasks lay out their inputs and perturb them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks.draws import Draws

PERTURBED = 0.5
"""Probability that a token is perturbed (Appendix F)."""


def with_shared(
    features: Sequence[NDArray[np.generic]], shared: NDArray[np.generic] | None = None
) -> NDArray[np.float32]:
    """Lay out ``(B, n)`` features and one ``(B,)`` number that all tokens share as ``(B, n, F)`` float32."""
    width = len(features) + (shared is not None)
    tokens = np.empty((*features[0].shape, width), dtype=np.float32)
    for column, feature in enumerate(features):
        tokens[..., column] = feature
    if shared is not None:
        tokens[..., -1] = shared[:, None]
    return tokens


def positions(n: int) -> NDArray[np.float32]:
    """Return i / (n - 1) for i = 0 .. n - 1."""
    return (np.arange(n) / (n - 1)).astype(np.float32)


def pair_tokens(matrix: NDArray[np.generic]) -> NDArray[np.float32]:
    """Lay out ``(B, n, n)`` as ``(B, n * n, 3)`` tokens [entry, i / (n - 1), j / (n - 1)], row by row."""
    count, n = matrix.shape[:2]
    places = np.zeros((n, n, 3), dtype=np.float32)
    places[..., 1], places[..., 2] = positions(n)[:, None], positions(n)
    tokens = np.empty((count, n * n, 3), dtype=np.float32)
    # Whole rows first: three strided writes would take several times as long.
    tokens[:] = places.reshape(n * n, 3)
    tokens[..., 0] = matrix.reshape(count, n * n)
    return tokens


def add_noise(
    draws: Draws, inputs: NDArray[np.float32], noise: tuple[int, int], features: Sequence[int]
) -> None:
    """Add an integer from the inclusive range to each feature of every token with probability 0.5, in place.

    A token is perturbed as a whole; each feature has a draw of its own.
    """
    length = inputs.shape[1]
    hit = draws.flags(PERTURBED, length)
    for feature in features:
        inputs[..., feature] += hit * draws.integers(*noise, length)


def sorted_pairs(
    first: NDArray[np.integer], second: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort ``(B, n)`` pairs ascending by `first`, ties in their order; both are 0 .. 2^20 - 1."""
    n = first.shape[1]
    # One sort of packed keys is several times faster than a stable argsort and two gathers.
    keys = (first.astype(np.int64) << 40) | (np.arange(n, dtype=np.int64) << 20) | second
    keys.sort(axis=1)
    return keys >> 40, keys & 0xFFFFF
