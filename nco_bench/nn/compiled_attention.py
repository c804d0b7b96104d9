"""Attention without gradients on the CPU, in one compiled pass: logits, distances and sums stay in the cache.

PyTorch multiplies by MKL, which on AMD's processors keeps to 256-bit vectors, and reads a bias per head from memory. Here
128 queries meet a few hundred keys at a time, whose distances, where logits fall with them (PENS), all heads share. Powers
are of two, so queries and slopes carry log2 e. They are taken of logits less the largest one of the first tile of keys; a
tile whose powers become too large is done again, less its own largest.

Letters in shapes: B batch, H heads, Q queries, T tokens, K head width (16), P tiles of S keys.
"""

from __future__ import annotations

import math
from threading import Event
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn import products
from nco_bench.nn.compiled import F32, Array, aligned, aligned_rows, fast, power_of_two
from nco_bench.nn.threads import in_threads, spans

WIDTH = 16
"""Of a head: the sums over it are written out."""
ROWS = 128
"""Queries that meet a tile of keys at a time."""
TILE = 256
"""Most keys of a tile: keys and values of a head stay in the first cache."""
LINE = 32
"""Keys of a tile are a multiple of so many."""
FEWEST, FEWEST_BIASED = 192, 128
"""Tokens from which on it pays, where PyTorch would be given no bias and where it would."""
PARTS = 8
"""Shares of the queries, for threads."""
LOG2E = 1 / math.log(2)
MOST = F32(2.0**90)
"""Sums of a tile's powers above this are too large."""


