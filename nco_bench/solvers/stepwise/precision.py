"""Run a stepwise policy's network in a named precision; float32 unless ``--param precision=bf16`` or ``tf32`` is given.

Matrix products run in the precision; weights, coordinates, distances, masks and loads stay as they are. What comes out, on
which choices are made, is float32 again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn

from nco_bench.nn.device import check_precision, precision
from nco_bench.solvers.stepwise.policy import (
    EncodeOncePolicy,
    LocalViewPolicy,
    Memory,
    Options,
    RouteState,
    RoutingNodes,
    Walk,
)


class AtPrecision(nn.Module):
    """A stepwise policy of either kind, whose network runs in a named precision."""

    def __init__(self, policy: nn.Module, name: str) -> None:
        super().__init__()
        self.policy: Any = policy
        self.precision, self.problem, self.needs_start = name, policy.problem, policy.needs_start
        self.masks = getattr(policy, "masks", False)

    def _lowered(self, like: Tensor) -> Any:
        return precision(self.precision, like.device)

    def encode(self, nodes: RoutingNodes) -> Any:
        """Compute all that does not change during decoding."""
        with self._lowered(nodes.coords):
            return cast("EncodeOncePolicy", self.policy).encode(nodes)

    def logits(self, encoded: Any, state: RouteState) -> Tensor:
        """Score in the precision, ``(B, P, N)`` float32."""
        with self._lowered(state.blocked):
            return cast("EncodeOncePolicy", self.policy).logits(encoded, state).float()

    def logit_factor(self, left: int, size: int) -> float | Tensor:
        """Return the policy's."""
        return cast("LocalViewPolicy", self.policy).logit_factor(left, size)

    def remember(self, nodes: RoutingNodes) -> Memory:
        """Return the memory of an empty solution of each instance."""
        return cast("LocalViewPolicy", self.policy).remember(nodes)

    def moved(self, nodes: RoutingNodes, walk: Walk) -> Memory:
        """Return the memory after a move."""
        return cast("LocalViewPolicy", self.policy).moved(nodes, walk)

    def options(self, nodes: RoutingNodes, walk: Walk) -> Options:
        """Return what can be done next, with float32 log-probabilities."""
        with self._lowered(nodes.coords):
            options = cast("LocalViewPolicy", self.policy).options(nodes, walk)
        return replace(options, log_probs=options.log_probs.float())


def at_precision(policy: nn.Module, wanted: str) -> nn.Module:
    """Return the policy as it is, or running in a lower precision.

    Raises
    ------
    BadInputError
        For an unknown precision, or one that the policy's device does not have.
    """
    check_precision(wanted, next(policy.parameters()).device)
    return policy if wanted == "fp32" else AtPrecision(policy, wanted)
