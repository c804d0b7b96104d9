"""A layer of GLOP's partition network on the CPU, without gradients: a product with weights, one compiled pass over edges.

Letters in shapes: N nodes, n of them, k edges of each, U units.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.compiled import F32, fast, sigmoid
from nco_bench.nn.layers import works_in_place
from nco_bench.nn.products import linear
from nco_bench.nn.threads import in_threads

if TYPE_CHECKING:
    from nco_bench.solvers.divide.glop_partition import GraphLayer

Array = NDArray[np.float32]

ENTRIES_AT_A_TIME = 2**18
"""Floats of the edges of a block: they fit a processor's cache."""


def compiled_for(x: Tensor, norm: nn.BatchNorm1d) -> bool:
    """Tell whether `quick_layer` is for these nodes: float32 on the CPU, without gradients, with known statistics."""
    return works_in_place(x) and x.dtype == torch.float32 and not norm.training


def quick_layer(layer: GraphLayer, x: Tensor, edges: list[Tensor], neighbours: list[Tensor]) -> Tensor:
    """Do what `GraphLayer.forward` does; return the nodes, blocks of edges ``(n, k, U)`` are changed in place."""
    first = np.cumsum([0, *map(len, edges)]).tolist()
    scale, shift = _affine(layer.edge_norm)
    known = (
        layer.source(x).add_(layer.edge.bias).numpy(),
        layer.target(x).numpy(),
        layer.other(x).numpy(),
        scale.numpy(),
        shift.numpy(),
    )
    means = torch.empty_like(x)

    def work(index: int, _: threading.Event) -> None:
        block = edges[index]
        mapped = linear(block.view(-1, block.shape[2]), layer.edge.weight).view_as(block)
        to = neighbours[index].contiguous().numpy()
        _pass(block.numpy(), mapped.numpy(), to, first[index], *known, means.numpy())

    in_threads(work, range(len(edges)))
    return x + F.silu(layer.node_norm(layer.own(x) + means))


def _affine(norm: nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    """Return the map that a batch norm is when its statistics are known: a factor and a summand per unit."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return scale, norm.bias - norm.running_mean * scale


@fast
def _pass(
    edges: Array, mapped: Array, to: NDArray[np.int64], first: int, source: Array, target: Array, other: Array,
    scale: Array, shift: Array, means: Array,
) -> None:  # fmt: skip
    """Update the edges of some nodes, from the `first` on, and write the means that these nodes hear.

    Parameters
    ----------
    edges, mapped
        ``(n, k, U)``: old edges, which are changed, and their map.
    to
        ``(n, k)`` where they lead.
    source, target, other
        ``(N, U)`` maps of the nodes.
    scale, shift
        ``(U,)`` of the norm.
    means
        ``(N, U)``.
    """
    count, degree, units = edges.shape
    share = F32(1.0) / F32(degree)
    for row in range(count):
        own, mean = source[first + row], means[first + row]
        mean[:] = F32(0.0)
        for edge in range(degree):
            end = to[row, edge]
            old, new, heard, theirs = edges[row, edge], mapped[row, edge], other[end], target[end]
            for u in range(units):
                mean[u] += sigmoid(old[u]) * heard[u]
            for u in range(units):
                inner = (new[u] + own[u] + theirs[u]) * scale[u] + shift[u]
                old[u] += inner * sigmoid(inner)
        for u in range(units):
            mean[u] *= share
