"""Attention and norm with derivatives of their own agree with float32 and PyTorch's autograd."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from nco_bench.nn import bf16_training
from nco_bench.nn.layers import dot_products


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("common", [0.0, 30.0])
def test_attention_has_the_gradients_of_float32(biased: bool, common: float) -> None:
    """Also where keys and values have much in common, as those of a network without norms; in bf16 that does not cancel."""
    torch.manual_seed(1)
    inputs = [torch.randn(3, 5, size, 16) for size in (7, 30, 30)]
    inputs = [(x + common * torch.randn(16) * (place > 0)).bfloat16() for place, x in enumerate(inputs)]
    bias = -4 * torch.rand(3, 5, 7, 30) if biased else None
    direction = torch.randn(3, 5, 7, 16).bfloat16()
    low = [x.clone().requires_grad_() for x in inputs]
    exact = [x.float().requires_grad_() for x in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = dot_products(*low, bias, 0.1)
    expected = F.scaled_dot_product_attention(*exact, attn_mask=bias, scale=0.1)
    mixed.backward(direction)
    expected.backward(direction.float())
    assert mixed.dtype is torch.bfloat16
    for one, other in zip(low, exact, strict=True):
        assert (one.grad.float() - other.grad).norm() < 0.01 * other.grad.norm()


def test_rotated_queries_leave_attention_in_float32() -> None:
    """RoPE's are float32 beside values in bf16; autocast rounded them, and the kernel for bf16 took three times as long."""
    torch.manual_seed(3)
    q, k = torch.randn(2, 3, 5, 20, 16)
    value = torch.randn(3, 5, 20, 16).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = dot_products(q.requires_grad_(), k, value, None, 0.9)
    expected = F.scaled_dot_product_attention(q, k, value.float(), scale=0.9)
    assert mixed.dtype is torch.bfloat16
    assert torch.equal(mixed, expected.bfloat16())


def test_learned_biases_get_their_gradient() -> None:
    """From PyTorch's kernel, under the same autocast, in bf16 as well."""
    q, k, v = torch.randn(3, 2, 4, 9, 8).bfloat16()
    slope = torch.tensor(0.7, requires_grad=True)
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


def test_norm_is_the_same_with_any_number_of_threads() -> None:
    x, weight, direction = torch.randn(3, 7, 24), torch.rand(24), torch.randn(3, 7, 24).bfloat16()
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            leaves = x.clone().requires_grad_(), weight.clone().requires_grad_()
            low = bf16_training.rms_norm(*leaves, 1e-6)
            low.backward(direction)
            found.append((low.detach(), *(leaf.grad for leaf in leaves)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))
