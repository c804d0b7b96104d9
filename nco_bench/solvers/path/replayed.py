"""A path policy whose `scores` are recorded and replayed, see `nco_bench.nn.graphs`; on with ``--param graphs=on``.

Sub-problems shrink by a node per step, and a recording is of one shape. So candidates are padded to the sizes of `rounded`,
and a step's scores are those of the candidates that are there: attention leaves padding out, and what depends on how many
they are (logit scales, the counter of PENS's vectors) comes as a tensor. The batch is padded likewise, which nothing sees.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from nco_bench.nn.graphs import Recorded, rounded
from nco_bench.solvers.path.policy import Padding, PathNodes, PathPolicy, PathState

LEAST = 8
"""Numbers of candidates are multiples of this."""


class Padded(nn.Module, PathPolicy):
    """The policy on padded states; every result is cut to what was asked for."""

    def __init__(self, policy: PathPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.problem, self.repairs = policy.problem, policy.repairs
        self.default_knn, self.knn_counts_ends = policy.default_knn, policy.knn_counts_ends

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed all nodes, without padding."""
        return self.policy.embed(nodes)

    def scores(self, state: PathState) -> Tensor:
        """Return what the policy does, ``(B, M)`` or ``(B, M, 2)``."""
        if not self.policy.masks:
            return self.scored(state)
        batch, candidates = len(state.features), state.candidates
        return self.scored(padded(self.policy, state))[:batch, :candidates]

    def scored(self, state: PathState) -> Tensor:
        """Score a state that may have padding."""
        return self.policy.scores(state)

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the policy's randomness, which `embed` uses."""
        self.policy.reseed(seeds)


class Replayed(Padded):
    """The policy, recorded: one recording for each size of batch and number of candidates, padding included."""

    def __init__(self, policy: PathPolicy) -> None:
        super().__init__(policy)
        self.recorded = Recorded(lambda nothing, state: policy.scores(state))

    def scored(self, state: PathState) -> Tensor:
        """Replay, or record."""
        result: Tensor = self.recorded(None, state)
        return result


def padded(policy: PathPolicy, state: PathState) -> PathState:
    """Pad the candidates with copies of the destination, and the batch with copies of its first row.

    Nothing is sent to the device: numbers are arguments of its operations.
    """
    batch, candidates = len(state.features), state.candidates
    more, behind = rounded(batch) - batch, rounded(candidates, LEAST) - candidates

    def longer(rows: Tensor) -> Tensor:
        if behind:
            rows = torch.cat([rows[:, :-1], rows[:, -1:].expand(-1, behind + 1, *rows.shape[2:])], dim=1)
        return wider(rows)

    def wider(rows: Tensor) -> Tensor:
        return torch.cat([rows, rows[:1].expand(more, *rows.shape[1:])]) if more else rows

    size = torch.full((), candidates, dtype=torch.int64, device=state.features.device)
    return replace(
        state,
        features=longer(state.features),
        coords=longer(state.coords),
        demand=None if state.demand is None else longer(state.demand),
        remaining=None if state.remaining is None else wider(state.remaining),
        instance_size=0,  # the scale holds it: instances of any size share recordings
        padding=Padding(size, _factor(policy, state)),
    )


def _factor(policy: PathPolicy, state: PathState) -> float | Tensor:
    """Return the logit scale: a number where it is that of a single candidate, else a tensor."""
    factor, single = (
        policy.logit_factor(count, state.instance_size, closed=state.closed)
        for count in (state.candidates, 1)
    )
    if isinstance(factor, Tensor) or factor == single:
        return factor
    return torch.full((), factor, dtype=torch.float32, device=state.features.device)
