"""Tokens without gradients on the CPU as a matrix whose rows are filled up once: layers ask less of every product.

Where little of a problem is left, asking and cutting takes a twentieth of a layer's time. Products are the same as those of
`nco_bench.nn.layers`, one by one.

Letters in shapes: B batch, T tokens, W width, H heads, K head width, M rows of the matrix, B T or some more.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nco_bench.nn import products
from nco_bench.nn.layers import HIDDEN_AT_A_TIME, FeedForward, SelfAttention, attend, works_in_place


class Filled:
    """Tokens ``(B, T, W)``, or parts of them along the second axis, that layers add to; `pays` says where.

    Attributes
    ----------
    matrix
        ``(M, W)``; rows behind the first ``B T`` hold anything that is finite.
    """

    __slots__ = ("batch", "matrix", "rows", "tokens")

    def __init__(self, *parts: Tensor) -> None:
        self.batch, self.tokens = len(parts[0]), sum(part.shape[1] for part in parts)
        self.rows = self.batch * self.tokens
        self.matrix = products.filled(*parts)

    @property
    def whole(self) -> Tensor:
        """The tokens, ``(B, T, W)``."""
        return self.matrix[: self.rows].view(self.batch, self.tokens, -1)

    def mapped(self, linear: nn.Linear, heads: int) -> Tensor:
        """Map tokens and cut what comes of them by heads, ``(B, H, T, K)``."""
        made = products.mapped(self.matrix, linear.weight, linear.bias)
        return made[: self.rows].view(self.batch, self.tokens, heads, -1).transpose(1, 2)

    def add(self, heads: Tensor, out: nn.Linear) -> None:
        """Add what heads have read, ``(B, H, T, K)``, through their output map."""
        mixed = heads.transpose(1, 2).flatten(2)
        rows = products.filled(mixed) if self.rows != len(self.matrix) else mixed.view(self.rows, -1)
        self.matrix = products.added_to(self.matrix, rows, out.weight, out.bias)

    def attend(self, attention: SelfAttention, factor: float | Tensor, real: Tensor | None) -> None:
        """Add self-attention; `factor` of the logits holds 1/sqrt(K), `real` as in `layers.attend`."""
        joined = products.mapped(self.matrix, attention.qkv.weight, attention.qkv.bias)[: self.rows]
        parts = joined.view(self.batch, self.tokens, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        self.add(attend(query, key, value, factor, real), attention.out)

    def feed_forward(self, block: FeedForward) -> None:
        """Add a feed-forward block with ReLU."""
        inner, outer = block.inner, block.outer
        most = max(1, HIDDEN_AT_A_TIME // inner.out_features)
        if self.rows <= most:
            hidden = products.mapped(self.matrix, inner.weight, inner.bias, "relu")
            self.matrix = products.added_to(self.matrix, hidden, outer.weight, outer.bias)
            return
        for rows in self.matrix.split(most):
            hidden = products.mapped(rows, inner.weight, inner.bias, "relu")
            rows.add_(outer.bias).add_(products.mapped(hidden, outer.weight, None))


def pays(x: Tensor, narrowest: nn.Linear, listened: Iterable[nn.Module]) -> bool:
    """Tell whether layers take tokens ``(B, T, W)`` as `Filled`.

    Parameters
    ----------
    x
        The tokens, or the greater part of them.
    narrowest
        The smallest map that they go through: as all products, it must be large enough for `products.linear` to give it to
        the faster library.
    listened
        Layers that must be called as modules where hooks wait for that.
    """
    return (
        works_in_place(x)
        and x.dtype is torch.float32
        and products.pays(x, narrowest.weight)
        and not any(one._forward_hooks or one._forward_pre_hooks for one in listened)
    )
