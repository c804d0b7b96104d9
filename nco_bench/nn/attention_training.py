"""Attention with a derivative of its own, for training on the CPU: compiled passes, no logits in memory.

PyTorch's kernel reads a bias per head from memory, and in bf16 tokens are widened, cut by heads and laid side by side again
in passes of their own. Here the tokens of an instance stay in the cache: all heads share its distances, where logits fall
with them (PENS), and weights are computed again backwards from the logarithms of their sums. Numbers are float32 within,
whatever tokens come in: in bf16 what values have in common would leave its rounding in the derivatives.

Powers are of two, so logits carry log2 e. Letters in shapes: B batch, Q queries, T tokens, H heads, K head width (16), S
places for keys, a multiple of 16, R rows, a multiple of 8.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nco_bench.nn import products
from nco_bench.nn.compiled import F32, Array, aligned, aligned_rows, fast, power_of_two
from nco_bench.nn.compiled_attention import LOG2E, WIDTH, _largest
from nco_bench.nn.threads import in_threads, spans

LINE, ROWS = 16, 8
"""Places for keys and rows of queries are multiples of these: what is added is zero."""
LONGEST = 256
"""Tokens up to which the weights of a head and their derivatives stay in the second cache."""
AT_A_TIME = 4096
"""Tokens that are widened at a time."""
PARTS = 4
"""Shares of a batch, for threads."""
LN2 = F32(1 / LOG2E)
LEAST, MOST = F32(2.0**-60), F32(2.0**100)
"""A sum of powers outside these is taken again, of logits less the largest one."""


def pays(tokens: int, head_width: int) -> bool:
    """Tell whether attention with gradients on the CPU goes through here: where 512-bit vectors are whole."""
    return (
        head_width == WIDTH and tokens <= LONGEST and not torch.compiler.is_compiling() and products.faster()
    )


def attend(
    sources: Sequence[Tensor],
    heads: int,
    scale: float,
    slopes: Tensor | None = None,
    coords: Tensor | None = None,
) -> Tensor:
    """Attention with logits ``scale q.k``, or ``scale q.k - m_h D``; gradients reach the tokens alone.

    Parameters
    ----------
    sources
        Queries ``(B, Q, H K)``, keys and values ``(B, T, H K)``, float32 or bf16: side by side in one tensor (Q is T), keys
        and values in the second of two, or apart in three.
    heads
        H.
    scale
        Factor of the content logits.
    slopes, coords
        ``(H,)``, the m_h, and ``(B, T, 2)``, where the D are between; then Q is T.

    Returns
    -------
    Tensor
        ``(B, Q, H K)``, of the type of the queries.
    """
    mixed: Tensor = _Attention.apply(heads, scale, slopes, coords, *sources)  # type: ignore[no-untyped-call]
    return mixed


PLACES = {1: ((0, 0), (0, 1), (0, 2)), 2: ((0, 0), (1, 0), (1, 1)), 3: ((0, 0), (1, 0), (2, 0))}
"""By the number of sources: in which one queries, keys and values are, and behind how many others."""


class _Attention(torch.autograd.Function):
    """See `attend`."""

    @staticmethod
    def forward(
        ctx: Any, heads: int, scale: float, slopes: Tensor | None, coords: Tensor | None, *sources: Tensor
    ) -> Tensor:
        places, width = PLACES[len(sources)], heads * WIDTH
        batch, asked, _ = sources[0].shape
        tokens = sources[-1].shape[1]
        steep, points = np.zeros(heads, F32), np.zeros((batch, 0, 2), F32)
        if slopes is not None and coords is not None:
            steep, points = (slopes.detach().numpy() * LOG2E).astype(F32), coords.float().numpy()
        made = sources[0].new_empty(batch, asked, width)
        sums, factor = np.empty((batch, heads, asked), F32), F32(scale * LOG2E)
        offsets = tuple(behind * width for _, behind in places)

        def work(part: slice, _: threading.Event) -> None:
            for some in _in_turn(part, max(asked, tokens)):
                given = [_widened(source[some]) for source in sources]
                room = made[some] if made.dtype is torch.float32 else torch.empty(made[some].shape)
                where = [given[source].numpy() for source, _ in places]
                _forwards(*where, offsets, points[some], steep, factor, room.numpy(), sums[some])
                if made.dtype is not torch.float32:
                    made[some] = room

        in_threads(work, spans(batch, PARTS))
        ctx.save_for_backward(*sources)
        ctx.known = points, steep, factor, sums, offsets
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        sources, (points, steep, factor, sums, offsets) = ctx.saved_tensors, ctx.known
        places, made = PLACES[len(sources)], [torch.empty_like(source) for source in sources]

        def work(part: slice, _: threading.Event) -> None:
            for some in _in_turn(part, max(source.shape[1] for source in sources)):
                given, outer = [_widened(source[some]) for source in sources], _widened(gradient[some])
                found = [torch.empty_like(one) for one in given]
                where = [given[source].numpy() for source, _ in places]
                to = [found[source].numpy() for source, _ in places]
                known = offsets, points[some], steep, factor, sums[some], outer.numpy()
                _backwards(*where, *known, *to)
                for one, other in zip(made, found, strict=True):
                    one[some] = other

        in_threads(work, spans(len(gradient), PARTS))
        return None, None, None, None, *made


def _widened(x: Tensor) -> Tensor:
    return x.float().contiguous()


def _in_turn(part: slice, tokens: int) -> list[slice]:
    """Cut a share of the batch into instances that are widened together."""
    count = part.stop - part.start
    pieces = spans(count, max(1, count * tokens // AT_A_TIME))
    return [slice(part.start + piece.start, part.start + piece.stop) for piece in pieces]


@fast
def _forwards(
    asking: Array, keyed: Array, valued: Array, offsets: tuple[int, int, int], places: Array, slopes: Array,
    factor: F32, out: Array, sums: Array,
) -> None:  # fmt: skip
    """Write what tokens attend to, ``(B, Q, H K)``, and the logarithms of their sums, ``(B, H, Q)``.

    Queries, keys and values begin at the offsets of rows of ``(B, Q, ...)`` and twice ``(B, T, ...)``.
    """
    batch, asked, tokens, heads = len(asking), asking.shape[1], keyed.shape[1], len(slopes)
    size = -(-tokens // LINE) * LINE
    near, rows = aligned_rows(asked, size), aligned_rows(asked, size)
    keys, values = aligned_rows(WIDTH, size), aligned_rows(WIDTH, size)
    queries, found, share = aligned_rows(asked, WIDTH), aligned_rows(asked, WIDTH), aligned(asked)
    real = aligned(size)
    real[:tokens] = F32(1)
    for b in range(batch):
        _measure(places[b], near)
        for h in range(heads):
            _in_rows(asking[b], offsets[0] + h * WIDTH, factor, queries)
            _in_columns(keyed[b], offsets[1] + h * WIDTH, keys)
            _in_columns(valued[b], offsets[2] + h * WIDTH, values)
            _multiply(queries, keys, rows)
            _soften(queries, keys, near, slopes[h], real, rows, share, sums[b, h])
            _add_up(rows, values, found)
            for t in range(asked):
                for d in range(WIDTH):
                    out[b, t, h * WIDTH + d] = found[t, d] * share[t]


@fast
def _backwards(
    asking: Array, keyed: Array, valued: Array, offsets: tuple[int, int, int], places: Array, slopes: Array,
    factor: F32, sums: Array, outer: Array, by_asking: Array, by_keyed: Array, by_valued: Array,
) -> None:  # fmt: skip
    """Write the derivatives by queries, keys and values from those by what is attended to, ``(B, Q, H K)``."""
    batch, asked, tokens, heads = len(asking), asking.shape[1], keyed.shape[1], len(slopes)
    size, count = -(-tokens // LINE) * LINE, -(-asked // ROWS) * ROWS
    near, weights, changes = aligned_rows(asked, size), aligned_rows(count, size), aligned_rows(count, size)
    keys, values = aligned_rows(WIDTH, size), aligned_rows(WIDTH, size)
    queries, given = aligned_rows(count, WIDTH), aligned_rows(count, WIDTH)
    by_queries = aligned_rows(asked, WIDTH)
    by_keys, by_values, real = aligned_rows(WIDTH, size), aligned_rows(WIDTH, size), aligned(size)
    real[:tokens] = F32(1)
    for b in range(batch):
        _measure(places[b], near)
        for h in range(heads):
            q, k, v = offsets[0] + h * WIDTH, offsets[1] + h * WIDTH, offsets[2] + h * WIDTH
            _in_rows(asking[b], q, factor, queries[:asked])
            _in_columns(keyed[b], k, keys)
            _in_columns(valued[b], v, values)
            _in_rows(outer[b], h * WIDTH, F32(1), given[:asked])
            _multiply(queries[:asked], keys, weights)
            _multiply(given[:asked], values, changes)
            _derive(near, slopes[h], real, sums[b, h], weights, changes)
            _spread(weights, given, by_values)
            _spread(changes, queries, by_keys)
            _add_up(changes[:asked], keys, by_queries)
            for t in range(asked):
                for d in range(WIDTH):
                    by_asking[b, t, q + d] = by_queries[t, d] * (factor * LN2)
            for t in range(tokens):
                for d in range(WIDTH):
                    by_keyed[b, t, k + d] = by_keys[d, t] * LN2
                    by_valued[b, t, v + d] = by_values[d, t]


@fast
def _measure(places: Array, near: Array) -> None:
    """Write the distances between places ``(T, 2)``, ``(T, S)``; nothing where there are no places."""
    tokens, size = len(places), near.shape[1]
    x, y = aligned(size), aligned(size)
    for j in range(tokens):
        x[j], y[j] = places[j, 0], places[j, 1]
    for r in range(tokens):
        across, up = x[r], y[r]
        for j in range(size):
            dx, dy = x[j] - across, y[j] - up
            near[r, j] = np.sqrt(dx * dx + dy * dy)


@fast
def _in_rows(tokens: Array, first: int, factor: F32, out: Array) -> None:
    """Write a head's numbers times a factor, ``(T, K)``."""
    for t in range(len(tokens)):
        for d in range(WIDTH):
            out[t, d] = tokens[t, first + d] * factor


