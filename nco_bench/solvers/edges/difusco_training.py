"""DIFUSCO's layer on the CPU with gradients: products with weights, and a compiled pass over the edges in either direction.

Automatic differentiation goes over all edges some thirty times, once for each sum, norm and activation and for each of their
derivatives, and keeps ten tensors of them. Here the edges that go in and what the first map made of them are kept; the rest
is computed again on the way back, a few nodes' edges at a time, so that it stays in the processor's cache.

Letters in shapes: B graphs, N nodes, G = B N nodes of all graphs, K edges per node, W width.
"""

from __future__ import annotations

import threading
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nco_bench.nn.compiled import F32, Array, aligned, fast, sigmoid
from nco_bench.nn.device import on_cpu
from nco_bench.nn.products import add_product, linear
from nco_bench.nn.threads import in_threads, spans
from nco_bench.solvers.edges.difusco_quick import activated, deviation, gated

if TYPE_CHECKING:
    from nco_bench.solvers.edges.difusco import AnisotropicLayer, EdgeGraph

ENTRIES_AT_A_TIME = 2**18
"""Floats of the edges worked on together."""
PARTS = 2
"""Shares of the nodes, each with sums of its own: what is added up is the same with any number of threads."""


def compiled_training_for(h: Tensor) -> bool:
    """Tell whether `trained_layer` is for these nodes: float32 on the CPU, with gradients, without autocast."""
    plain = h.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return on_cpu(h.device) and torch.is_grad_enabled() and plain


def trained_layer(
    layer: AnisotropicLayer, h: Tensor, edges: Tensor, moment: Tensor, graph: EdgeGraph
) -> tuple[Tensor, Tensor]:
    """Do what `AnisotropicLayer.forward` does; return new nodes ``(B, N, W)`` and new edges ``(B, N, K, W)``.

    Parameters
    ----------
    layer, h, graph
        As there.
    edges
        ``(B, N, K, W)``, all of them.
    moment
        ``(B, 1 or N, W)``, what the layer adds to the edges for the time.
    """
    known = (layer.B(h) + layer.C.bias, layer.A(h), layer.V(h), moment)
    norms = (layer.norm_e.weight, layer.norm_e.bias, layer.norm_out.weight, layer.norm_out.bias)
    maps = (layer.C.weight, layer.out.weight, layer.out.bias)
    settings = (graph.neighbours, float(layer.norm_e.eps), float(layer.norm_out.eps))
    new, gathered = _Edges.apply(edges, *known, *norms, *maps, *settings)
    return h + F.relu(layer.norm_h(layer.U(h) + gathered)), new


