"""DIFUSCO's layer on the CPU, without gradients: two products with weights, and one compiled pass over the edges between.

Torch would go over all edges a dozen times, once for each sum, norm and activation.
Letters in shapes: B graphs, N nodes, R of them, K edges per node, W width.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.compiled import F32, Array, aligned, fast, sigmoid
from nco_bench.nn.layers import works_in_place
from nco_bench.nn.products import linear, product
from nco_bench.nn.threads import in_threads

if TYPE_CHECKING:
    from nco_bench.solvers.edges.difusco import AnisotropicLayer, EdgeGraph


def compiled_for(h: Tensor) -> bool:
    """Tell whether `quick_layer` is for these nodes: float32 on the CPU, without gradients or autocast."""
    return works_in_place(h) and h.dtype == torch.float32


def quick_layer(
    layer: AnisotropicLayer, h: Tensor, edges: list[Tensor], moment: Tensor, graph: EdgeGraph
) -> Tensor:
    """Do what `AnisotropicLayer.forward` does; blocks are changed in place, in as many threads as torch would use.

    Parameters
    ----------
    layer, h, edges, graph
        As there.
    moment
        ``(B, 1 or N, W)``, what the layer adds to the edges for the time.
    """
    first = np.cumsum([0, *(block.shape[1] for block in edges)]).tolist()
    gathered = torch.empty_like(h)
    heard = layer.B(h).add_(layer.C.bias).numpy()
    known = (heard, layer.A(h).numpy(), layer.V(h).numpy(), moment.contiguous().numpy())
    ends = np.empty((0, 0, 0), np.int64) if graph.neighbours is None else graph.neighbours.numpy()
    norms = (*_arrays(layer.norm_e), *_arrays(layer.norm_out), layer.out.bias.detach().numpy())
    room = _Room(edges[0])

    def work(index: int, _: threading.Event) -> None:
        block = edges[index]
        flat = block.view(-1, block.shape[3])
        new = product(flat, layer.C.weight, room.rows[: len(flat)], again=True)
        _pass(new.view_as(block).numpy(), block.numpy(), first[index], *known, ends, *norms, gathered.numpy())
        flat.add_(linear(new, layer.out.weight, again=True))

    in_threads(work, range(len(edges)))
    return h + F.relu(layer.norm_h(layer.U(h) + gathered))


class _Room(threading.local):
    """Where a thread puts what the first map makes of a block: new memory for each would come page by page."""

    def __init__(self, largest: Tensor) -> None:
        self.rows = torch.empty_like(largest).view(-1, largest.shape[-1])


def _arrays(norm: nn.LayerNorm) -> tuple[Array, Array, np.float32]:
    return norm.weight.detach().numpy(), norm.bias.detach().numpy(), F32(norm.eps)


@fast
def _pass(
    block: Array, edges: Array, first: int, heard: Array, sent: Array, values: Array, moment: Array,
    ends: NDArray[np.int64], weight_e: Array, bias_e: Array, eps_e: np.float32, weight_out: Array, bias_out: Array,
    eps_out: np.float32, bias: Array, gathered: Array,
) -> None:  # fmt: skip
    """Turn ``C e`` of the edges of some nodes, from the `first` on, into what the last map is given.

    Parameters
    ----------
    block
        ``(B, R, K, W)``, changed in place.
    edges
        Of the same shape: `bias`, of the last map, is added.
    heard, sent, values
        ``(B, N, W)``, what the layer adds to an edge for its own and its other end, and what its gate lets through.
    moment
        ``(B, 1 or N, W)``.
    ends
        ``(B, N, K)`` other ends, or empty: all nodes.
    gathered
        ``(B, N, W)``: the rows of these nodes are written.
    """
    row_of_sums = aligned(block.shape[3])
    for graph in range(block.shape[0]):
        for row in range(block.shape[1]):
            node = first + row
            own, total = heard[graph, node], gathered[graph, node]
            then = moment[graph, min(node, moment.shape[1] - 1)]
            total[:] = F32(0.0)
            for k in range(block.shape[2]):
                end = ends[graph, node, k] if ends.size else k
                x = block[graph, row, k]
                mean = gated(x, own, sent[graph, end], values[graph, end], total)
                activated(
                    x, mean, then, weight_e, bias_e, eps_e, weight_out, bias_out, eps_out, row_of_sums, x
                )
                e = edges[graph, row, k]
                for w in range(len(e)):
                    e[w] += bias[w]


# In loops of few arrays: for each pair of these the compiler has to ask whether they overlap, and gives up beyond eight.


@fast
def gated(x: Array, own: Array, told: Array, value: Array, total: Array) -> np.float32:
    """Complete an edge, add what its gate lets through to `total`, and return the mean of the edge."""
    mean = F32(0.0)
    for w in range(len(x)):
        x[w] += own[w] + told[w]
        mean += x[w]
        total[w] += sigmoid(x[w]) * value[w]
    return mean / F32(len(x))


@fast
def activated(
    x: Array, mean: np.float32, then: Array, weight_e: Array, bias_e: Array, eps_e: np.float32, weight_out: Array,
    bias_out: Array, eps_out: np.float32, inner: Array, out: Array,
) -> None:  # fmt: skip
    """Write to `out` what the last map is given: two norms and two activations of an edge. `inner` is room for a row."""
    factor, again = deviation(x, mean, eps_e), F32(0.0)
    for w in range(len(x)):
        inner[w] = max((x[w] - mean) * factor * weight_e[w] + bias_e[w], F32(0.0)) + then[w]
        again += inner[w]
    again /= F32(len(x))
    factor = deviation(inner, again, eps_out)
    for w in range(len(inner)):
        y = (inner[w] - again) * factor * weight_out[w] + bias_out[w]
        out[w] = y * sigmoid(y)


@fast
def deviation(row: Array, mean: np.float32, eps: np.float32) -> np.float32:
    """Return one over the standard deviation of a row with this mean."""
    square = F32(0.0)
    for w in range(len(row)):
        square += (row[w] - mean) * (row[w] - mean)
    return F32(1.0) / np.sqrt(square / F32(len(row)) + eps)
