"""Layers that several path policies really share.

Letters in shapes: B batch, T tokens, W width, H heads, K head width.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nco_bench.nn import products
from nco_bench.nn.device import kind, on_cpu
from nco_bench.nn.products import activated, add_product, added, feed_forward, rectified, roomy, times

KERNELS = importlib.util.find_spec("numba") is not None
"""Whether compiled loops are to be had."""
FEWEST_QUERIES = 128
"""From which on laying out keys and values for compiled attention pays."""
HIDDEN_AT_A_TIME = 2**19
"""Hidden values of a feed-forward block that are held at once where it works in place: they fit the processor's cache."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float | Tensor, real: Tensor | None = None
) -> Tensor:
    """Softmax attention: ``softmax(scale * query key^T) value``.

    Parameters
    ----------
    query, key, value
        ``(B, H, T, K)`` each; query may have another number of tokens.
    scale
        Factor of the logits. A tensor (a learned scale) is folded into the queries, so gradients reach it.
    real
        ``(1, 1, 1, T)`` bool: tokens that may be attended to; None if all may.
    """
    if isinstance(scale, Tensor):
        query, scale = scaled(query, scale), 1.0
    if real is None and query.shape[2] >= FEWEST_QUERIES and compiles_attention(query):
        from nco_bench.nn import compiled_attention

        if compiled_attention.pays(key.shape[2], compiled_attention.FEWEST, key.shape[3]):
            return compiled_attention.attend(query, key, value, scale)
    return dot_products(query, key, value, real, scale)


def attend_side_by_side(
    sources: Sequence[Tensor], heads: int, scale: float | Tensor, real: Tensor | None = None
) -> Tensor:
    """Attention of queries, keys and values whose heads lie side by side, ``(B, Q, H K)``.

    Parameters
    ----------
    sources
        Queries ``(B, Q, H K)``, keys and values ``(B, T, H K)``: all in one tensor (Q is T), keys and values in the second
        of two, or apart in three.
    heads
        H.
    scale, real
        As in `attend`.
    """
    if real is None and isinstance(scale, float) and compiles_training(sources, heads):
        from nco_bench.nn import attention_training

        return attention_training.attend(sources, heads, scale)
    counts = {1: (3,), 2: (1, 2), 3: (1, 1, 1)}[len(sources)]
    query, key, value = (
        part
        for source, count in zip(sources, counts, strict=True)
        for part in split_parts(source, count, heads)
    )
    return side_by_side(attend(query, key, value, scale, real))


def compiles_training(sources: Sequence[Tensor], heads: int) -> bool:
    """Tell whether attention of these tokens with gradients goes through `attention_training`."""
    first, last = sources[0], sources[-1]
    if not (KERNELS and torch.is_grad_enabled() and first.requires_grad and on_cpu(first.device)):
        return False
    if first.dtype not in (torch.float32, torch.bfloat16):
        return False
    from nco_bench.nn import attention_training

    width = first.shape[2] // ((3 if len(sources) == 1 else 1) * heads)
    return attention_training.pays(max(first.shape[1], last.shape[1]), width)


def compiles_attention(query: Tensor) -> bool:
    """Tell whether attention of these queries may go through `compiled_attention`, which has no gradients."""
    return KERNELS and query.dtype is torch.float32 and works_in_place(query)


