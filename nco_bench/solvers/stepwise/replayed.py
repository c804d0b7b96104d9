"""An encode-once policy whose steps are recorded and replayed, see `nco_bench.nn.graphs`; on with ``--param graphs=on``."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from nco_bench.nn.graphs import Recorded
from nco_bench.solvers.stepwise.policy import EncodeOncePolicy, RouteState, RoutingNodes


class Replayed(nn.Module):
    """The policy; a recording belongs to a number of instances and of trajectories."""

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
        return self.recorded(encoded, state)