class _Edges(torch.autograd.Function):
    """From the edges and what nodes tell them to new edges and to what nodes hear from their neighbours."""

    @staticmethod
    def forward(
        ctx: Any, edges: Tensor, heard: Tensor, sent: Tensor, values: Tensor, moment: Tensor, *rest: Any
    ) -> Any:
        """Return the new edges ``(B, N, K, W)`` and what was gathered, ``(B, N, W)``."""
        *norms, into, past, bias, neighbours, eps_e, eps_out = rest
        edges = edges.contiguous()
        told = [t.contiguous() for t in (heard, sent, values, moment)]
        ends = np.empty((0, 0, 0), np.int64) if neighbours is None else neighbours.numpy()
        new = torch.empty_like(edges)
        gathered = torch.empty_like(told[0])
        constants = (
            *(t.numpy() for t in told),
            ends,
            *(t.detach().numpy() for t in norms),
            F32(eps_e),
            F32(eps_out),
        )
        flat, width = [t.flatten(0, 1) for t in (edges, new)], edges.shape[3]

        def work(share: slice, _: threading.Event) -> list[Tensor]:
            pre = []
            for nodes in _blocks(share, edges):
                before, after = (t[nodes].view(-1, width) for t in flat)
                made = linear(before, into.detach(), again=True)
                hidden = torch.empty_like(made)
                blocks = (t.view(-1, *edges.shape[2:]).numpy() for t in (made, hidden))
                _forwards(*blocks, nodes.start, *constants, gathered.numpy())
                torch.add(before, linear(hidden, past.detach(), bias.detach(), again=True), out=after)
                pre.append(made)
            return pre

        pre = in_threads(work, spans(edges.shape[0] * edges.shape[1], PARTS))
        ctx.save_for_backward(edges, *told, *norms, into, past, *chain.from_iterable(pre))
        ctx.ends, ctx.eps = ends, (F32(eps_e), F32(eps_out))
        return new, gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        """Return the derivatives by all tensors that `forward` was given."""
        edges, *saved = ctx.saved_tensors
        told, norms, (into, past), pre = saved[:4], saved[4:8], saved[8:10], saved[10:]
        new, gathered = (t.contiguous() for t in outer)
        constants = (*(t.numpy() for t in told), ctx.ends, *(t.detach().numpy() for t in norms), *ctx.eps)
        through, width = torch.empty_like(edges), edges.shape[3]
        flat = [t.flatten(0, 1) for t in (edges, new, through)]
        hear, shares = gathered.numpy(), spans(edges.shape[0] * edges.shape[1], PARTS)
        first = [nodes.start for share in shares for nodes in _blocks(share, edges)]
        kept_of = dict(zip(first, pre, strict=True))

        def work(share: slice, _: threading.Event) -> list[Tensor]:
            sums = [torch.zeros_like(t) for t in (*told, *norms, into, past, past[0])]
            arrays = [t.numpy() for t in sums[:8]]
            for nodes in _blocks(share, edges):
                before, after, back = (t[nodes].view(-1, width) for t in flat)
                kept = kept_of[nodes.start]
                change = linear(after, past.T, again=True)
                hidden = torch.empty_like(change)
                blocks = (t.view(-1, *edges.shape[2:]).numpy() for t in (kept, change, hidden))
                _backwards(*blocks, nodes.start, *constants, hear, *arrays)
                torch.add(after, linear(change, into.T, again=True), out=back)
                add_product(sums[8], change.T, before.T)
                add_product(sums[9], after.T, hidden.T)
                sums[10].add_(after.sum(0))
            return sums

        parts = in_threads(work, shares)
        totals = parts[0]
        for part in parts[1:]:
            for sum_, more in zip(totals, part, strict=True):
                sum_.add_(more)
        return through, *totals, None, None, None


