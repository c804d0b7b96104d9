"""DGL's steps without gradients on the CPU: the encoder's layer by `few_features`, since its tokens are linear in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.solvers.stepwise.dgl import Dgl, Layer
from nco_bench.solvers.stepwise.few_features import FewFeatures


class QuickDgl(Dgl):
    """A DGL as it is now; weights that change later are not seen in full.

    Parameters
    ----------
    policy
        The network, whose parts it takes.
    """

    def __init__(self, policy: Dgl) -> None:
        nn.Module.__init__(self)
        vars(self).update(vars(policy))
        first, embedding = cast("Layer", policy.encoder[0]).attention, policy.embedding
        self.few = FewFeatures.of(
            torch.cat([embedding.weight.T, embedding.bias[None]]),
            cast("tuple[Tensor, Tensor, Tensor]", first.qkv.weight.T.chunk(3, dim=1)),
            first.out.weight.T,
            first.heads,
            first.head_dim**-0.5,
        )

    def encoded(
        self, inputs: Tensor, scale: float | Tensor, groups: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Encode the neighbourhood, as `Dgl.encoded` does."""
        if groups is not None:
            return super().encoded(inputs, scale, groups)
        rows, tokens, size = inputs.shape
        features = inputs.new_zeros(rows, tokens, len(self.few.embed))
        features[..., :size] = inputs
        features[..., size] = 1
        x = features.view(rows * tokens, -1) @ self.few.embed
        layer = cast("Layer", self.encoder[0])
        x.add_(layer.attention.out.bias).addmm_(self.few.seen(features, None, scale), self.few.mixing)
        x = layer.feed_forward.added(x.view(rows, tokens, -1))
        for layer in cast("list[Layer]", list(self.encoder)[1:]):
            x = layer(x, scale)
        return x
