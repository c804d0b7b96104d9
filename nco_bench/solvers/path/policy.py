"""The interface of path policies: models that build a solution by solving shrinking *path* problems.

A path problem has an origin (where the partial solution ends), a destination (where it must end) and the
nodes still to be visited in between; for the CVRP also demands and the capacity that is left. TSP is the
path whose two ends coincide, and a segment of a tour is a path too, so one interface serves greedy and beam
construction, RRC and PRC re-construction, supervised training on sub-paths and self-improved training.

A policy is a ``torch.nn.Module`` and a `PathPolicy` with two methods:

``embed(nodes)``
    What depends on a node alone (or on all nodes at once, as LEHD's encoder), computed once per problem.
``scores(state)``
    One unnormalised log-probability per candidate, from the rows that are still in play.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class PathNodes:
    """The nodes of a batch of path problems, as raw features.

    Attributes
    ----------
    coords
        ``(B, N, 2)`` coordinates; for the CVRP row 0 is the depot.
    demand
        ``(B, N)`` demand divided by the vehicle's capacity (0 at the depot), or None for the TSP.
    instance_size
        Number of nodes (customers for the CVRP) of the whole test instance, which logit scales may use; equal
        for the whole batch. In re-construction it stays the size of the instance, not of the segment.
    """

    coords: Tensor
    demand: Tensor | None
    instance_size: int


@dataclass(frozen=True)
class Padding:
    """What a network must know where copies of the destination follow the candidates (`nco_bench.solvers.path.replayed`).

    What changes from step to step is a tensor, since a recorded step must not depend on what the host knows.

    Attributes
    ----------
    count
        ``()`` int64: candidates that are there.
    scale
        The logit scale for so many, `PathPolicy.logit_factor`: ``()`` float32, or a number where it does not change.
    """

    count: Tensor
    scale: float | Tensor


@dataclass(frozen=True)
class PathState:
    """What a policy sees at one step: rows ``[origin, candidates ..., destination]``, visited nodes left out.

    Attributes
    ----------
    features
        ``(B, M + 2, E)``: rows of what `embed` returned.
    coords
        ``(B, M + 2, 2)``: coordinates of the same rows.
    demand
        ``(B, M + 2)`` demands as shares of the capacity, or None for the TSP.
    remaining
        ``(B,)`` capacity left in the vehicle as a share of the capacity, or None for the TSP.
    closed
        True at the first step of a TSP tour, where origin and destination are the same node (both rows are given).
        For the CVRP: True while nothing is visited yet, so that the origin row is the depot itself.
    instance_size
        As in `PathNodes`; 0 where there is padding, which comes with the logit scale.
    padding
        Given if the last candidates are none; only to policies whose `PathPolicy.masks` says so.
    """

    features: Tensor
    coords: Tensor
    demand: Tensor | None
    remaining: Tensor | None
    closed: bool
    instance_size: int
    padding: Padding | None = None

    @property
    def candidates(self) -> int:
        """Number of nodes that can come next, padding included."""
        return self.features.shape[1] - 2

    def real(self, before: int = 1, behind: int = 1) -> Tensor | None:
        """Return which tokens are no padding, ``(1, 1, 1, T)`` bool; None if none is.

        Parameters
        ----------
        before, behind
            How many tokens the network puts before the candidates and behind them.
        """
        if self.padding is None:
            return None
        there = torch.arange(self.candidates, device=self.features.device) < self.padding.count
        return F.pad(there, (before, behind), value=True)[None, None, None]


@dataclass(frozen=True)
class AuxiliaryTokens:
    """Where a network has one token per node of a path, for an auxiliary loss in training.

    Attributes
    ----------
    layer
        The last layer that runs as a whole; its output, or the second of two outputs, is ``(B, T, W)``.
    first
        The row of the first candidate; the others follow in their order.
    ends
        Whether the row before the candidates is the destination's and the one behind them the origin's, at every step.
    """

    layer: nn.Module
    first: int = 1
    ends: bool = False


class PathPolicy:
    """A network for path problems; a policy has this as a base beside ``torch.nn.Module``, for the defaults.

    ``scores`` returns ``(B, M)`` for the TSP. For the CVRP it returns ``(B, M, 2)``: channel 0 goes to the
    customer directly, channel 1 via the depot; entries that the model itself forbids are ``-inf``.

    Attributes
    ----------
    problem
        ``tsp`` or ``cvrp``.
    repairs
        True if a CVRP policy may prefer a direct visit that exceeds the capacity left, to be made via the depot.
    knn_counts_ends
        True if a k-nearest-neighbour limit counts the current node and the destination, as BQ-NCO's does.
    default_knn
        The limit that the published results used when none is named.
    flex
        Whether FlexAttention computes the positional bias; None where there is none.
    in_place
        True if tokens are updated in place in float32, which lower precision does not go with.
    masks
        True if `scores` heeds `PathState.padding`: the scores of other candidates are what they are without it.
    """

    problem: str = "tsp"
    repairs: bool = False
    knn_counts_ends: bool = False
    default_knn: int | None = None
    flex: bool | None = None
    in_place: bool = False
    masks: bool = False

    def embed(self, nodes: PathNodes) -> Tensor:
        """Return per-node features, ``(B, N, E)``."""
        raise NotImplementedError

    def scores(self, state: PathState) -> Tensor:
        """Return logits of the candidates, ``(B, M)`` or ``(B, M, 2)``."""
        raise NotImplementedError

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return by what attention logits are multiplied where so many candidates are left."""
        raise NotImplementedError

    def factor_at(self, state: PathState) -> float | Tensor:
        """Return `logit_factor` of a state's candidates, padding left out."""
        if state.padding is not None:
            return state.padding.scale
        return self.logit_factor(state.candidates, state.instance_size, closed=state.closed)

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the randomness of policies that have some (the node vectors of PENS): one int64 seed, or ``(B,)``."""

    def auxiliary_tokens(self) -> AuxiliaryTokens | None:
        """Return where an auxiliary loss finds a token per node; None where there is no such place."""
        return None

    def penalty(self) -> Tensor | None:
        """Return what is added to the loss in training, or None."""
        return None


def gather_rows(table: Tensor, rows: Tensor) -> Tensor:
    """Pick rows of a batch of tables.

    Parameters
    ----------
    table
        ``(B, N, E)`` or ``(B, N)``.
    rows
        ``(B, M)`` int64 indices into the second axis.

    Returns
    -------
    Tensor
        ``(B, M, E)`` or ``(B, M)``.
    """
    if table.dim() == 2:
        return table.gather(1, rows)
    # Whole rows are copied at once, which `gather` does not do.
    batch, count, width = table.shape
    flat = rows + torch.arange(batch, device=rows.device)[:, None] * count
    return table.reshape(batch * count, width).index_select(0, flat.reshape(-1)).view(*rows.shape, width)


def path_state(
    nodes: PathNodes, features: Tensor, rows: Tensor, *, closed: bool = False, remaining: Tensor | None = None
) -> PathState:
    """Assemble the state of the path problem whose rows (origin, candidates, destination) are given.

    Parameters
    ----------
    nodes
        The whole problem.
    features
        ``(B, N, E)``, from the policy's ``embed(nodes)``.
    rows
        ``(B, M + 2)`` int64 node indices: origin, candidates, destination.
    closed, remaining
        As in `PathState`.
    """
    return PathState(
        features=gather_rows(features, rows),
        coords=gather_rows(nodes.coords, rows),
        demand=None if nodes.demand is None else gather_rows(nodes.demand, rows),
        remaining=remaining,
        closed=closed,
        instance_size=nodes.instance_size,
    )
