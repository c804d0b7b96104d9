"""Attention and norm with derivatives of their own agree with float32 and PyTorch's autograd."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nco_bench.nn import bf16_training
from nco_bench.nn.layers import dot_products


def _cosine(one: torch.Tensor, other: torch.Tensor) -> float:
    return float(F.cosine_similarity(one.double().flatten(), other.double().flatten(), dim=0))


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("queries", [30, 7])
def test_attention_has_the_values_and_gradients_of_float32(
    monkeypatch: pytest.MonkeyPatch, biased: bool, queries: int
) -> None:
    """Parts of a few matrices each, so that the last part is smaller than the others."""
    monkeypatch.setattr(bf16_training, "LOGITS_AT_A_TIME", 2000)
    torch.manual_seed(1)
    inputs = [torch.randn(3, 5, size, 16).bfloat16() for size in (queries, 30, 30)]
    bias = -4 * torch.rand(3, 5, queries, 30) if biased else None
    direction = torch.randn(3, 5, queries, 16)
    low = [x.clone().requires_grad_() for x in inputs]
    exact = [x.float().requires_grad_() for x in inputs]
    mixed = bf16_training.attention(*low, bias, 0.3)
    expected = F.scaled_dot_product_attention(*exact, attn_mask=bias, scale=0.3)
    mixed.backward(direction.bfloat16())
    expected.backward(direction)
    assert mixed.dtype is torch.bfloat16
    assert (mixed - expected).abs().max() < 0.03
    for one, other in zip(low, exact, strict=True):
        assert _cosine(one.grad, other.grad) > 0.9995


def test_attention_takes_one_bias_for_all_heads() -> None:
    q, k, v = torch.randn(3, 2, 4, 9, 8).bfloat16()
    bias = torch.randn(2, 1, 1, 9)
    alike = bf16_training.attention(q, k, v, bias.expand(2, 4, 9, 9).contiguous(), 0.5)
    assert torch.equal(bf16_training.attention(q, k, v, bias, 0.5), alike)


def test_learned_biases_and_masks_go_the_other_way() -> None:
    """A learned bias gets its gradient from PyTorch's kernel, under the same autocast, in bf16 as well."""
    q, k, v = torch.randn(3, 2, 4, 9, 8).bfloat16()
    slope = torch.tensor(0.7, requires_grad=True)
    real = torch.arange(9) < 8
    assert bf16_training.attention(q, k, v, slope * torch.ones(2, 4, 9, 9), 0.5) is None
    assert bf16_training.attention(q, k, v, real, 0.5) is None
    for dtype in (torch.float32, torch.bfloat16):
        slope.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            dot_products(q, k, v, (slope * torch.randn(2, 4, 9, 9)).to(dtype), 0.5).float().sum().backward()
        assert slope.grad is not None
        assert slope.grad != 0


def test_norm_has_the_values_and_gradients_of_pytorch() -> None:
    torch.manual_seed(2)
    x, weight, direction = 3 * torch.randn(4, 6, 32), torch.rand(32), torch.randn(4, 6, 32).bfloat16()
    one = x.clone().requires_grad_(), weight.clone().requires_grad_()
    other = x.clone().requires_grad_(), weight.clone().requires_grad_()
    low = bf16_training.rms_norm(*one, 1e-6)
    exact = F.rms_norm(other[0], (32,), other[1], 1e-6)
    low.backward(direction)
    exact.backward(direction.float())
    assert low.dtype is torch.bfloat16
    torch.testing.assert_close(low.float(), exact, rtol=2**-8, atol=1e-6)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
