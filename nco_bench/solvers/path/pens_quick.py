"""The layers of PENS without gradients on the CPU, in fewer calls: where few tokens are left, calls cost most.

Tokens stay in a matrix whose rows are filled up once for all layers; residuals and norms take one compiled pass.

Letters in shapes: B batch, T tokens, W width, M rows of the matrix, B T or some more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from nco_bench.nn.compiled import F32, Array, added_and_normed, root_mean_square_normed
from nco_bench.nn.products import add_product, added, filled, linear, rectified
from nco_bench.solvers.path.pens import ROWS_AT_A_TIME, Layer, epsilon
from nco_bench.solvers.path.pens_geometry import Geometry


def through(layers: Iterable[Layer], x: Tensor, geometry: Geometry, scale: float | Tensor) -> Tensor:
    """Transform tokens by all layers.

    Parameters
    ----------
    layers
        In float32, on the CPU.
    x
        ``(B, T, W)``.
    geometry, scale
        As a layer takes them.

    Returns
    -------
    Tensor
        ``(B, T, W)``.
    """
    batch, tokens, width = x.shape
    rows = batch * tokens
    total = filled(x)
    normed = torch.empty_like(total)
    normed[rows:].zero_()
    normed_rows = normed.numpy()
    for layer in layers:
        attention = layer.attention
        root_mean_square_normed(total[:rows].numpy(), *_norm(layer.attention_norm), normed_rows)
        joined = linear(normed, attention.qkv.weight)[:rows].view(batch, tokens, -1)
        change = attention.mixed(joined, geometry, scale).view(rows, width)
        total = _fed_forward(layer, total, change, normed, normed_rows)
    return total[:rows].view(x.shape)


def _fed_forward(layer: Layer, total: Tensor, change: Tensor, normed: Tensor, normed_rows: Array) -> Tensor:
    """Add what attention has changed ``(B T, W)`` and what the feed-forward block makes of that, ``(M, W)``."""
    weights = layer.ffn_in.weight, layer.ffn_out.weight
    added_and_normed(total[: len(change)].numpy(), change.numpy(), *_norm(layer.ffn_norm), normed_rows)
    if len(total) <= ROWS_AT_A_TIME:
        return added(total, rectified(normed, weights[0]), weights[1], None)
    for rows, inputs in zip(total.split(ROWS_AT_A_TIME), normed.split(ROWS_AT_A_TIME), strict=True):
        add_product(rows, rectified(inputs, weights[0]), weights[1])
    return total


def _norm(norm: nn.RMSNorm) -> tuple[Array, np.float32]:
    """Return a norm's weight and what it adds to the mean square."""
    return cast("Array", norm.weight.detach().numpy()), F32(epsilon(norm, torch.float32))