@fast
def _in_columns(tokens: Array, first: int, out: Array) -> None:
    """Write a head's numbers, ``(K, S)``."""
    for t in range(len(tokens)):
        for d in range(WIDTH):
            out[d, t] = tokens[t, first + d]


@fast
def _multiply(q: Array, k: Array, out: Array) -> None:
    """Write the products of rows ``(Q, K)`` and columns ``(K, S)``, ``(Q, S)``."""
    k0, k1, k2, k3, k4, k5, k6, k7 = k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]
    k8, k9, k10, k11, k12, k13, k14, k15 = k[8], k[9], k[10], k[11], k[12], k[13], k[14], k[15]
    for r in range(len(q)):
        q0, q1, q2, q3, q4, q5, q6, q7 = (
            q[r, 0],
            q[r, 1],
            q[r, 2],
            q[r, 3],
            q[r, 4],
            q[r, 5],
            q[r, 6],
            q[r, 7],
        )
        q8, q9, q10, q11, q12, q13 = q[r, 8], q[r, 9], q[r, 10], q[r, 11], q[r, 12], q[r, 13]
        q14, q15 = q[r, 14], q[r, 15]
        for j in range(out.shape[1]):
            first = (q0 * k0[j] + q1 * k1[j]) + (q2 * k2[j] + q3 * k3[j])
            second = (q4 * k4[j] + q5 * k5[j]) + (q6 * k6[j] + q7 * k7[j])
            third = (q8 * k8[j] + q9 * k9[j]) + (q10 * k10[j] + q11 * k11[j])
            fourth = (q12 * k12[j] + q13 * k13[j]) + (q14 * k14[j] + q15 * k15[j])
            out[r, j] = (first + second) + (third + fourth)


