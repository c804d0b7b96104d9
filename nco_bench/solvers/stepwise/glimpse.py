"""One attention from a context over all nodes, then clipped scores: the decoder of AM, POMO, ELG and H-TSP, made fast.

Everything that depends on nodes alone is computed once: keys and values, but also each node's contribution to the query,
and the projection after the glimpse, which is folded into the keys of the pointer. A step gathers two rows, attends once
and takes one product. For many tours at once even the exponentials of the attention are taken beforehand (`factored`).
What is computed is what `nco_bench.solvers.stepwise.am.Am.step` writes as the paper does.

Letters in shapes: B instances, P trajectories, N nodes (the depot first for the CVRP), D width, H heads, K head width.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.device import fused_attention, on_cpu
from nco_bench.nn.logit_scale import LogitScale, ScaleContext
from nco_bench.nn.products import each_linear
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes, take

KERNELS = importlib.util.find_spec("numba") is not None
"""Whether compiled loops are to be had."""

MANY_TRAJECTORIES = 32
"""From here on the fused attention kernel is faster than two products, on the CPU."""

FACTORED_NODES = 512
"""Up to this many nodes attention weights of all pairs of nodes are worth their memory."""

STATES_OF_EACH = 4
"""So many states of each node, and their logits are had faster from all pairs of nodes, on the CPU."""

SAFE_SUM = 1e-30
"""Below this sum of float32 attention weights some of the terms may have been lost to underflow."""


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
    factors
        Attention weights that are ready for one roll-out, see `factored`; or None.
    clip
        Half range of the logits where these are the pointer's scores and nothing else, see
        `nco_bench.solvers.stepwise.rollout`; or None.

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
    factors: Factors | None = None
    clip: float | None = None


@dataclass(frozen=True)
class Factors:
    """Attention weights of tours as products: exp((f + c) . k) = exp(f . k) exp(c . k).

    The first node of a trajectory never changes and the current one is one of N, so all exponentials are taken once.
    A step picks rows, multiplies, and is left with no product of queries and keys, no exponential and no mask.

    Attributes
    ----------
    current
        ``(B H N, N)``: exp(c . k) of all pairs, each row divided by its largest.
    first
        ``(B, H, P, N)``: exp(f . k) likewise, the constant part of the query included; 0 for visited nodes. Changed in
        place by every step, so it serves one roll-out, whose steps come in order.
    rows
        ``(B, H, 1)``: where the rows of an instance and head begin in `current`.
    entries
        ``(B, H, P)``: where the row of a trajectory begins in `first`, flattened.
    """

    current: Tensor
    first: Tensor
    rows: Tensor
    entries: Tensor


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
    mixed = None if glimpse.factors is None else _mixed_by_factors(glimpse, glimpse.factors, state)
    if mixed is None:
        mixed = _mixed(glimpse, state)
    if many_states(glimpse, state):
        scores = each_linear(mixed, glimpse.pointer.transpose(1, 2))
        return scores if glimpse.offset is None else scores.add_(glimpse.offset)
    if glimpse.offset is None:
        return torch.bmm(mixed, glimpse.pointer)
    return torch.baddbmm(glimpse.offset, mixed, glimpse.pointer)


def clipped(scores: Tensor, state: RouteState, clip: float) -> Tensor:
    """Return ``clip * tanh(scores)``, ``-inf`` where blocked, in the memory of `scores` where no gradient is recorded."""
    if torch.is_grad_enabled():
        return torch.add(state.blocked, scores.tanh(), alpha=clip)
    scores = scores.tanh_()
    return torch.add(state.blocked, scores, alpha=clip, out=scores)


def pair_logits(glimpse: Glimpse, filled: int) -> tuple[Tensor, Tensor]:
    """Take the logits of attention for all pairs of nodes; those of a trajectory are the sum of one row of either table.

    Each row is less its largest logit, a constant that changes no softmax, and is filled up with so many zeros.

    Returns
    -------
    current, other
        ``(B, N, H, N + filled)``: of the node where a trajectory stands, and of what never changes. TSP: the same of the
        node where it began. CVRP: ``(B, 1, H, N + filled)``, of one unit of capacity left.
    """
    current = glimpse.current if glimpse.base is None else glimpse.current + glimpse.base
    room, other = glimpse.room, glimpse.first
    if room is not None:
        other = room.expand(len(current), 1, -1)
    assert other is not None

    def logits(queries: Tensor) -> Tensor:
        rows = torch.matmul(split_heads(queries, glimpse.keys.shape[1]), glimpse.keys_across)
        rows = rows - rows.detach().amax(dim=3, keepdim=True)
        return F.pad(rows.transpose(1, 2), (0, filled)).contiguous()

    return logits(current), logits(other)


def many_states(glimpse: Glimpse, state: RouteState) -> bool:
    """Tell whether there are so many states that compiled loops over pairs of nodes are faster, see `together_training`."""
    nodes, states = state.blocked.shape[2], state.blocked.shape[1]
    return (
        KERNELS
        and state.current is not None
        and states >= STATES_OF_EACH * nodes
        and nodes <= FACTORED_NODES
        and on_cpu(glimpse.keys.device)
        and glimpse.keys.dtype == glimpse.current.dtype == state.blocked.dtype == torch.float32
    )


def _mixed_by_pairs(glimpse: Glimpse, state: RouteState) -> Tensor:
    """Attend by logits of pairs of nodes, ``(B, P, D)``."""
    from nco_bench.nn.compiled import LINE
    from nco_bench.solvers.stepwise.together_training import attended

    assert state.current is not None
    filled = -state.blocked.shape[2] % LINE
    row, share = state.first, state.room
    if share is None:
        share = torch.ones_like(state.blocked[..., 0])
    else:
        row = torch.zeros_like(state.current)
    assert row is not None
    values = F.pad(glimpse.values, (0, 0, 0, filled)).contiguous()
    blocked = F.pad(state.blocked, (0, filled), value=-torch.inf)
    return attended(*pair_logits(glimpse, filled), values, state.current, row, share, blocked)


def _mixed(glimpse: Glimpse, state: RouteState) -> Tensor:
    """Attend over the nodes that are not blocked, ``(B, P, D)``."""
    if many_states(glimpse, state):
        return _mixed_by_pairs(glimpse, state)
    query = _query(glimpse, state)
    batch, trajectories, _ = query.shape
    heads = query.unflatten(2, (glimpse.keys.shape[1], -1)).transpose(1, 2)  # (B, H, P, K)
    blocked = state.blocked[:, None]
    if trajectories >= MANY_TRAJECTORIES or fused_attention(query.device):
        mixed = F.scaled_dot_product_attention(
            heads, glimpse.keys, glimpse.values, attn_mask=blocked, scale=1.0
        )
    else:
        weights = torch.matmul(heads, glimpse.keys_across).add_(blocked)
        mixed = torch.matmul(weights.softmax(dim=3), glimpse.values)
    return mixed.transpose(1, 2).reshape(batch, trajectories, -1)


def factored(encoded: Any, state: RouteState) -> Any:
    """Make what a policy encoded ready for one roll-out of many tours from `state`, where that is worth it.

    Parameters
    ----------
    encoded
        A `Glimpse`, or a dataclass that holds one as ``glimpse``; anything else is returned as it is.
    state
        The trajectories after their first move; no other node may be blocked.
    """
    inner = getattr(encoded, "glimpse", None)
    if isinstance(inner, Glimpse):
        return replace(encoded, glimpse=factored(inner, state))
    if not isinstance(encoded, Glimpse) or encoded.first is None or state.first is None:
        return encoded
    trajectories, nodes = state.blocked.shape[1:]
    # On a GPU the fused kernel is fast, and looking for underflow would make it wait.
    worth = trajectories >= MANY_TRAJECTORIES and nodes <= FACTORED_NODES
    if not worth or torch.is_grad_enabled() or fused_attention(encoded.keys.device):
        return encoded
    batch, heads = encoded.keys.shape[:2]
    first = take(encoded.first, state.first)
    first = first if encoded.base is None else first + encoded.base
    factors = Factors(
        current=relative_weights(split_heads(encoded.current, heads), encoded.keys_across).flatten(0, 2),
        first=relative_weights(split_heads(first, heads), encoded.keys_across),
        rows=torch.arange(0, batch * heads * nodes, nodes).view(batch, heads, 1),
        entries=torch.arange(0, batch * heads * trajectories * nodes, nodes).view(batch, heads, -1),
    )
    return replace(encoded, factors=factors)


def relative_weights(queries: Tensor, keys_across: Tensor) -> Tensor:
    """exp(q . k), each row divided by its largest: ``(B, H, Q, K)`` and ``(B, H, K, N)`` to ``(B, H, Q, N)``."""
    scores = torch.matmul(queries, keys_across)
    return scores.sub_(scores.amax(dim=3, keepdim=True)).exp_()


def _mixed_by_factors(glimpse: Glimpse, factors: Factors, state: RouteState) -> Tensor | None:
    """Attend with weights that are ready, ``(B, P, D)``; None where they are too small to add up."""
    assert state.current is not None
    batch, heads, trajectories, _ = factors.first.shape
    current = state.current[:, None]
    factors.first.view(-1).index_fill_(0, (current + factors.entries).flatten(), 0.0)
    weights = factors.current.index_select(0, (current + factors.rows).flatten())
    weights = weights.view_as(factors.first).mul_(factors.first)
    total = weights.sum(dim=3, keepdim=True)
    if float(total.min()) < SAFE_SUM:
        return None
    mixed = torch.matmul(weights, glimpse.values)
    joined = mixed.new_empty(batch, trajectories, heads, mixed.shape[3])
    torch.div(mixed, total, out=joined.transpose(1, 2))
    return joined.flatten(2)


def _query(glimpse: Glimpse, state: RouteState) -> Tensor:
    """Add up the contributions to the query, ``(B, P, D)``."""
    if state.current is None:
        assert glimpse.base is not None
        assert glimpse.opening is not None
        return (glimpse.base + glimpse.opening).expand(-1, state.blocked.shape[1], -1)
    query = take(glimpse.current, state.current)
    if glimpse.first is not None and state.first is not None:
        query = query + take(glimpse.first, state.first)
    if glimpse.room is not None and state.room is not None:
        query = query + state.room[..., None] * glimpse.room
    return query if glimpse.base is None else query + glimpse.base


def attention_scales(
    logit_scale: LogitScale, nodes: RoutingNodes, head_dim: int, training_size: int
) -> tuple[float | Tensor, float | Tensor]:
    """Return the factors of q.k in the encoder and in the glimpse: 1 / sqrt(K) times the logit scale, where that acts.

    Visited nodes are masked and not removed, so the number of tokens is N at every step. The pointer has no scale.
    """
    context = ScaleContext(nodes.coords.shape[1], nodes.size, head_dim, training_size)
    glimpse = replace(context, place="glimpse")
    return logit_scale(context) / math.sqrt(head_dim), logit_scale(glimpse) / math.sqrt(head_dim)