def _blocks(share: slice, edges: Tensor) -> list[slice]:
    """Cut a share into nodes whose edges are worked on together."""
    step = max(1, ENTRIES_AT_A_TIME // (edges.shape[2] * edges.shape[3]))
    return [slice(first, min(first + step, share.stop)) for first in range(share.start, share.stop, step)]


@fast
def _forwards(
    pre: Array, hidden: Array, first: int, heard: Array, sent: Array, values: Array, moment: Array,
    ends: NDArray[np.int64], weight_e: Array, bias_e: Array, weight_out: Array, bias_out: Array, eps_e: np.float32,
    eps_out: np.float32, gathered: Array,
) -> None:  # fmt: skip
    """Complete ``C e`` of the edges of some nodes in `pre`, ``(G', K, W)``; write what the last map is given to `hidden`.

    `heard`, `sent`, `values`, `moment` and `ends` are those of `difusco_quick._pass`; `gathered` ``(B, N, W)`` is written.
    """
    size, room = heard.shape[1], aligned(pre.shape[2])
    for place in range(pre.shape[0]):
        graph, node = divmod(first + place, size)
        own, total = heard[graph, node], gathered[graph, node]
        then = moment[graph, min(node, moment.shape[1] - 1)]
        total[:] = F32(0.0)
        for k in range(pre.shape[1]):
            end = ends[graph, node, k] if ends.size else k
            p, x = pre[place, k], hidden[place, k]
            mean = gated(p, own, sent[graph, end], values[graph, end], total)
            activated(p, mean, then, weight_e, bias_e, eps_e, weight_out, bias_out, eps_out, room, x)


@fast
def _backwards(
    pre: Array, change: Array, hidden: Array, first: int, heard: Array, sent: Array, values: Array, moment: Array,
    ends: NDArray[np.int64], weight_e: Array, bias_e: Array, weight_out: Array, bias_out: Array, eps_e: np.float32,
    eps_out: np.float32, gathered: Array, of_heard: Array, of_sent: Array, of_values: Array, of_moment: Array,
    of_weight_e: Array, of_bias_e: Array, of_weight_out: Array, of_bias_out: Array,
) -> None:  # fmt: skip
    """Turn the derivatives by what the last map is given into those by the completed ``C e``, in `change` ``(G', K, W)``.

    Parameters
    ----------
    pre
        ``(G', K, W)``, as `_forwards` completed it.
    hidden
        Of the same shape: what the last map was given is written once more.
    gathered
        ``(B, N, W)``, derivatives by what nodes heard.
    of_heard, of_sent, of_values, of_moment, of_weight_e, of_bias_e, of_weight_out, of_bias_out
        Sums that derivatives are added to.
    """
    size, width = heard.shape[1], pre.shape[2]
    inner, outer = aligned(width), aligned(width)  # both norms' results before weight and bias
    for place in range(pre.shape[0]):
        graph, node = divmod(first + place, size)
        hear, moved = gathered[graph, node], min(node, moment.shape[1] - 1)
        then, of_then, of_own = moment[graph, moved], of_moment[graph, moved], of_heard[graph, node]
        for k in range(pre.shape[1]):
            end = ends[graph, node, k] if ends.size else k
            p, d, x = pre[place, k], change[place, k], hidden[place, k]
            factor_e = _standardised(p, inner, eps_e)
            for w in range(width):
                x[w] = max(inner[w] * weight_e[w] + bias_e[w], F32(0.0)) + then[w]
            factor_out = _standardised(x, outer, eps_out)
            for w in range(width):
                y = outer[w] * weight_out[w] + bias_out[w]
                s = sigmoid(y)
                x[w] = y * s
                d[w] *= s * (F32(1.0) + y * (F32(1.0) - s))
            _through_norm(d, outer, weight_out, factor_out, of_weight_out, of_bias_out)
            for w in range(width):
                of_then[w] += d[w]
                d[w] = d[w] if inner[w] * weight_e[w] + bias_e[w] > F32(0.0) else F32(0.0)
            _through_norm(d, inner, weight_e, factor_e, of_weight_e, of_bias_e)
            value, of_value, of_told = values[graph, end], of_values[graph, end], of_sent[graph, end]
            for w in range(width):
                s = sigmoid(p[w])
                of_value[w] += s * hear[w]
                d[w] += hear[w] * value[w] * s * (F32(1.0) - s)
            for w in range(width):
                of_own[w] += d[w]
                of_told[w] += d[w]


@fast
def _standardised(row: Array, out: Array, eps: np.float32) -> np.float32:
    """Write a row less its mean over its deviation to `out`; return one over the deviation."""
    mean = F32(0.0)
    for w in range(len(row)):
        mean += row[w]
    mean /= F32(len(row))
    factor = deviation(row, mean, eps)
    for w in range(len(row)):
        out[w] = (row[w] - mean) * factor
    return factor


@fast
def _through_norm(
    d: Array, standard: Array, weight: Array, factor: np.float32, of_weight: Array, of_bias: Array
) -> None:
    """Turn derivatives by a norm's result into those by its input, in place; add those by its weight and bias."""
    mean = along = F32(0.0)
    # Loops of few arrays: for each pair of these the compiler has to ask whether they overlap, and gives up beyond eight.
    for w in range(len(d)):
        of_weight[w] += d[w] * standard[w]
        of_bias[w] += d[w]
        mean += d[w] * weight[w]
        along += d[w] * weight[w] * standard[w]
    mean, along = mean / F32(len(d)), along / F32(len(d))
    for w in range(len(d)):
        d[w] = factor * (d[w] * weight[w] - mean - standard[w] * along)
