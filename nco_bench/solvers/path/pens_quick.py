"""PENS without gradients on the CPU in fewer calls: where few tokens are left, calls cost most.

The integers that node vectors are drawn from take one compiled pass.

Tokens stay in a matrix whose rows are filled up once for all layers; residuals and norms take one compiled pass.

Letters in shapes: B batch, T tokens, W width, M rows of the matrix, B T or some more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.nn.compiled import F32, Array, added_and_normed, exact, root_mean_square_normed
from nco_bench.nn.products import add_product, added, filled, linear, rectified
from nco_bench.solvers.path.pens import ROWS_AT_A_TIME, Layer, epsilon
from nco_bench.solvers.path.pens_geometry import Geometry


@exact
def _mixed(x: np.int64) -> np.int64:
    """Return what `pens_vectors.mix` does."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31 & 0x1FFFFFFFF)


@exact
def _draw(keys: NDArray[np.int64], step: int, uniform: Array, angle: Array) -> None:
    """Write numbers from 0 to 1 and angles, ``(R, W / 2)`` each, for keys ``(R,)``."""
    count = uniform.shape[1]
    counters = np.empty(count, np.int64)
    for i in range(count):
        counters[i] = _mixed(np.int64(i) * 0x1F3D5B79 + np.int64(step) * 0x2545F491)
    for r in range(len(keys)):
        key, to, turned = keys[r], uniform[r], angle[r]
        for i in range(count):
            mixed = _mixed(key ^ counters[i])
            to[i] = (F32(mixed >> 33 & 0x7FFFFFFF) + F32(0.5)) * F32(2.0**-31)
            turned[i] = F32(mixed & 0xFFFFFFFF) * F32(2 * math.pi * 2.0**-32)


def gaussian_vectors(keys: Tensor, step: int, width: int) -> Tensor:
    """Return what `pens_vectors.gaussian_vectors` does; its integers pass once through the processor, not a dozen times."""
    uniform = torch.empty(keys.numel(), width // 2)
    made = torch.empty(*keys.shape, width)
    angle = torch.empty_like(uniform)
    _draw(keys.reshape(-1).numpy(), step, uniform.numpy(), angle.numpy())
    radius = uniform.log_().mul_(-2).sqrt_()
    rows = made.view(-1, width)
    torch.mul(radius, angle.cos(), out=rows[:, : width // 2])
    torch.mul(radius, angle.sin_(), out=rows[:, width // 2 :])
    return made


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