def dot_products(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Return ``softmax(scale * query key^T + mask) value`` by PyTorch's kernels, ``(B, H, T, K)``.

    `mask`, broadcast to ``(B, H, T, T)``, is bool (who may be attended to) or is added to the logits, in their precision.
    """
    if torch.is_grad_enabled() and value.dtype is torch.bfloat16:  # rotated queries and keys are float32
        # What all values have in common, which cancels in the derivatives of the softmax, would leave its rounding there: up
        # to thirty times the gradient. On a CPU the kernel takes six times as long backwards in bf16, too.
        query, key, value = query.float(), key.float(), value.float()
        mask = mask.float() if mask is not None and mask.is_floating_point() else mask
        with torch.autocast(kind(query.device), enabled=False):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale).bfloat16()
    mask = mask.to(query.dtype) if mask is not None and mask.is_floating_point() else mask
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def as_products(mask: Tensor) -> Tensor:
    """Round what is added to logits to the type of an accelerator's products, once for all layers."""
    return mask if products_bytes(mask.device) == 4 else mask.to(torch.get_autocast_dtype(kind(mask.device)))


def products_bytes(device: torch.device) -> int:
    """Return the size of a number in attention: 2 where an accelerator's autocast says so."""
    if on_cpu(device) or torch.is_grad_enabled() or not torch.is_autocast_enabled(kind(device)):
        return 4
    return torch.get_autocast_dtype(kind(device)).itemsize


def trains_in_bf16(device: torch.device) -> bool:
    """Tell whether gradients are computed in bf16 on the CPU, where some operations need versions of their own."""
    return on_cpu(device) and torch.is_grad_enabled() and torch.is_autocast_enabled("cpu")


def scaled(query: Tensor, scale: Tensor) -> Tensor:
    """Multiply queries by a scale ``()``, which is not rounded to a lower precision before."""
    exact = torch.promote_types(query.dtype, torch.float32)
    return (query.to(exact) * scale).to(query.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention over all tokens, logits divided by sqrt(K) and multiplied by a scale."""

    def __init__(self, width: int, heads: int, head_dim: int, *, qkv_bias: bool) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.qkv = nn.Linear(width, 3 * heads * head_dim, bias=qkv_bias)
        self.out = nn.Linear(heads * head_dim, width)

    def forward(self, x: Tensor, scale: float | Tensor, real: Tensor | None = None) -> Tensor:
        """Mix tokens, ``(B, T, W)`` to ``(B, T, W)``; `scale` (1: plain attention) and `real` as in `attend`."""
        return self.out(self._mixed(x, scale, real))

    def added(
        self, x: Tensor, scale: float | Tensor, real: Tensor | None = None, factor: float | Tensor = 1.0
    ) -> Tensor:
        """Return ``x + factor * self(x, scale, real)``; `x` itself is overwritten where `works_in_place`."""
        return add_linear(x, self._mixed(x, scale, real), self.out, factor)

    def _mixed(self, x: Tensor, scale: float | Tensor, real: Tensor | None) -> Tensor:
        joined = products.linear(x, self.qkv.weight, self.qkv.bias)
        return attend_side_by_side((joined,), self.heads, scale / math.sqrt(self.head_dim), real)


def split_parts(joined: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """Cut what one map made of tokens, ``(B, T, parts H K)``, into its parts by heads, ``(B, H, T, K)`` each; views."""
    if joined.requires_grad and on_cpu(joined.device) and not torch.compiler.is_compiling():
        made: tuple[Tensor, ...] = _Parts.apply(joined, parts, heads)  # type: ignore[no-untyped-call]
        return made
    return joined.unflatten(2, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def side_by_side(heads: Tensor) -> Tensor:
    """Join what heads have read, ``(B, H, T, K)`` to ``(B, T, H K)``."""
    turned = heads.transpose(1, 2)
    return (roomy(turned) if works_in_place(heads) else turned).flatten(2)


class _Parts(torch.autograd.Function):
    """`split_parts`; derivatives are put side by side in one go, where torch stacks them first and turns them then."""

    @staticmethod
    def forward(ctx: Any, joined: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
        return joined.unflatten(2, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None, None]:
        batch, heads, tokens, width = slopes[0].shape
        made = slopes[0].new_empty(batch, tokens, len(slopes), heads, width)
        for part, slope in enumerate(slopes):
            made[:, :, part].copy_(slope.transpose(1, 2))
        return made.flatten(2), None, None


class FeedForward(nn.Module):
    """Linear, ReLU (or exact GELU), Linear, with biases."""

    def __init__(self, width: int, hidden: int, *, gelu: bool = False) -> None:
        super().__init__()
        self.inner = nn.Linear(width, hidden)
        self.outer = nn.Linear(hidden, width)
        self.gelu = gelu

    def forward(self, x: Tensor) -> Tensor:
        """Transform each token, ``(..., W)`` to ``(..., W)``."""
        return feed_forward(x, self.inner, self.outer, gelu=self.gelu)

    def added(self, x: Tensor, factor: float | Tensor = 1.0) -> Tensor:
        """Return ``x + factor * self(x)``; `x` itself is overwritten where `works_in_place`."""
        return add_feed_forward(x, self.inner, self.outer, factor, gelu=self.gelu)

    def scored(self, x: Tensor, score: nn.Linear, factor: float | Tensor = 1.0) -> Tensor:
        """Return ``score(x + factor * self(x))``, the last step of a network, ``(..., W)`` to ``(..., 1 or 2)``."""
        return score_feed_forward(x, self.inner, self.outer, score, factor, gelu=self.gelu)

    def _hidden(self, x: Tensor) -> Tensor:
        return hidden_values(x, self.inner, self.gelu)


def hidden_values(x: Tensor, inner: nn.Linear, gelu: bool = False) -> Tensor:
    """Return the activations between the two maps of a feed-forward block."""
    if not gelu and works_in_place(x):
        return rectified(x, inner.weight, inner.bias)
    return activated(inner(x), gelu)


def add_feed_forward(
    x: Tensor, inner: nn.Linear, outer: nn.Linear, factor: float | Tensor = 1.0, *, gelu: bool = False
) -> Tensor:
    """Return `x` plus `factor` times a feed-forward block of it; `x` itself is overwritten where `works_in_place`.

    Parameters
    ----------
    x
        ``(B, T, W)``.
    inner, outer
        The two maps.
    factor
        Of the residual branch.
    gelu
        Exact GELU between the maps in place of ReLU.
    """
    if not works_in_place(x) or not x.is_contiguous():
        return x + feed_forward(x, inner, outer, factor, gelu=gelu)
    alpha, parts = float(factor), _cached(x, inner)
    if len(parts) == 1:
        hidden = hidden_values(parts[0], inner, gelu)
        return added(parts[0], hidden, outer.weight, outer.bias, alpha).view(x.shape)
    for rows in parts:
        hidden = hidden_values(rows, inner, gelu)
        add_product(rows.add_(outer.bias, alpha=alpha), hidden, outer.weight, alpha)
    return x


def score_feed_forward(
    x: Tensor,
    inner: nn.Linear,
    outer: nn.Linear,
    score: nn.Linear,
    factor: float | Tensor = 1.0,
    *,
    gelu: bool = False,
) -> Tensor:
    """Return ``score(x + factor * block(x))``, the last step of a network, ``(..., W)`` to ``(..., 1 or 2)``.

    The outer map and the score are both linear, so they are joined first: the second half of the work falls away.
    """
    weight, bias = score.weight @ outer.weight, score.weight @ outer.bias
    if torch.is_grad_enabled():
        return score(x) + products.block(x, inner, weight * factor, bias * factor, gelu=gelu)
    parts = _cached(x, inner) if works_in_place(x) and x.is_contiguous() else (x,)
    found = [
        score(rows) + factor * F.linear(hidden_values(rows, inner, gelu), weight, bias) for rows in parts
    ]
    return (torch.cat(found) if len(found) > 1 else found[0]).view(*x.shape[:-1], -1)


def _cached(x: Tensor, inner: nn.Linear) -> tuple[Tensor, ...]:
    """Cut tokens into rows whose hidden values fit the processor's cache."""
    rows, most = x.view(-1, x.shape[-1]), max(1, HIDDEN_AT_A_TIME // inner.out_features)
    return (rows,) if rows.shape[0] <= most else rows.split(most)


def works_in_place(x: Tensor) -> bool:
    """Tell whether layers may overwrite their tokens: on the CPU, without gradients or autocast.

    There a fresh tensor costs about as much as the sum that is written to it.
    """
    return x.is_cpu and not torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")


def listened(layers: Iterable[nn.Module]) -> bool:
    """Tell whether hooks wait for layers, or their attention, to be called as modules."""
    modules = (one for layer in layers for one in (layer, getattr(layer, "attention", layer)))
    return any(one._forward_hooks or one._forward_pre_hooks for one in modules)


def add_linear(x: Tensor, inputs: Tensor, linear: nn.Linear, factor: float | Tensor = 1.0) -> Tensor:
    """Return ``x + factor * linear(inputs)``, ``(B, T, W)``; `x` itself, overwritten, where `works_in_place`."""
    if not works_in_place(x) or not x.is_contiguous():
        return x + products.linear(inputs, *times(linear, factor))
    x, alpha = roomy(x), float(factor)
    rows, inputs = x.view(-1, x.shape[-1]), inputs.reshape(-1, inputs.shape[-1])
    return added(rows, inputs, linear.weight, linear.bias, alpha).view(x.shape)


def joined(x: Tensor, linear: nn.Linear, then: nn.Linear | None) -> Tensor:
    """Return ``then(linear(x))``, or ``linear(x)``; two maps become one first, which is cheap where `x` is narrow."""
    if then is None:
        return linear(x)
    bias = F.linear(linear.bias, then.weight, then.bias)
    return F.linear(x, then.weight @ linear.weight, bias)


def with_column(x: Tensor, column: Tensor) -> Tensor:
    """Append one number per instance to every token: ``(B, T, W)`` and ``(B,)`` to ``(B, T, W + 1)``."""
    return torch.cat([x, column[:, None, None].expand(-1, x.shape[1], 1).to(x.dtype)], dim=2)


def fuse_qkv(state: dict[str, Tensor], names: tuple[str, str, str]) -> Tensor:
    """Stack the official query, key and value matrices into one, and remove them from `state`."""
    return torch.cat([state.pop(name) for name in names])
