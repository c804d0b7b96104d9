"""Attention in bf16 on the CPU: where it is trained, values and gradients are those of float32 on the rounded inputs."""

from __future__ import annotations

import torch

from nco_bench.nn.device import precision
from nco_bench.nn.layers import attend


def test_gradients_of_attention_in_bf16_are_those_of_float32() -> None:
    parts = [
        torch.randn(2, 3, 7, 16, generator=torch.Generator().manual_seed(k)).bfloat16() for k in range(3)
    ]
    real = torch.ones(1, 1, 1, 7, dtype=torch.bool)
    real[..., -2:] = False

    def derived(*inputs: torch.Tensor) -> list[torch.Tensor]:
        leaves = [part.clone().requires_grad_() for part in inputs]
        heads = attend(*leaves, 0.25, real)
        heads.float().square().sum().backward()
        return [heads.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    with precision("bf16", "cpu"):
        low = derived(*parts)
    exact = derived(*(part.float() for part in parts))
    assert low[0].dtype is torch.bfloat16
    assert (low[0] == exact[0].bfloat16()).all()
    assert low[1].dtype is torch.bfloat16
    for ours, theirs in zip(low, exact, strict=True):
        torch.testing.assert_close(ours.float(), theirs, rtol=0.02, atol=0.02)