def pays(tokens: int, fewest: int, head_width: int) -> bool:
    """Tell whether attention without gradients, in float32 on the CPU, goes through here: where MKL is slow."""
    return (
        head_width == WIDTH and tokens >= fewest and not torch.compiler.is_compiling() and products.faster()
    )


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    slopes: Tensor | None = None,
    coords: Tensor | None = None,
) -> Tensor:
    """Attention with logits ``scale q.k``, or ``scale q.k - m_h D``.

    Parameters
    ----------
    query, key, value
        ``(B, H, Q, K)``, and ``(B, H, T, K)`` twice.
    scale
        Factor of the content logits.
    slopes, coords
        ``(H,)``, the m_h, and ``(B, T, 2)``, where the D are between; then Q is T.

    Returns
    -------
    Tensor
        ``(B, H, Q, K)``, a view of ``(B, Q, H, K)``.
    """
    batch, heads, asked, width = query.shape
    tokens = key.shape[2]
    mixed = query.new_empty(products.coarse(batch * asked), heads, width)[
        : batch * asked
    ]  # room for `products.roomy`
    mixed = mixed.view(batch, asked, heads, width)
    count = -(-tokens // TILE)
    size = -(-tokens // (count * LINE)) * LINE
    steep, places = np.zeros(heads, F32), np.zeros((2, 0), F32)
    if slopes is not None:
        steep, places = (slopes.detach().numpy() * LOG2E).astype(F32), np.zeros((2, count * size), F32)
    for b in range(batch):
        if coords is not None:
            places[:, :tokens] = coords[b].numpy().T
        q = np.ascontiguousarray(query[b].numpy() * F32(scale * LOG2E))
        keys, values = _tiles(key[b].numpy(), count, size), _tiles(value[b].numpy(), count, size)
        given = q, keys, values, tokens, places, steep, mixed[b].numpy()
        if torch.get_num_threads() == 1:
            _attend(*given, 0, asked)
        else:
            _in_threads(given, asked)
    return mixed.transpose(1, 2)


def _in_threads(given: tuple[Any, ...], asked: int) -> None:
    def work(part: slice, stopped: Event) -> None:
        _attend(*given, part.start, part.stop)

    in_threads(work, spans(asked, PARTS))


def _tiles(x: Array, count: int, size: int) -> Array:
    """Lay tokens ``(H, T, K)`` out as ``(P, H, K, S)``, filled up with zeros."""
    heads, _, width = x.shape
    made = np.zeros((count, heads, width, size), F32)
    for tile in range(count):
        some = x[:, tile * size : (tile + 1) * size]
        made[tile, :, :, : some.shape[1]] = some.transpose(0, 2, 1)
    return made


@fast
def _attend(
    query: Array, keys: Array, values: Array, tokens: int, places: Array, slopes: Array, out: Array, first: int,
    last: int,
) -> None:  # fmt: skip
    """Write what the queries from `first` on attend to, ``(Q, H, K)``.

    Queries are ``(H, Q, K)``, keys and values ``(P, H, K, S)``, places ``(2, P S)`` or ``(2, 0)``, slopes ``(H,)``.
    """
    heads, size = keys.shape[1], keys.shape[3]
    near, row = aligned_rows(ROWS, size), aligned(size)
    top, total = np.empty((heads, ROWS), F32), np.empty((heads, ROWS), F32)
    sums = np.empty((heads, ROWS, WIDTH), F32)
    for begin in range(first, last, ROWS):
        count = min(ROWS, last - begin)
        total[:], sums[:] = F32(0), F32(0)
        for tile in range(len(keys)):
            if places.shape[1]:
                x, y = places[0, tile * size : (tile + 1) * size], places[1, tile * size : (tile + 1) * size]
                for r in range(count):
                    _measure(places[0, begin + r], places[1, begin + r], x, y, near[r])
            for h in range(heads):
                of_head = query[h, begin : begin + count], keys[tile, h], values[tile, h]
                _meet(
                    *of_head, near, slopes[h], tile == 0, row, tokens - tile * size, top[h], total[h], sums[h]
                )
        for h in range(heads):
            for r in range(count):
                share = F32(1) / total[h, r]
                for d in range(WIDTH):
                    out[begin + r, h, d] = sums[h, r, d] * share


@fast
def _meet(
    query: Array, k: Array, v: Array, near: Array, slope: np.float32, begins: bool, row: Array, left: int, top: Array,
    total: Array, sums: Array,
) -> None:  # fmt: skip
    """Let queries ``(R, K)`` meet the keys of a tile ``(K, S)``: add powers to `total`, powers times values to `sums`.

    No more than the first `left` keys are tokens. Both are of logits less `top`, which the first tile sets. Sums over a
    head's width are in four loops: with more arrays in one, the compiler no longer proves that none is written to through
    another, and takes numbers one by one.
    """
    n, real = len(row), min(left, len(row))
    k0, k1, k2, k3, k4, k5, k6, k7 = k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]
    k8, k9, k10, k11, k12, k13, k14, k15 = k[8], k[9], k[10], k[11], k[12], k[13], k[14], k[15]
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]
    for r in range(len(query)):
        q, to, fresh = query[r], sums[r], begins
        while True:
            q0, q1, q2, q3, q4, q5, q6, q7 = q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]
            for j in range(n):
                row[j] = (q0 * k0[j] + q1 * k1[j]) + (q2 * k2[j] + q3 * k3[j]) - slope * near[r, j]
            for j in range(n):
                row[j] += (q4 * k4[j] + q5 * k5[j]) + (q6 * k6[j] + q7 * k7[j])
            q0, q1, q2, q3, q4, q5, q6, q7 = q[8], q[9], q[10], q[11], q[12], q[13], q[14], q[15]
            for j in range(n):
                row[j] += (q0 * k8[j] + q1 * k9[j]) + (q2 * k10[j] + q3 * k11[j])
            for j in range(n):
                row[j] += (q4 * k12[j] + q5 * k13[j]) + (q6 * k14[j] + q7 * k15[j])
            if fresh:
                largest = _largest(row[:real])
                if not begins:
                    share = power_of_two(max(top[r] - largest, F32(-126)))
                    total[r] *= share
                    for d in range(WIDTH):
                        to[d] *= share
                top[r] = largest
            less, powers = top[r], F32(0)
            for j in range(real):
                p = power_of_two(min(max(row[j] - less, F32(-126)), F32(126)))
                row[j] = p
                powers += p
            if fresh or powers < MOST:
                break
            fresh = True
        row[real:] = F32(0)
        total[r] += powers
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = a10 = a11 = a12 = a13 = a14 = a15 = F32(0)
        for j in range(n):
            p = row[j]
            a0, a1, a2, a3 = a0 + p * v0[j], a1 + p * v1[j], a2 + p * v2[j], a3 + p * v3[j]
            a4, a5, a6, a7 = a4 + p * v4[j], a5 + p * v5[j], a6 + p * v6[j], a7 + p * v7[j]
            a8, a9, a10, a11 = a8 + p * v8[j], a9 + p * v9[j], a10 + p * v10[j], a11 + p * v11[j]
            a12, a13, a14, a15 = a12 + p * v12[j], a13 + p * v13[j], a14 + p * v14[j], a15 + p * v15[j]
        found = (a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15)
        for d in range(WIDTH):
            to[d] += found[d]


@fast
def _measure(across: np.float32, up: np.float32, x: Array, y: Array, out: Array) -> None:
    """Write the distances from a place."""
    for j in range(len(out)):
        dx, dy = x[j] - across, y[j] - up
        out[j] = np.sqrt(dx * dx + dy * dy)


@fast
def _largest(row: Array) -> np.float32:
    """Return the largest number: by their bits, put in order, for of integers the compiler takes the largest in vectors."""
    most = np.int32(-(2**31))
    for j in range(len(row)):
        bits = F32(row[j]).view(np.int32)
        most = max(most, np.int32(bits ^ (bits >> np.int32(31) & np.int32(0x7FFFFFFF))))
    return np.int32(most ^ (most >> np.int32(31) & np.int32(0x7FFFFFFF))).view(np.float32)
