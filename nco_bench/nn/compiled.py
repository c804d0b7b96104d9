"""What compiled loops on the CPU share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.nn.compiling import njit

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


LINE = 16
"""Floats in a line of the cache, and in the longest vectors."""


@fast
def aligned(count: int) -> Array:
    """Return so many zeros that begin with a line of the cache: a vector that lies across two takes twice as long."""
    room = np.zeros(count + LINE, F32)
    first = (-(room.ctypes.data >> 2)) % LINE
    return room[first : first + count]


@fast
def aligned_rows(rows: int, places: int) -> Array:
    """Return zeros ``(rows, places)`` of which the first is `aligned`, as all are where `places` is a multiple of `LINE`."""
    return aligned(rows * places).reshape(rows, places)


exact: Any = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract", "nsz", "nnan"})
"""As `fast`, but sums are taken in the order in which they are written."""


@exact
def power_of_two(x: F32) -> F32:
    """Return 2^x to 1e-7, for -126 <= x <= 127.

    The whole part goes straight into the exponent's bits. The polynomial is 2^r for |r| <= 1/2, with the least of largest
    relative errors (8e-8).
    """
    whole = np.rint(x)
    rest = x - whole
    share = F32(1.3276471290e-3)
    share = share * rest + F32(9.6755418926e-3)
    share = share * rest + F32(5.5507134646e-2)
    share = share * rest + F32(2.4022120237e-1)
    share = share * rest + F32(6.9314694405e-1)
    share = share * rest + F32(1.0000001192)
    bits = np.int32(F32(share).view(np.int32) + np.int32(np.int32(whole) << np.int32(23)))
    return bits.view(np.float32)


@exact
def sigmoid(x: F32) -> F32:
    """Return ``1 / (1 + e^-x)`` to 1e-7, never below 1e-38."""
    return F32(1.0) / (F32(1.0) + power_of_two(min(max(x, F32(-87.0)), F32(87.0)) * F32(-1.4426950408889634)))


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
def root_mean_square_normed(x: Array, weight: Array, eps: np.float32, out: Array) -> None:
    """Write the RMS norm of tokens ``(T, W)``; `out` may have more rows."""
    for t in range(len(x)):
        row, to = x[t], out[t]
        square = F32(0.0)
        for i in range(len(row)):
            square += row[i] * row[i]
        factor = F32(1.0) / np.sqrt(square / F32(len(row)) + eps)
        for i in range(len(row)):
            to[i] = row[i] * factor * weight[i]


@fast
def added_and_normed(x: Array, change: Array, weight: Array, eps: np.float32, out: Array) -> None:
    """Add `change` to tokens ``(T, W)`` in their place and write their RMS norm."""
    for t in range(len(x)):
        row, more = x[t], change[t]
        for i in range(len(row)):
            row[i] += more[i]
    root_mean_square_normed(x, weight, eps, out)


@fast
def weighted_sum(weights: Array, table: Array, out: Array) -> None:
    """Write the sum of the rows ``(S, O)`` with weights ``(S,)``; S is a multiple of 4."""
    out[:] = F32(0)
    for s in range(0, len(weights), 4):
        w0, w1, w2, w3 = weights[s], weights[s + 1], weights[s + 2], weights[s + 3]
        t0, t1, t2, t3 = table[s], table[s + 1], table[s + 2], table[s + 3]
        for i in range(len(out)):
            out[i] += w0 * t0[i] + w1 * t1[i] + w2 * t2[i] + w3 * t3[i]


@fast
def softened(row: Array) -> np.float32:
    """Put ``e^(x - largest x)`` in the place of each number, and return their sum."""
    largest, total = row[0], F32(0)
    for i in range(len(row)):
        largest = max(largest, row[i])
    for i in range(len(row)):
        row[i] = exponential(row[i] - largest)
        total += row[i]
    return total


@fast
def widened(x: np.uint16) -> F32:
    """Return the float32 of a bf16 number's bits, which are its upper half."""
    return np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)


@fast
def rounded(x: F32) -> np.uint16:
    """Return the bits of the bf16 number next to a float32 that is no NaN, the even one of two."""
    bits = F32(x).view(np.uint32)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))
