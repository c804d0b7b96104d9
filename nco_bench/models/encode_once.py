"""The interface of encode-once policies: models that embed an instance once and then decode it step by step.

AM, POMO and ELG (also INViT) look at all nodes once, and at every step ask which node comes next, given where the
vehicle is and what it may still visit. Everything that depends on nodes alone is computed by ``encode``: keys and values,
but also each node's contribution to the query, and the projection after the glimpse, which is folded into the keys
of the pointer. A step gathers two rows, attends once and takes one product.

A policy is a ``torch.nn.Module`` with ``encode(nodes)`` and ``logits(encoded, state)``. B instances are decoded with P
trajectories each (samples, starts or beams) that share what was encoded.

Letters in shapes: B instances, P trajectories, N nodes (the depot first for the CVRP), D width, H heads, K head width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.models.logit_scale import LogitScale, ScaleContext

MANY_TRAJECTORIES = 32
"""From here on the fused attention kernel is faster than two products, on the CPU."""


@dataclass(frozen=True)
class RoutingNodes:
    """A batch of instances as networks see them.

    Attributes
    ----------
    coords
        ``(B, N, 2)`` coordinates; for the CVRP row 0 is the depot.
    demand
        ``(B, N)`` demand as a share of the vehicle's capacity (0 at the depot), or None for the TSP.
    """

    coords: Tensor
    demand: Tensor | None = None

    @property
    def size(self) -> int:
        """Number of nodes (TSP) or customers (CVRP)."""
        return self.coords.shape[1] - (self.demand is not None)


@dataclass(frozen=True)
class RouteState:
    """Where P trajectories of each instance stand.

    Attributes
    ----------
    first, current
        ``(B, P)`` int64: first and last node so far; None before the first move of a TSP tour.
    blocked
        ``(B, P, N)``: 0 for nodes that may come next, ``-inf`` for all others.
    room
        ``(B, P)`` capacity left as a share of the capacity, or None for the TSP.
    """

    first: Tensor | None
    current: Tensor | None
    blocked: Tensor
    room: Tensor | None = None


@runtime_checkable
class EncodeOncePolicy(Protocol):
    """A network that encodes once.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    needs_start
        True if the first node (CVRP: the first customer) is given, as POMO does, and not chosen by the policy.
    """

    problem: str
    needs_start: bool

    def encode(self, nodes: RoutingNodes) -> Any:
        """Compute all that does not change during decoding."""

    def logits(self, encoded: Any, state: RouteState) -> Tensor:
        """Return ``(B, P, N)`` unnormalised log-probabilities of the next node, ``-inf`` where it is blocked."""


@dataclass(frozen=True)
class Glimpse:
    """What a one-layer attention decoder needs of an instance, ready for use.

    Attributes
    ----------
    keys, values
        ``(B, H, N, K)`` each.
    keys_across
        ``(B, H, K, N)``: the keys again, laid out for plain products; the fused kernel is slow on that layout.
    pointer
        ``(B, D, N)`` keys of the final scores; hold the projection of the glimpse and the factor 1 / sqrt(D).
    offset
        ``(B, 1, N)`` score from the bias of that projection, or None.
    current, first
        ``(B, N, D)`` contribution of the current and the first node to the query; first is None where it has none.
    base
        ``(B, 1, D)`` part of the query that never changes, or None.
    opening
        ``(D,)`` contribution of "nothing visited yet", or None.
    room
        ``(D,)`` contribution of one unit of capacity left, or None.

    All contributions to the query hold the factor of the attention logits.
    """

    keys: Tensor
    keys_across: Tensor
    values: Tensor
    pointer: Tensor
    current: Tensor
    offset: Tensor | None = None
    first: Tensor | None = None
    base: Tensor | None = None
    opening: Tensor | None = None
    room: Tensor | None = None


def split_heads(rows: Tensor, heads: int) -> Tensor:
    """Cut ``(B, N, H K)`` into ``(B, H, N, K)``."""
    return rows.unflatten(2, (heads, -1)).transpose(1, 2).contiguous()


def pointer_scores(glimpse: Glimpse, state: RouteState) -> Tensor:
    """Attend over the nodes that are not blocked, and compare the result with all nodes.

    Returns
    -------
    Tensor
        ``(B, P, N)`` scores before clipping and without mask.
    """
    query = _query(glimpse, state)
    batch, trajectories, _ = query.shape
    heads = query.unflatten(2, (glimpse.keys.shape[1], -1)).transpose(1, 2)  # (B, H, P, K)
    blocked = state.blocked[:, None]
    if trajectories >= MANY_TRAJECTORIES or query.is_cuda:
        mixed = F.scaled_dot_product_attention(
            heads, glimpse.keys, glimpse.values, attn_mask=blocked, scale=1.0
        )
    else:
        weights = torch.matmul(heads, glimpse.keys_across).add_(blocked)
        mixed = torch.matmul(weights.softmax(dim=3), glimpse.values)
    scores = torch.bmm(mixed.transpose(1, 2).reshape(batch, trajectories, -1), glimpse.pointer)
    return scores if glimpse.offset is None else scores + glimpse.offset


def _query(glimpse: Glimpse, state: RouteState) -> Tensor:
    """Add up the contributions to the query, ``(B, P, D)``."""
    if state.current is None:
        assert glimpse.base is not None
        assert glimpse.opening is not None
        return (glimpse.base + glimpse.opening).expand(-1, state.blocked.shape[1], -1)
    query = take_nodes(glimpse.current, state.current)
    if glimpse.first is not None and state.first is not None:
        query = query + take_nodes(glimpse.first, state.first)
    if glimpse.room is not None and state.room is not None:
        query = query + state.room[..., None] * glimpse.room
    return query if glimpse.base is None else query + glimpse.base


def take_nodes(table: Tensor, nodes: Tensor) -> Tensor:
    """Pick rows of ``(B, N, E)`` at ``(B, P)`` indices, ``(B, P, E)``."""
    batch, count, width = table.shape
    flat = nodes + torch.arange(batch, device=nodes.device)[:, None] * count
    return table.reshape(batch * count, width).index_select(0, flat.flatten()).view(batch, -1, width)


def attention_scale(
    logit_scale: LogitScale, nodes: RoutingNodes, head_dim: int, training_size: int
) -> float | Tensor:
    """Return the factor of q.k in the encoder and in the glimpse: 1 / sqrt(K) times the logit scale.

    Visited nodes are masked and not removed, so the number of tokens is N at every step. The pointer has no scale.
    """
    context = ScaleContext(nodes.coords.shape[1], nodes.size, head_dim, training_size)
    return logit_scale(context) / math.sqrt(head_dim)
