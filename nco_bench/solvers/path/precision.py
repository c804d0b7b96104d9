"""Run a path policy's network in bfloat16, for GPUs; off unless asked for with ``--param precision=bf16``.

Matrix products of `scores` run in bfloat16 under autocast; weights, coordinates, embeddings (what `embed` returns) and the
residual sums stay float32, since bfloat16 coordinates would put nodes on a grid of 1/256. Choices differ where two
candidates score almost alike, so tours are not those of float32. Speed was not measured on a GPU in this version.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.solvers.path.policy import PathNodes, PathPolicy, PathState

PRECISIONS = ("fp32", "bf16")


class Bfloat16(nn.Module):
    """A path policy whose `scores` run under bfloat16 autocast; everything else is the policy's own."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        """Look what a policy may declare (`problem`, `repairs`, `reseed`, ...) up in the policy."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("policy"), name)

    def embed(self, nodes: PathNodes) -> Tensor:
        """Embed in float32."""
        return cast("PathPolicy", self.policy).embed(nodes)

    def scores(self, state: PathState) -> Tensor:
        """Score in bfloat16, ``(B, M)`` or ``(B, M, 2)`` float32."""
        with torch.autocast(state.features.device.type, dtype=torch.bfloat16):
            return cast("PathPolicy", self.policy).scores(state).float()


def at_precision(policy: nn.Module, name: str, precision: str) -> nn.Module:
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
    if name == "sit":
        raise BadInputError(
            "--param precision=bf16: sit updates its tokens in place in float32; leave it out."
        )
    return Bfloat16(policy)
