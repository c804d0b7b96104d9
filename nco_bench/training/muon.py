"""Muon: momentum made orthogonal, for the matrices inside layers; AdamW for everything else.

Jordan et al. 2024 (Muon), with the scale of Liu et al. 2025 ("Muon is scalable for LLM training", section 2.2), which gives
an update the root mean square that AdamW's has, so that rate and weight decay of both kinds of parameters are one number.
`torch.optim.Muon` works in bf16, matrix by matrix; a CPU without bf16 takes minutes for that. Here matrices of one shape are
stacked, and CPUs without instructions for bf16 work in fp32. Of several processes each iterates its share of a stack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.nn.device import bf16_products
from nco_bench.training.distributed import shared_rows

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic ``a x + b x^3 + c x^5``; five steps bring singular values from 0.002 on to 0.68 to 1.14."""

MATCHED_RMS = 0.2
"""Root mean square of AdamW's updates, which is matched."""

NOTHING = 1e-15
"""Of a matrix of norm 1, what counts for zero: powers of what is left are no denormal numbers, on any thread."""

LAYER = re.compile(r"(^|\.)((layers|blocks|encoder|decoder)\.\d+|attention|feed_forward)\.")


def inside_layer(name: str, parameter: Tensor) -> bool:
    """Tell whether a parameter is a matrix inside one of a network's layers: no embedding, no head, nothing thrown away."""
    return parameter.dim() == 2 and not name.startswith("extra.") and LAYER.search(name) is not None


def orthogonalised(stack: Tensor, steps: int) -> Tensor:
    """Bring all singular values near 1 by Newton-Schulz iterations.

    Parameters
    ----------
    stack
        ``(K, R, C)`` matrices; of any norm, zeros stay zeros.
    steps
        Iterations.

    Returns
    -------
    Tensor
        ``(K, R, C)``; float32 comes back in bf16 where products are faster in it, anything else in its own type.
    """
    a, b, c = COEFFICIENTS
    x = stack.bfloat16() if stack.dtype is torch.float32 and bf16_products(stack.device) else stack
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp_min(1e-7)
    x = nn.functional.hardshrink(x, NOTHING)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon for one group of matrices and AdamW for the other groups.

    Parameters
    ----------
    matrices
        Group of matrices: ``params`` and what else a group holds.
    others
        Groups for AdamW; they share rate and decay of their own.
    lr, weight_decay
        Where a group does not say; the decay is decoupled.
    momentum
        Nesterov's.
    steps
        Newton-Schulz iterations.
    betas
        AdamW's.
    """

    def __init__(
        self,
        matrices: dict[str, Any],
        others: Sequence[dict[str, Any]],
        *,
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        steps: int = 5,
        betas: tuple[float, float] = (0.9, 0.999),
    ) -> None:
        super().__init__([matrices], {"lr": lr, "weight_decay": weight_decay})
        self.momentum, self.steps = momentum, steps
        self.matrices = self.param_groups[0]
        self.adamw = torch.optim.AdamW(
            list(others), lr=lr, betas=betas, weight_decay=weight_decay, fused=True
        )
        self.param_groups += self.adamw.param_groups
        self.adamw.state = self.state  # one dictionary, so that a checkpoint holds both kinds

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; once the optimiser stands, it is AdamW's."""
        super().add_param_group(param_group)
        if hasattr(self, "adamw"):
            self.adamw.param_groups.append(self.param_groups[-1])

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for parameter in self.matrices["params"]:
            if parameter.grad is not None:
                by_shape.setdefault(parameter.shape, []).append(parameter)
        for parameters in by_shape.values():
            self._step_alike(parameters)
        self.adamw.step()

    def _step_alike(self, parameters: list[Tensor]) -> None:
        """Update matrices of one shape."""
        lr, decay = self.matrices["lr"], self.matrices["weight_decay"]
        gradients = [p.grad for p in parameters if p.grad is not None]
        for parameter in parameters:
            if "momentum" not in self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[p]["momentum"] for p in parameters]
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        ahead = torch._foreach_lerp(gradients, momenta, self.momentum)
        updates = shared_rows(lambda rows: orthogonalised(rows, self.steps), torch.stack(ahead))
        scale = MATCHED_RMS * math.sqrt(max(parameters[0].shape))
        torch._foreach_mul_(parameters, 1 - lr * decay)
        torch._foreach_add_(parameters, list(updates.unbind()), alpha=-lr * scale)