@fast
def _soften(
    queries: Array, keys: Array, near: Array, slope: F32, real: Array, rows: Array, share: Array, sums: Array
) -> None:
    """Put powers in the place of logits ``(Q, S)``, and write 1 / their sums and the sums' logarithms, ``(Q,)``."""
    asked, size = rows.shape
    tokens = np.int64(np.sum(real))
    for r in range(asked):
        top, total = F32(0), F32(0)
        for j in range(size):
            p = real[j] * power_of_two(min(max(rows[r, j] - slope * near[r, j], F32(-126)), F32(126)))
            rows[r, j] = p
            total += p
        if not LEAST < total < MOST:
            _multiply(queries[r : r + 1], keys, rows[r : r + 1])
            for j in range(size):
                rows[r, j] -= slope * near[r, j]
            top, total = _largest(rows[r, :tokens]), F32(0)
            for j in range(size):
                rows[r, j] = real[j] * power_of_two(min(max(rows[r, j] - top, F32(-126)), F32(0)))
                total += rows[r, j]
        share[r], sums[r] = F32(1) / total, top + np.log2(total)


@fast
def _derive(near: Array, slope: F32, real: Array, sums: Array, weights: Array, changes: Array) -> None:
    """Put weights in the place of logits, and derivatives by the logits in that of those by the weights, ``(R, S)``."""
    asked, size = near.shape
    for r in range(asked):
        less, mean = sums[r], F32(0)
        for j in range(size):
            p = power_of_two(min(max(weights[r, j] - slope * near[r, j] - less, F32(-126)), F32(1)))
            p *= real[j]
            weights[r, j] = p
            mean += p * changes[r, j]
        for j in range(size):
            changes[r, j] = weights[r, j] * (changes[r, j] - mean)


