"""Self-attention with a derivative of its own is the plain formula, and networks train through it where it pays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nco_bench.nn import layers
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.policy import PathNodes, PathState
from nco_bench.solvers.stepwise.am import AmConfig, Layer

training = pytest.importorskip("nco_bench.nn.attention_training")

SLOPES = torch.tensor([10.0, 5.0, 2.5])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def plainly(sources: list[Tensor], scale: float, coords: Tensor | None) -> Tensor:
    """In float64, from logits that stand in memory; sources are as `attend` takes them, with three heads."""
    parts = torch.cat([part for source in sources for part in source.double().split(48, dim=2)], dim=1)
    asked, tokens = sources[0].shape[1], sources[-1].shape[1]
    cut = parts.unflatten(2, (3, 16)).transpose(1, 2).split([asked, tokens, tokens], dim=2)
    query, key, value = cut
    logits = scale * query @ key.transpose(2, 3)
    if coords is not None:
        near = (coords[:, :, None] - coords[:, None]).double().norm(dim=-1)[:, None]
        logits = logits - SLOPES.double()[:, None, None] * near
    return (logits.softmax(-1) @ value).transpose(1, 2).flatten(2)


def assert_the_formula(sources: list[Tensor], size: float, coords: Tensor | None = None) -> None:
    """With logits of some hundreds, which carry errors of their size, where `size` is above 1."""
    ours, expected = ([one.clone().requires_grad_() for one in sources] for _ in "ab")
    slopes = None if coords is None else SLOPES
    mixed, formula = training.attend(ours, 3, 0.3, slopes, coords), plainly(expected, 0.3, coords)
    atol = 1e-5 if size == 1 else 1e-3
    torch.testing.assert_close(mixed.double(), formula, rtol=1e-4, atol=atol)
    outer = drawn(*mixed.shape)
    mixed.backward(outer)
    formula.backward(outer.double())
    for one, other in zip(ours, expected, strict=True):
        assert one.grad is not None
        assert (one.grad - other.grad).norm() < atol * max(other.grad.norm(), outer.norm())


@pytest.mark.parametrize("far", [False, True], ids=["plain", "distances"])
@pytest.mark.parametrize("size", [1.0, 12.0])
@pytest.mark.parametrize("tokens", [1, 7, 16, 53, 130])
def test_values_and_gradients_are_those_of_the_formula(
    tokens: int, size: float, far: bool, threads: int
) -> None:
    """With queries and keys 12 times as large the largest logits are above what a power may be, or below."""
    joined = drawn(5, tokens, 3 * 3 * 16)
    joined[:, :, : 2 * 48] *= size
    assert_the_formula([joined], size, torch.rand(5, tokens, 2) if far else None)


@pytest.mark.parametrize("size", [1.0, 12.0])
@pytest.mark.parametrize(("asked", "tokens"), [(17, 100), (100, 17), (1, 9), (40, 3)])
@pytest.mark.parametrize("apart", [False, True])
def test_queries_read_tokens_of_another_number(
    asked: int, tokens: int, apart: bool, size: float, threads: int
) -> None:
    query, key, value = (
        size * drawn(4, asked, 48),
        size * drawn(4, tokens, 48),
        drawn(4, tokens + 1, 48)[:, 1:],
    )
    assert_the_formula([query, key, value] if apart else [query, torch.cat([key, value], dim=2)], size)


@pytest.mark.parametrize("common", [0.0, 30.0])
def test_in_bf16_gradients_are_those_of_float32(common: float) -> None:
    """Also where keys and values have much in common, which cancels in the derivatives of a softmax."""
    joined = drawn(4, 30, 3 * 3 * 16)
    joined[:, :, 48:] += common * drawn(2 * 48)
    joined, outer, coords = joined.bfloat16(), drawn(4, 30, 48).bfloat16(), torch.rand(4, 30, 2)
    low, exact = joined.clone().requires_grad_(), joined.double().requires_grad_()
    mixed = training.attend([low], 3, 0.1, SLOPES, coords)
    mixed.backward(outer)
    plainly([exact], 0.1, coords).backward(outer.double())
    assert mixed.dtype is torch.bfloat16
    assert (low.grad - exact.grad).norm() < 0.01 * exact.grad.norm()


def test_layers_train_through_it_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = layers.SelfAttention(32, 2, 16, qkv_bias=True)
    x, asked, attend = drawn(3, 9, 32), [], training.attend
    monkeypatch.setattr(training, "attend", lambda *given: asked.append(1) or attend(*given))
    monkeypatch.setattr(training, "pays", lambda *_: False)
    expected = gradients(attention, lambda: attention(x, 1.3))
    assert not asked
    monkeypatch.setattr(training, "pays", lambda *_: True)
    assert_alike(gradients(attention, lambda: attention(x, 1.3)), expected)
    assert len(asked) == 1
    attention(x, 1.3, torch.ones(1, 1, 1, 9, dtype=torch.bool))  # padding
    attention(x, torch.tensor(1.3, requires_grad=True))  # the scale wants a gradient
    with torch.no_grad():
        attention(x, 1.3)
    assert len(asked) == 1


@pytest.mark.parametrize("model", ["pens-a", "pens-r", "decoder-6x128", "lehd", "bq", "sit"])
@pytest.mark.parametrize("closed", [False, True])
def test_policies_have_the_same_gradients(model: str, closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    policy = build_path_policy(model).train()
    coords = torch.rand(2, 12, 2)
    coords[:, -1] = coords[:, 0] if closed else coords[:, -1]

    def scores() -> Tensor:
        torch.manual_seed(4)  # of PENS's node vectors
        features = policy.embed(PathNodes(coords, None, 11))
        return policy.scores(PathState(features, coords, None, None, closed, 11)).softmax(-1)

    found = []
    for pays in (False, True):
        monkeypatch.setattr(training, "pays", lambda *_, pays=pays: pays)
        found.append(gradients(policy, scores))
    assert_alike(*found)


def test_the_encoder_of_am_has_the_same_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x, found = Layer(AmConfig()), drawn(3, 11, 128), []
    for pays in (False, True):
        monkeypatch.setattr(training, "pays", lambda *_, pays=pays: pays)
        found.append(gradients(layer, lambda: layer(x, 0.25)))
    assert_alike(*found)


def gradients(module: nn.Module, work: object) -> list[Tensor]:
    module.zero_grad()
    made = work()  # type: ignore[operator]
    (made * drawn(*made.shape)).sum().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


def assert_alike(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected) > 0
    total = torch.stack([other.norm() for other in expected]).norm()
    assert total > 0
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() <= 1e-4 * total
