"""Compiled attention is the plain formula, and layers take it where it pays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nco_bench.nn import layers

compiled = pytest.importorskip("nco_bench.nn.compiled_attention")


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("tokens", [7, 256, 300])
def test_it_computes_the_plain_formula(tokens: int, size: float, threads: int) -> None:
    """With queries and keys 40 times as large, logits of later tiles are far above those of the first."""
    query, key, value = (
        part * factor for part, factor in zip(drawn(3, 2, 4, tokens, 16), (size, size, 1), strict=True)
    )
    slopes, coords = torch.tensor([10.0, 5.0, 2.5, 1.25]), torch.rand(2, tokens, 2)
    near = (coords[:, :, None] - coords[:, None]).double().norm(dim=-1)[:, None]
    logits = 0.7 * query.double() @ key.double().transpose(2, 3)
    with torch.no_grad():
        plain = compiled.attend(query, key, value, 0.7)
        far = compiled.attend(query, key, value, 0.7, slopes, coords)
    for ours, expected in ((plain, logits), (far, logits - slopes[:, None, None] * near)):
        found = expected.softmax(-1) @ value.double()
        torch.testing.assert_close(ours.double(), found, atol=1e-5 if size == 1 else 2e-3, rtol=1e-4)


@pytest.mark.parametrize("queries", [130, 300])
def test_layers_take_it_where_it_pays(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query, (key, value) = drawn(2, 4, queries, 16), drawn(2, 2, 4, 200, 16)
    monkeypatch.setattr(compiled, "pays", lambda *_: False)
    asked, attend = [], compiled.attend
    monkeypatch.setattr(compiled, "attend", lambda *given: asked.append(1) or attend(*given))
    with torch.inference_mode():
        expected = layers.attend(query, key, value, 0.3)
        monkeypatch.setattr(compiled, "pays", lambda *_: True)
        torch.testing.assert_close(layers.attend(query, key, value, 0.3), expected, rtol=1e-4, atol=1e-5)
        assert len(asked) == 1
        learned = torch.tensor(0.3)
        torch.testing.assert_close(layers.attend(query, key, value, learned), expected, rtol=1e-4, atol=1e-5)
        layers.attend(query[:, :, :100], key, value, 0.3)
        layers.attend(query, key, value, 0.3, torch.ones(1, 1, 1, 200, dtype=torch.bool))
    layers.attend(query, key, value, 0.3)  # gradients are asked for
    assert len(asked) == 2