@fast
def _add_up(rows: Array, v: Array, out: Array) -> None:
    """Write the sums of columns ``(K, S)`` with weights ``(Q, S)``, ``(Q, K)``."""
    v0, v1, v2, v3, v4, v5, v6, v7 = v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15]
    for r in range(len(rows)):
        a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = a10 = a11 = a12 = a13 = a14 = a15 = F32(0)
        for j in range(rows.shape[1]):
            p = rows[r, j]
            a0, a1, a2, a3 = a0 + p * v0[j], a1 + p * v1[j], a2 + p * v2[j], a3 + p * v3[j]
            a4, a5, a6, a7 = a4 + p * v4[j], a5 + p * v5[j], a6 + p * v6[j], a7 + p * v7[j]
            a8, a9, a10, a11 = a8 + p * v8[j], a9 + p * v9[j], a10 + p * v10[j], a11 + p * v11[j]
            a12, a13, a14, a15 = a12 + p * v12[j], a13 + p * v13[j], a14 + p * v14[j], a15 + p * v15[j]
        out[r, 0], out[r, 1], out[r, 2], out[r, 3], out[r, 4], out[r, 5] = a0, a1, a2, a3, a4, a5
        out[r, 6], out[r, 7], out[r, 8], out[r, 9], out[r, 10], out[r, 11] = a6, a7, a8, a9, a10, a11
        out[r, 12], out[r, 13], out[r, 14], out[r, 15] = a12, a13, a14, a15


@fast
def _spread(weights: Array, given: Array, out: Array) -> None:
    """Write the sums of rows ``(R, K)`` with weights ``(R, S)``, ``(K, S)``."""
    out[:] = F32(0)
    for r in range(0, len(weights), ROWS):
        p0, p1, p2, p3 = weights[r], weights[r + 1], weights[r + 2], weights[r + 3]
        p4, p5, p6, p7 = weights[r + 4], weights[r + 5], weights[r + 6], weights[r + 7]
        for d in range(WIDTH):
            g0, g1, g2, g3 = given[r, d], given[r + 1, d], given[r + 2, d], given[r + 3, d]
            g4, g5, g6, g7 = given[r + 4, d], given[r + 5, d], given[r + 6, d], given[r + 7, d]
            for j in range(out.shape[1]):
                out[d, j] += ((g0 * p0[j] + g1 * p1[j]) + (g2 * p2[j] + g3 * p3[j])) + (
                    (g4 * p4[j] + g5 * p5[j]) + (g6 * p6[j] + g7 * p7[j])
                )
