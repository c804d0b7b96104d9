"""Attention over tokens that are linear in few features, without gradients: the first layer of local-view policies.

Where ``x = f E`` and ``f`` holds D features, with a 1 for the bias, the logits of a head are
``(x_i Wq)(x_j Wk)^T = (f_i B) f_j^T`` with ``B = E Wq Wk^T E^T``, and its values' map and the map behind them join to
``M = E Wv Wo``. So keys and values of all heads are f itself, and H maps of D x D and D x W stand for four of W x W.

Letters in shapes: R partial solutions, T tokens, D features, W width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

LANES = 16
"""Features are filled up with zeros to a multiple of so many, which products are quicker with (9 take thrice as long)."""


@dataclass(frozen=True)
class FewFeatures:
    """The embedding and the joined maps of a layer.

    Attributes
    ----------
    embed
        E, ``(D, W)``.
    asking
        B of all heads, ``(D, H D)``.
    mixing
        M of all heads, ``(H D, W)``.
    """

    embed: Tensor
    asking: Tensor
    mixing: Tensor

    @classmethod
    def of(
        cls, embed: Tensor, maps: tuple[Tensor, Tensor, Tensor], out: Tensor, heads: int, scale: float
    ) -> FewFeatures:
        """Join maps.

        Parameters
        ----------
        embed
            E, ``(d, W)``; rows of zeros are appended.
        maps
            Those of queries, keys and values, ``(W, H K)`` each.
        out
            The map behind the heads, ``(H K, W)``.
        heads, scale
            H, and the factor of the logits.
        """
        embed = F.pad(embed, (0, 0, 0, -len(embed) % LANES))
        query, key, value = ((embed @ one).unflatten(1, (heads, -1)).transpose(0, 1) for one in maps)
        asking = scale * query @ key.transpose(1, 2)
        mixing = value @ out.unflatten(0, (heads, -1))
        return cls(embed, asking.transpose(0, 1).flatten(1), mixing.flatten(0, 1))

    def seen(self, features: Tensor, hidden: Tensor | None, factor: float | Tensor = 1.0) -> Tensor:
        """Return the features that each head of each token sees, ``(R T, H D)``, which `mixing` is to be applied to.

        Parameters
        ----------
        features
            ``(R, T, D)``.
        hidden
            ``(R, 1, T)``, added to the logits; None for nothing.
        factor
            Of the logits, beside the scale.
        """
        rows, count, size = features.shape
        asked = features.view(-1, size) @ self.asking
        if isinstance(factor, Tensor) or factor != 1:
            asked = asked * factor
        logits = products(asked.view(rows, -1, size), features.transpose(1, 2), hidden)  # (R, T H, T)
        return torch.bmm(torch.softmax(logits, dim=2), features).view(rows * count, -1)


def products(left: Tensor, right: Tensor, hidden: Tensor | None) -> Tensor:
    """Return ``left @ right`` of batches of matrices, and the mask that is added."""
    return torch.bmm(left, right) if hidden is None else torch.baddbmm(hidden, left, right)
