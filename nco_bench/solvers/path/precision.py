"""Run a path policy's network in bfloat16, for GPUs; off unless asked for with ``--param precision=bf16``.

Matrix products of `scores` run in bfloat16 under autocast; weights, coordinates, embeddings (what `embed` returns) and the
residual sums stay float32, since bfloat16 coordinates would put nodes on a grid of 1/256. Choices differ where two
candidates score almost alike, so tours are not those of float32. Speed was not measured on a GPU in this version.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState

PRECISIONS = ("fp32", "bf16")


class Bfloat16(nn.Module, PathPolicy):
    """A path policy whose `scores` run under bfloat16 autocast; everything else that decoding asks for is the policy's."""

    def __init__(self, policy: PathPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.problem, self.repairs = policy.problem, policy.repairs
        self.default_knn, self.knn_counts_ends = policy.default_knn, policy.knn_counts_ends

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed in float32."""
        return self.policy.embed(nodes)

    def scores(self, state: PathState) -> Tensor:
        """Score in bfloat16, ``(B, M)`` or ``(B, M, 2)`` float32."""
        with torch.autocast(state.features.device.type, dtype=torch.bfloat16):
            return self.policy.scores(state).float()

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the policy's randomness."""
        self.policy.reseed(seeds)


def at_precision(policy: PathPolicy, name: str, precision: str) -> PathPolicy:
    """Return the policy as it is, or running in bfloat16.

    Parameters
    ----------
    policy
        A path policy in float32.
    name
        Its name, for messages.
    precision
        ``fp32`` or ``bf16``.

    Raises
    ------
    BadInputError
        For another precision, or a model that works in place in float32 (SIT).
    """
    if precision not in PRECISIONS:
        raise BadInputError(f"--param precision={precision}: expected one of {', '.join(PRECISIONS)}.")
    if precision == "fp32":
        return policy
    if policy.in_place:
        raise BadInputError(
            f"--param precision=bf16: {name} updates its tokens in place in float32; leave it out."
        )
    return Bfloat16(policy)
