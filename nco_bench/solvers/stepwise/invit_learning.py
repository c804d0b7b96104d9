"""A layer of INViT's encoders for training on the CPU: the products that `invit_quick` saves, with gradients.

Maps are joined once per update, so that gradients reach the weights through few products of small matrices. Keys and values
of the first layer are features, which need no gradients.

Letters in shapes: R partial solutions, T tokens, D features, W width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.layers import side_by_side, split_parts
from nco_bench.nn.products import linear
from nco_bench.solvers.stepwise.invit_quick import scale_of
from nco_bench.solvers.stepwise.invit_views import Layer


class LearningLayer:
    """A layer whose weights are learned; see `nco_bench.solvers.stepwise.invit_quick.EncoderLayer`."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer

    def map(self, weight: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the product with a weight."""
        return partial(linear, weight=weight)

    def __call__(self, x: Tensor, hidden: Tensor | None, wanted: int) -> Tensor:
        """Transform tokens ``(R, T, W)``; only the first `wanted` are returned."""
        layer = self.layer
        keys, values = split_parts(layer.keys_values(x), 2, layer.heads)
        if wanted < x.shape[1]:
            x = x[:, :wanted].contiguous()
        (queries,) = split_parts(layer.query(x), 1, layer.heads)
        mask = None if hidden is None else hidden[:, None]
        heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale_of(layer))
        return self.rest(x, layer.out(side_by_side(heads)) + x)

    def rest(self, x: Tensor, mixed: Tensor) -> Tensor:
        """Do what follows attention, of ``(..., W)``."""
        return self.layer.rest(x, mixed)
