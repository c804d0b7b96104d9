"""Where PENS's attention knows of positions: RoPE's phases and ALiBi's distances, without a matrix of all of them.

Letters in shapes: B batch, Q queries, T tokens, H heads, K head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.device import PerDevice, on_cpu
from nco_bench.nn.layers import as_products, dot_products

BIAS_BLOCK_BYTES = PerDevice(cpu=64 * 2**20, gpu=2**32)
"""Memory of the largest block of attention biases; blocks are cut along the queries. Biases that need no more are kept from
layer to layer."""
HEAD_BLOCK_BYTES, HEAD_ROWS = 16 * 2**20, 512
"""Memory and queries of the largest block of one head's biases, where heads go one by one."""
ALIGNED = 8
"""Rows of a bias begin at multiples of so many numbers, or PyTorch's kernels for accelerators copy it in every layer."""


@dataclass(frozen=True)
class Geometry:
    """What the attention layers know of positions, the same for all layers of one step.

    Attributes
    ----------
    coords
        ``(B, T, 2)``.
    slopes
        ``(H,)`` ALiBi slopes, or None.
    cos, sin
        ``(B, 1, T, K / 2)`` RoPE phases, or None.
    bias
        ``(B, H, T, T)``, minus slopes times distances, where T is so small that it is kept for all layers, else None.
    flex
        Let FlexAttention compute the distances.
    real
        ``(1, 1, 1, T)`` bool: no padding; None if there is none.
    compiled
        Attention is `compiled_attention`'s, with gradients `attention_training`'s.
    """

    coords: Tensor
    slopes: Tensor | None = None
    cos: Tensor | None = None
    sin: Tensor | None = None
    bias: Tensor | None = None
    flex: bool = False
    real: Tensor | None = None
    compiled: bool = False


def rotate(x: Tensor, geometry: Geometry) -> Tensor:
    """Rotate pairs of channels ``(i, i + K/2)`` of queries or keys, ``(B, H, T, K)``, by the RoPE phases."""
    if geometry.cos is None or geometry.sin is None:
        return x
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * geometry.cos - b * geometry.sin, a * geometry.sin + b * geometry.cos], dim=-1)


def distances(points: Tensor, others: Tensor) -> Tensor:
    """Euclidean distances, ``(B, Q, 2)`` and ``(B, T, 2)`` to ``(B, Q, T)``; subtracts, so near points stay apart."""
    if on_cpu(points.device):
        return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
    # CUDA's kernel for it has a block of threads for each distance, of two numbers here.
    across, up = (points[:, :, None] - others[:, None]).unbind(3)
    return (across * across + up * up).sqrt()


def biases(near: Tensor, slopes: Tensor) -> Tensor:
    """Return what ALiBi adds to the logits, ``(B, Q, T)`` and ``(H,)`` to ``(B, H, Q, T)``."""
    return near[:, None] * -slopes[:, None, None]


def kept_biases(near: Tensor, slopes: Tensor) -> Tensor:
    """Return `biases` as all layers take them, in the precision of their products and laid out for their kernels."""
    if on_cpu(near.device):
        return biases(near, slopes)
    tokens = near.shape[2]
    return as_products(biases(F.pad(near, (0, -tokens % ALIGNED)), slopes))[..., :tokens]


def attend_with_distances(
    query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, geometry: Geometry, scale: float
) -> Tensor:
    """Attention with logits ``scale q.k - m_h D``, in blocks of queries: no N x N bias is ever stored.

    Parameters
    ----------
    query, key, value
        ``(B, H, T, K)``.
    slopes
        ``(H,)``, the m_h.
    geometry
        Coordinates ``(B, T, 2)``, or the bias where it is kept.
    scale
        Factor of the content logits.
    """
    if geometry.flex:
        from nco_bench.solvers.path import pens_flex as flex_distances  # its import takes a second

        return flex_distances.attend(query, key, value, slopes, geometry.coords, scale, geometry.real)
    if geometry.bias is not None:
        return dot_products(query, key, value, geometry.bias, scale)
    if on_cpu(query.device) and not torch.is_grad_enabled():
        return _head_by_head(query, key, value, slopes, geometry, scale)
    batch, heads, tokens, _ = query.shape
    rows = max(1, BIAS_BLOCK_BYTES.on(query.device) // (batch * heads * tokens * query.element_size()))
    blocks = []
    for start in range(0, tokens, rows):
        block = slice(start, start + rows)
        bias = biases(distances(geometry.coords[:, block], geometry.coords), slopes)
        if geometry.real is not None:
            bias = bias.masked_fill(~geometry.real, -torch.inf)
        blocks.append(dot_products(query[:, :, block], key, value, bias, scale))
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=2)


def _head_by_head(
    query: Tensor, key: Tensor, value: Tensor, slopes: Tensor, geometry: Geometry, scale: float
) -> Tensor:
    """As `attend_with_distances`, on the CPU, without gradients: a head's biases are read while they are in the cache.

    Those of all heads would be written to memory and read from there: that took twice as long from 1,000 tokens on.
    """
    batch, _, tokens, _ = query.shape
    rows = min(HEAD_ROWS, max(1, HEAD_BLOCK_BYTES // (batch * tokens * geometry.coords.element_size())))
    mixed = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format)
    room = geometry.coords.new_empty(batch * rows * tokens)
    for start in range(0, tokens, rows):
        block = slice(start, start + rows)
        near = distances(geometry.coords[:, block], geometry.coords)[:, None]
        bias = room[: near.numel()].view_as(near)
        for head, slope in enumerate(slopes.tolist()):
            one = slice(head, head + 1)
            torch.mul(near, -slope, out=bias)
            if geometry.real is not None:
                bias.masked_fill_(~geometry.real, -torch.inf)
            found = dot_products(query[:, one, block], key[:, one], value[:, one], bias, scale)
            mixed[:, block, head] = found[:, 0]
    return mixed.transpose(1, 2)
