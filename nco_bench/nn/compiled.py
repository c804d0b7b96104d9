"""What compiled loops on the CPU share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

F32 = np.float32
Array = NDArray[np.float32]

fast: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz", "nnan"})
"""Compiles a function whose sums may be taken in any order, in vectors; without NaN."""


@fast
def exponential(x: F32) -> F32:
    """Return e^x for x <= 88, 0 below -87, to 2 units in the last place; vector instructions have none of their own."""
    scaled = max(x, F32(-87.0))
    whole = np.floor(scaled * F32(1.4426950408889634) + F32(0.5))
    rest = scaled - whole * F32(0.693359375) + whole * F32(2.12194440e-4)
    power = F32(1.9875691500e-4)
    power = power * rest + F32(1.3981999507e-3)
    power = power * rest + F32(8.3334519073e-3)
    power = power * rest + F32(4.1665795894e-2)
    power = power * rest + F32(1.6666665459e-1)
    power = power * rest + F32(5.0000001201e-1)
    power = power * rest * rest + rest + F32(1.0)
    scale = np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
    return power * scale if x > F32(-87.0) else F32(0.0)


@fast
def sigmoid(x: F32) -> F32:
    """Return ``1 / (1 + e^-x)``, 0 where that is below 1e-38."""
    return F32(1.0) / (F32(1.0) + exponential(min(-x, F32(88.0))))


@fast
def normalise(row: Array, weight: Array, bias: Array, eps: np.float32) -> None:
    """Put the layer norm of a row ``(W,)`` in its place."""
    mean = F32(0.0)
    for i in range(len(row)):
        mean += row[i]
    mean /= F32(len(row))
    square = F32(0.0)
    for i in range(len(row)):
        square += (row[i] - mean) * (row[i] - mean)
    factor = F32(1.0) / np.sqrt(square / F32(len(row)) + eps)
    for i in range(len(row)):
        row[i] = (row[i] - mean) * factor * weight[i] + bias[i]


@fast
def widened(x: np.uint16) -> F32:
    """Return the float32 of a bf16 number's bits, which are its upper half."""
    return np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)


@fast
def rounded(x: F32) -> np.uint16:
    """Return the bits of the bf16 number next to a float32 that is no NaN, the even one of two."""
    bits = F32(x).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
