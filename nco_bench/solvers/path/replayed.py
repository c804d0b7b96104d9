"""A path policy whose `scores` are recorded and replayed, see `nco_bench.nn.graphs`; on with ``--param graphs=on``."""

from __future__ import annotations

from torch import Tensor, nn

from nco_bench.nn.graphs import Recorded
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState


class Replayed(nn.Module, PathPolicy):
    """The policy; a recording belongs to a batch size and a number of candidates."""

    def __init__(self, policy: PathPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.problem, self.repairs = policy.problem, policy.repairs
        self.default_knn, self.knn_counts_ends = policy.default_knn, policy.knn_counts_ends
        self.recorded = Recorded(lambda nothing, state: policy.scores(state))

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed, without a recording: it is done once."""
        return self.policy.embed(nodes)

    def scores(self, state: PathState) -> Tensor:
        """Return what the policy does, ``(B, M)`` or ``(B, M, 2)``."""
        return self.recorded(None, state)

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the policy's randomness, which `embed` uses."""
        self.policy.reseed(seeds)
