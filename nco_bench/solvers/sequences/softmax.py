"""Softmax attention of the task networks, with a fixed temperature or one that adapts to the entropy.

The temperature adapts in training and at inference, with gradients through it, as in the code of the Tropical Attention
paper, which itself names the attention alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

ENTROPY_POLYNOMIAL = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Inverse temperature of adaptive softmax as a function of the entropy, highest power first (Velickovic et al., 2024)."""


def adaptive_softmax(logits: Tensor) -> Tensor:
    """Return softmax over the last axis with an inverse temperature that grows with the row's entropy."""
    p = logits.softmax(-1)
    entropy = -(p * torch.log(p + 1e-9)).sum(-1, keepdim=True)
    return (logits * inverse_temperature(entropy)).softmax(-1)


def inverse_temperature(entropy: Tensor) -> Tensor:
    """Return what adaptive softmax multiplies a row of logits by, given the entropy of its plain softmax; at least 1."""
    beta = torch.zeros_like(entropy)
    for coefficient in ENTROPY_POLYNOMIAL:
        beta = beta * entropy + coefficient
    return torch.where(entropy > 0.5, beta.clamp(min=1.0), 1.0)


class SoftmaxAttention(nn.Module):
    """Dot-product attention without biases; `adaptive` chooses the temperature row by row."""

    def __init__(self, width: int, heads: int, adaptive: bool) -> None:
        super().__init__()
        self.heads, self.adaptive = heads, adaptive
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def weights(self, x: Tensor) -> Tensor:
        """Return the weights ``(B, H, N, N)``; rows sum to 1."""
        q, k = self._split(self.query(x)), self._split(self.key(x))
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        return adaptive_softmax(logits) if self.adaptive else logits.softmax(-1)

    def key_norms(self, x: Tensor) -> Tensor:
        """Return the Euclidean norms of the keys, ``(B, H, N)``."""
        return self._split(self.key(x)).norm(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens ``(B, N, D)`` to ``(B, N, D)``."""
        context = self.weights(x) @ self._split(self.value(x))
        result: Tensor = self.out(context.transpose(1, 2).flatten(2))
        return result
