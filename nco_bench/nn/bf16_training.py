"""Two operations that training in bf16 on a CPU spends its time in, with derivatives of their own.

PyTorch's kernel for attention takes six times as long backwards in bf16 as in float32, and RMSNorm is a dozen operations.
Here the products are bf16, and logits, softmax and norms float32.

Letters in shapes: B batch, Q queries, T tokens, W width, H heads, K head width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

LONGEST = 256
"""Tokens up to which attention is computed here: what it keeps for the way back grows with their square."""

LOGITS_AT_A_TIME = 2**19
"""Logits that are held at once, so that they stay in the processor's cache."""


class Attention(torch.autograd.Function):
    """``softmax(scale * query key^T + bias) value`` with products in bf16; see `attention`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float
    ) -> Tensor:  # type: ignore[override]
        batch, heads, queries, width = query.shape
        tokens = key.shape[2]
        query, key, value = query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1)
        if bias is not None:
            bias = bias.expand(batch, heads, queries, tokens).flatten(0, 1)
        mixed = torch.empty_like(query)
        shares = torch.empty(batch * heads, queries, tokens, dtype=torch.bfloat16)
        for part in _parts(batch * heads, queries * tokens):
            logits = torch.bmm(query[part], key[part].mT)
            logits = (
                logits.float().mul_(scale) if bias is None else torch.add(bias[part], logits, alpha=scale)
            )
            shares[part] = torch.softmax(logits, dim=-1)
            torch.bmm(shares[part], value[part], out=mixed[part])
        ctx.save_for_backward(query, key, value, shares)
        ctx.scale = scale
        return mixed.view(batch, heads, queries, width)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        query, key, value, shares = ctx.saved_tensors
        batch, heads = gradient.shape[:2]
        gradient = gradient.flatten(0, 1)
        changes = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        for part in _parts(len(shares), shares[0].numel()):
            by_share = torch.bmm(gradient[part], value[part].mT)
            by_logit = torch.ops.aten._softmax_backward_data(by_share, shares[part], -1, torch.bfloat16)
            torch.bmm(by_logit, key[part], out=changes[0][part])
            torch.bmm(by_logit.mT, query[part], out=changes[1][part])
            torch.bmm(shares[part].mT, gradient[part], out=changes[2][part])
        changes[0].mul_(ctx.scale)
        changes[1].mul_(ctx.scale)
        return *(change.unflatten(0, (batch, heads)) for change in changes), None, None


class Normed(torch.autograd.Function):
    """RMSNorm of float32 rows, in bf16; see `rms_norm`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        unit = x * factor
        ctx.save_for_backward(unit, factor, weight)
        return torch.mul(unit, weight, out=torch.empty_like(x, dtype=torch.bfloat16))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        unit, factor, weight = ctx.saved_tensors
        by_weight = gradient * unit
        along = (by_weight @ weight).div_(weight.shape[0]).unsqueeze_(-1)
        by_x = torch.addcmul(gradient * weight, unit, along, value=-1).mul_(factor)
        return by_x, by_weight.flatten(0, -2).sum(dim=0), None


def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float) -> Tensor | None:
    """Return ``softmax(scale * query key^T + bias) value`` with derivatives, or None where this is not for here.

    Parameters
    ----------
    query
        ``(B, H, Q, K)``.
    key, value
        ``(B, H, T, K)``.
    bias
        Float32, broadcast to ``(B, H, Q, T)``; it gets no gradient. None adds nothing.
    scale
        Factor of the products.

    Returns
    -------
    Tensor or None
        ``(B, H, Q, K)`` bf16. None for more than `LONGEST` tokens, for bool masks and for biases that are learned.
    """
    if key.shape[2] > LONGEST or (
        bias is not None and (bias.requires_grad or bias.dtype is not torch.float32)
    ):
        return None
    return Attention.apply(query, key, value, bias, scale)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return ``weight * x / sqrt(mean(x^2) + eps)`` over the last axis, ``(..., W)`` float32 to bf16."""
    return Normed.apply(x, weight, eps)


def _parts(count: int, each: int) -> list[slice]:
    """Cut `count` matrices of `each` numbers into parts of at most `LOGITS_AT_A_TIME`."""
    size = max(1, LOGITS_AT_A_TIME // each)
    return [slice(start, start + size) for start in range(0, count, size)]
