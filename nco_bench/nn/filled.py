"""Tokens without gradients on the CPU as a matrix whose rows are filled up once: layers ask less of every product.

Where little of a problem is left, asking and cutting takes a twentieth of a layer's time. Products are the same as those of
`nco_bench.nn.layers`, one by one.

Letters in shapes: B batch, T tokens, W width, H heads, K head width, M rows of the matrix, B T or some more.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nco_bench.nn import packed, products
from nco_bench.nn.layers import HIDDEN_AT_A_TIME, SelfAttention, attend, listened, works_in_place


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
        made = packed.mapped(self.matrix, linear)
        return made[: self.rows].view(self.batch, self.tokens, heads, -1).transpose(1, 2)

    def parts(self, linear: nn.Linear, heads: int) -> tuple[Tensor, ...]:
        """Map tokens to queries, keys and values at once, ``(B, H, T, K)`` each."""
        made = packed.mapped(self.matrix, linear)[: self.rows]
        return made.view(self.batch, self.tokens, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def read(self, heads: Tensor) -> Tensor:
        """Return what heads have read, ``(B, H, T, K)``, side by side as rows, ``(M, H K)``."""
        mixed = heads.transpose(1, 2).flatten(2)
        return products.filled(mixed) if self.rows != len(self.matrix) else mixed.view(self.rows, -1)

    def add(self, heads: Tensor, out: nn.Linear) -> None:
        """Add what heads have read, ``(B, H, T, K)``, through their output map."""
        self.matrix = packed.added_to(self.matrix, self.read(heads), out)

    def attend(self, attention: SelfAttention, factor: float | Tensor, real: Tensor | None) -> None:
        """Add self-attention; `factor` of the logits holds 1/sqrt(K), `real` as in `layers.attend`."""
        query, key, value = self.parts(attention.qkv, attention.heads)
        self.add(attend(query, key, value, factor, real), attention.out)

    def feed_forward(self, inner: nn.Linear, outer: nn.Linear, factor: float = 1.0) -> None:
        """Add `factor` times a feed-forward block with ReLU."""
        most = max(1, HIDDEN_AT_A_TIME // inner.out_features)
        if self.rows <= most and factor == 1.0:
            hidden = packed.mapped(self.matrix, inner, "relu")
            self.matrix = packed.added_to(self.matrix, hidden, outer)
            return
        for rows in (self.matrix,) if self.rows <= most else self.matrix.split(most):
            hidden = packed.mapped(rows, inner, "relu")
            change = packed.mapped(hidden, outer, bias=False)
            rows.add_(outer.bias, alpha=factor).add_(change, alpha=factor)


def pays(x: Tensor, narrowest: nn.Linear, layers: Iterable[nn.Module]) -> bool:
    """Tell whether layers take tokens ``(B, T, W)`` as `Filled`.

    Parameters
    ----------
    x
        The tokens, or the greater part of them.
    narrowest
        The smallest map that they go through: as all products, it must be large enough for `products.linear` to give it to
        the faster library.
    layers
        Those that must be called as modules where hooks wait for that.
    """
    return (
        works_in_place(x)
        and x.dtype is torch.float32
        and products.pays(x, narrowest.weight)
        and not listened(layers)
    )
