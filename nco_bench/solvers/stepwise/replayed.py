"""Stepwise policies whose steps are recorded and replayed, see `nco_bench.nn.graphs`; on with ``--param graphs=on``.

The shape of an encode-once policy's step never changes. Views of few nodes shrink when fewer are left; recorded, they keep
their size and are padded, and how many nodes are left comes as a tensor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.nn.graphs import Recorded
from nco_bench.solvers.stepwise.policy import (
    EncodeOncePolicy,
    LocalViewPolicy,
    Memory,
    Options,
    Padding,
    RouteState,
    RoutingNodes,
    Walk,
)


class Replayed(nn.Module):
    """An encode-once policy; a recording belongs to a number of instances and of trajectories."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy: Any = policy
        self.problem, self.needs_start = policy.problem, policy.needs_start
        self.recorded = Recorded(cast("EncodeOncePolicy", policy).logits)

    def encode(self, nodes: RoutingNodes) -> Any:
        """Encode, without a recording: it is done once."""
        return self.policy.encode(nodes)

    def logits(self, encoded: Any, state: RouteState) -> Tensor:
        """Return what the policy does, ``(B, P, N)``."""
        result: Tensor = self.recorded(encoded, state)
        return result


class ReplayedViews(nn.Module):
    """A local-view policy; there is a recording of a move and one of a look around for each size of an instance."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy: Any = policy
        self.problem, self.needs_start = policy.problem, policy.needs_start
        self.masks: bool = getattr(policy, "masks", False)
        views = cast("LocalViewPolicy", policy)
        self.recorded, self.recorded_moves = Recorded(views.options), Recorded(views.moved)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Return the memory of an empty solution, without a recording: it is made once."""
        memory: Memory = self.policy.remember(nodes)
        return memory

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Return the memory after a move; the first move and the last of a tour are unlike the others."""
        if not walk.memory or walk.left in (0, nodes.size - 1):
            memory: Memory = self.policy.moved(nodes, walk)
        else:
            memory = self.recorded_moves(nodes, self._held(nodes, walk))
        return memory

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Return what the policy does; options that are padding do not exist."""
        found: Options = self.recorded(nodes, self._held(nodes, walk))
        return found

    def _held(self, nodes: RoutingNodes, walk: Walk) -> Walk:
        """Keep the views from shrinking; numbers are arguments of the device's operations, so nothing is sent to it."""
        if not self.masks:
            return walk
        device = walk.current.device
        factor, single = (self.policy.logit_factor(left, nodes.size) for left in (walk.left, 1))
        if not isinstance(factor, Tensor) and factor != single:
            factor = torch.full((), factor, dtype=torch.float32, device=device)
        count = torch.full((), walk.left, dtype=torch.int64, device=device)
        return replace(walk, left=nodes.size, padding=Padding(count, factor))
