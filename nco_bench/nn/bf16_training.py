"""RMSNorm with a derivative of its own, for training in bf16 on a CPU: a compiled pass in either direction.

PyTorch takes a dozen operations, of which each reads and writes all tokens. Letters in shapes: R rows, W width.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from nco_bench.nn.compiled import F32, Array, fast, rounded, widened
from nco_bench.nn.threads import in_threads, spans

PARTS = 2
"""Shares of the rows, each with a sum of its own: what is added up is the same with any number of threads."""

Bits = NDArray[np.uint16]
"""Of bf16 numbers."""


@fast
def _forwards(x: Array, weight: Array, eps: F32, out: Bits, factors: Array) -> None:
    """Write norms ``(R, W)`` and what rows ``(R, W)`` are multiplied by, ``(R,)``."""
    rows, width = x.shape
    for r in range(rows):
        total = F32(0.0)
        for i in range(width):
            total += x[r, i] * x[r, i]
        factor = F32(1.0) / np.sqrt(total / F32(width) + eps)
        factors[r] = factor
        for i in range(width):
            out[r, i] = rounded(x[r, i] * factor * weight[i])


@fast
def _backwards(x: Array, weight: Array, factors: Array, outer: Bits, by_x: Array, by_weight: Array) -> None:
    """Write the derivatives by rows, and add those by the weight ``(W,)`` up, from those by the norms ``(R, W)``."""
    rows, width = x.shape
    for r in range(rows):
        factor, along = factors[r], F32(0.0)
        for i in range(width):
            change = widened(outer[r, i])
            by_weight[i] += change * x[r, i] * factor
            by_x[r, i] = change * weight[i]
            along += by_x[r, i] * x[r, i]
        along *= factor * factor / F32(width)
        for i in range(width):
            by_x[r, i] = factor * (by_x[r, i] - along * x[r, i])


class Normed(torch.autograd.Function):
    """RMSNorm of float32 rows, in bf16; see `rms_norm`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        x = x.contiguous()
        rows, out = x.view(-1, x.shape[-1]).numpy(), torch.empty_like(x, dtype=torch.bfloat16)
        factors, written = np.empty(len(rows), np.float32), _bits(out)

        def work(part: slice, _: threading.Event) -> None:
            _forwards(rows[part], weight.detach().numpy(), F32(eps), written[part], factors[part])

        in_threads(work, spans(len(rows), PARTS))
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows, outer, by_x = x.view(-1, x.shape[-1]).numpy(), _bits(gradient.contiguous()), torch.empty_like(x)
        written = by_x.view(rows.shape).numpy()

        def work(part: slice, _: threading.Event) -> Tensor:
            total = torch.zeros(rows.shape[1])
            known = (rows[part], weight.detach().numpy(), ctx.factors[part])
            _backwards(*known, outer[part], written[part], total.numpy())
            return total

        return by_x, torch.stack(in_threads(work, spans(len(rows), PARTS))).sum(dim=0), None


def _bits(x: Tensor) -> Bits:
    """Return the bits of contiguous bf16 numbers, ``(R, W)``."""
    found: Bits = x.view(-1, x.shape[-1]).view(torch.int16).numpy().view(np.uint16)
    return found


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return ``weight * x / sqrt(mean(x^2) + eps)`` over the last axis, ``(..., W)`` float32 to bf16."""
    return Normed.apply(x, weight, eps)
