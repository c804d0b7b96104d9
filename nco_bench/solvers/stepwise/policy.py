"""The interfaces of policies that decode step by step, of both kinds; networks and decodings know each other by these.

Encode-once policies (AM, POMO, ELG) look at all nodes once, and at every step ask which node comes next, given where the
vehicle is and what it may still visit. Everything that depends on nodes alone is computed by ``encode``. B instances are
decoded with P trajectories each (samples, starts or beams) that share what was encoded.

Local-view policies (INViT, DGL) encode the neighbourhood of the last node again at every step. Their answer is a short
list of options with probabilities, never a score for every node, and the cost of a step grows with the number of nodes
only in the search for neighbours. What a policy must remember between steps (DGL: running statistics of distances) is its
memory, which follows the partial solutions through sampling and beam search. R = B P partial solutions are stored
instance by instance.

Other letters in shapes: N nodes (the depot first for the CVRP), A options, K neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor


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


Memory = tuple[Tensor, ...]
"""Tensors whose first axis are the R partial solutions."""


@dataclass(frozen=True)
class Padding:
    """What a recorded step must know of the nodes left, see `nco_bench.solvers.stepwise.replayed`.

    Attributes
    ----------
    count
        ``()`` int64: open nodes of every row.
    scale
        The logit scale for so many, `LocalViewPolicy.logit_factor`: ``()`` float32, or a number where it never changes.
    """

    count: Tensor
    scale: float | Tensor


@dataclass(frozen=True)
class Walk:
    """Where R partial solutions stand.

    Attributes
    ----------
    first, current
        ``(R,)`` int64: first node of the tour (0, the depot, for the CVRP), and the node where the path stands.
    open
        ``(R, N)`` bool: still to be visited; False for the depot.
    left
        Number of open nodes, where it is the same for all rows; otherwise a row has at least so many, and none any at 0.
    room
        ``(R,)`` capacity left as a share of the capacity, or None for the TSP.
    memory
        What the policy remembers.
    padding
        Given if `left` is the number of all nodes, so that views keep their size when fewer are open and are padded; only
        to policies whose `LocalViewPolicy.masks` says so.
    """

    first: Tensor
    current: Tensor
    open: Tensor
    left: int
    room: Tensor | None = None
    memory: Memory = ()
    padding: Padding | None = None


@dataclass(frozen=True)
class Options:
    """What can be done next.

    Attributes
    ----------
    nodes
        ``(R, A)`` int64: the node that each option goes to; 0 is the depot of the CVRP.
    log_probs
        ``(R, A)`` log-probabilities, ``-inf`` for options that do not exist.
    via
        ``(R, A)`` bool: reached via the depot; None where the policy visits the depot as a move of its own.
    """

    nodes: Tensor
    log_probs: Tensor
    via: Tensor | None = None


@runtime_checkable
class LocalViewPolicy(Protocol):
    """A network that looks at neighbourhoods.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    needs_start
        True if the first node (CVRP: the first customer) is given and not chosen by the policy.
    masks
        True if `moved` and `options` heed `Walk.padding`.
    """

    problem: str
    needs_start: bool
    masks: bool = False

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Return the memory of an empty solution of each instance, first axis B."""

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Return the memory after a move to ``walk.current``; `walk` holds the old memory and is otherwise up to date."""

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Return what can be done next, with probabilities."""

    def logit_factor(self, left: int, size: int) -> float | Tensor:
        """Return by what attention logits are multiplied where so many nodes of an instance are open."""
        return 1.0

    def limit_neighbours(self, count: int) -> bool:
        """See so many neighbours from now on; False where the views are part of the model, as by default."""
        return False

    def quick(self) -> LocalViewPolicy:
        """Return what chooses alike with the weights as they are now, quicker; itself by default.

        Gradients flow through it where they are on now.
        """
        return self


def distances_from(coords: Tensor, here: Tensor) -> Tensor:
    """Distances of all nodes from one node per row.

    Parameters
    ----------
    coords
        ``(B, N, 2)``.
    here
        ``(R,)`` node indices, instance by instance.

    Returns
    -------
    Tensor
        ``(R, N)``; exactly 0 for the node itself.
    """
    batch, count, _ = coords.shape
    at = here.view(batch, -1)
    x, y = coords.unbind(2)
    dx = x[:, None] - x.gather(1, at)[..., None]  # (B, C, N)
    dy = y[:, None] - y.gather(1, at)[..., None]
    return (dx * dx + dy * dy).sqrt().view(-1, count)


def take(table: Tensor, rows: Tensor) -> Tensor:
    """Pick nodes of each row's instance.

    Parameters
    ----------
    table
        ``(B, N)`` or ``(B, N, E)``.
    rows
        ``(R, K)`` node indices, instance by instance; R is B or a multiple of it.

    Returns
    -------
    Tensor
        ``(R, K)`` or ``(R, K, E)``.
    """
    batch, count, *width = table.shape
    offset = torch.arange(batch, device=rows.device) * count
    if len(rows) != batch:
        offset = offset.repeat_interleave(len(rows) // batch)
    flat = (rows + offset[:, None]).reshape(-1)
    return table.reshape(batch * count, *width).index_select(0, flat).view(*rows.shape, *width)


def nearest(distance: Tensor, allowed: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Find the nearest allowed nodes of each row.

    Parameters
    ----------
    distance
        ``(R, N)``.
    allowed
        ``(R, N)`` bool.
    count
        How many at most.

    Returns
    -------
    nodes, real
        ``(R, K)`` indices, nearest first, and whether each is an allowed node (what is left is arbitrary).
    """
    found = distance.masked_fill(~allowed, torch.inf).topk(
        min(count, distance.shape[1]), dim=1, largest=False
    )
    return found.indices, found.values.isfinite()
