"""Run a path policy's network in a named precision; float32 unless asked for with ``--param precision=bf16`` or ``tf32``.

Matrix products of `scores` run in the precision; weights, coordinates, embeddings (what `embed` returns) and the residual
sums stay float32, since bfloat16 coordinates would put nodes on a grid of 1/256. Choices differ where two candidates score
almost alike, so tours are not those of float32; by how much, `benchmarks/precision_gap.py` measures.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.nn.device import check_precision, precision
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState


class AtPrecision(nn.Module, PathPolicy):
    """A path policy whose `scores` run in a named precision; everything else that decoding asks for is the policy's."""

    def __init__(self, policy: PathPolicy, name: str) -> None:
        super().__init__()
        self.policy, self.precision = policy, name
        self.problem, self.repairs = policy.problem, policy.repairs
        self.default_knn, self.knn_counts_ends = policy.default_knn, policy.knn_counts_ends
        self.masks = policy.masks

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed in float32."""
        return self.policy.embed(nodes)

    def scores(self, state: PathState) -> Tensor:
        """Score in the precision, ``(B, M)`` or ``(B, M, 2)`` float32."""
        with precision(self.precision, state.features.device):
            return self.policy.scores(state).float()

    def logit_factor(self, candidates: int, instance_size: int, *, closed: bool) -> float | Tensor:
        """Return the policy's."""
        return self.policy.logit_factor(candidates, instance_size, closed=closed)

    def reseed(self, seeds: int | Tensor) -> None:
        """Choose the policy's randomness."""
        self.policy.reseed(seeds)


def at_precision(policy: PathPolicy, name: str, wanted: str) -> PathPolicy:
    """Return the policy as it is, or running in a lower precision.

    Parameters
    ----------
    policy
        A path policy in float32, on the device where it will run.
    name
        Its name, for messages.
    wanted
        ``fp32``, ``tf32`` or ``bf16``.

    Raises
    ------
    BadInputError
        For another precision, one that the device does not have, or a model that works in place in float32 (SIT) in bf16.
    """
    check_precision(wanted, next(cast("nn.Module", policy).parameters()).device)
    if wanted == "fp32":
        return policy
    if wanted == "bf16" and policy.in_place:
        raise BadInputError(
            f"--param precision=bf16: {name} updates its tokens in place in float32; leave it out."
        )
    return AtPrecision(policy, wanted)
