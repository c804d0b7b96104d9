"""Products by oneDNN are those of PyTorch's own, with their derivatives, wherever they are used."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn import layers, packed, products
from nco_bench.nn.build import build_path_policy

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Let all products of any size go to oneDNN, whatever the processor; returns the shapes of those that did."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(products, "faster", lambda: True)
    monkeypatch.setattr(products, "FEWEST", 0)
    monkeypatch.setattr(packed, "FEWEST_PACKED", 0)
    found: list[tuple[int, ...]] = []
    made = products.called

    def noted(x: Tensor, weight: Tensor, bias: Tensor | None = None, then: str = "none") -> Tensor:
        found.append((*x.shape, weight.shape[0]))
        return made(x, weight, bias, then)

    monkeypatch.setattr(products, "called", noted)
    return found


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(40, 32), (3, 20, 32), (1, 1, 32)])
def test_linear_is_that_of_torch(shape: tuple[int, ...], bias: bool, calls: list[Any]) -> None:
    x, weight, added = drawn(*shape), drawn(48, 32), drawn(48) if bias else None
    with torch.no_grad():
        found = products.linear(x, weight, added)
    assert len(calls) == 1
    torch.testing.assert_close(found, F.linear(x, weight, added), **CLOSE)


def test_views_are_multiplied_as_they_stand(calls: list[Any]) -> None:
    with torch.no_grad():
        rows = drawn(4, 30, 64)[:, 5:25, ::2]
        turned = drawn(32, 48).T
        torch.testing.assert_close(products.linear(rows, turned), F.linear(rows, turned), **CLOSE)
        assert len(calls) == 1
        strided = drawn(48, 64)[:, ::2]
        torch.testing.assert_close(products.linear(rows, strided), F.linear(rows, strided), **CLOSE)
    assert len(calls) == 1  # oneDNN has no quick product with such a weight


@pytest.mark.parametrize("wide", [16, 96])
def test_derivatives_are_those_of_torch(wide: int, calls: list[Any]) -> None:
    def gradients(function: Any) -> list[Tensor]:
        leaves = [t.requires_grad_() for t in (drawn(5, 12, 32), drawn(wide, 32), drawn(wide))]
        function(*leaves).square().sum().backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    ours = gradients(products.linear)
    assert len(calls) == 3
    for found, known in zip(ours, gradients(F.linear), strict=True):
        torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-3)


def test_derivatives_of_what_is_asked_for_alone(calls: list[Any]) -> None:
    x, weight = drawn(20, 32), drawn(48, 32).requires_grad_()
    products.linear(x, weight).sum().backward()
    assert len(calls) == 2
    assert x.grad is None
    assert weight.grad is not None


@torch.no_grad()
def test_numbers_of_rows_repeat(calls: list[Any]) -> None:
    """oneDNN compiles for each number of rows: 300 of them are a few, filled up by what follows in memory or by zeros."""
    weight = drawn(48, 32)
    for rows in range(700, 1000):
        x = drawn(1000, 32)[:rows]
        torch.testing.assert_close(products.linear(x, weight), F.linear(x, weight), **CLOSE)
        torch.testing.assert_close(products.linear(x.T.contiguous().T, weight), x @ weight.T, **CLOSE)
    assert len(calls) == 600
    assert {call[0] for call in calls} == {704, 736, 768, 800, 832, 864, 896, 928, 960, 992, 1024}
    assert [products.coarse(n) for n in (1, 2, 31, 33, 1025)] == [1, 2, 31, 34, 1088]


@torch.no_grad()
def test_the_others_are_those_of_torch(calls: list[Any]) -> None:
    x, weight, total = drawn(40, 32), drawn(48, 32), drawn(40, 48)
    torch.testing.assert_close(
        products.add_product(total.clone(), x, weight, 0.5), total + 0.5 * x @ weight.T, **CLOSE
    )
    into = torch.empty(40, 48)
    assert products.product(x, weight, into) is into
    torch.testing.assert_close(into, x @ weight.T, **CLOSE)
    for batch in (1, 3):
        some, weights = drawn(batch, 40, 32), drawn(batch, 48, 32)
        torch.testing.assert_close(
            products.each_linear(some, weights), some @ weights.transpose(1, 2), **CLOSE
        )
        sums = products.add_each(drawn(batch, 40, 48), some, weights)
        torch.testing.assert_close(sums, drawn(batch, 40, 48) + some @ weights.transpose(1, 2), **CLOSE)
    assert len(calls) == 10


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [20, 100, 101])
def test_packed_weights_give_the_same(rows: int, bias: bool, calls: list[Any]) -> None:
    x, total, weight, added = drawn(rows, 32), drawn(rows, 48), drawn(48, 32), drawn(48) if bias else None
    kept_map, expected = packed.Packed(weight, added), F.linear(x, weight, added)
    kept = total.clone()
    with torch.no_grad():
        torch.testing.assert_close(kept_map(x), expected, **CLOSE)
        torch.testing.assert_close(kept_map.rectified(x), expected.relu(), **CLOSE)
        torch.testing.assert_close(kept_map.added(total, x), total + expected, **CLOSE)
        assert torch.equal(total, kept)
        before, kept_map.fewest = len(calls), rows + 1
        assert before == (2 if rows == products.coarse(rows) else 3)
        assert torch.equal(kept_map(x), expected)
        torch.testing.assert_close(kept_map.added(total, x), total + expected, **CLOSE)
        assert torch.equal(kept_map.rectified(x), expected.relu())
    assert len(calls) == before


def test_small_products_and_other_precisions_stay(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        products.linear(drawn(40, 32), drawn(2, 32))  # a narrow weight
        products.linear(drawn(40, 32).double(), drawn(48, 32).double())
        with torch.autocast("cpu", torch.bfloat16):
            assert products.linear(drawn(40, 32), drawn(48, 32)).dtype == torch.bfloat16
        monkeypatch.setattr(products, "FEWEST", 40 * 32 * 48 + 1)
        products.linear(drawn(40, 32), drawn(48, 32))
    assert not calls


def test_other_processors_keep_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "faster", lambda: False)
    network = products.adopt(nn.Sequential(nn.Linear(32, 48)))
    assert type(network[0]) is nn.Linear
    x, weight = drawn(64, 512), drawn(512, 512)
    with torch.no_grad():
        assert torch.equal(products.linear(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("name", ["decoder-6x128", "pens-a", "lehd", "sit", "difusco"])
def test_networks_are_built_with_it(name: str, calls: list[Any]) -> None:
    network = build_path_policy(name)
    maps = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert {type(module) for module in maps} == {products.Linear}
    assert set(build_path_policy(name).state_dict()) == set(network.state_dict())


def test_a_weight_for_each_instance_has_the_derivatives_of_torch(calls: list[Any]) -> None:
    x, weights, slope = drawn(3, 20, 32).requires_grad_(), drawn(3, 32, 48).requires_grad_(), drawn(3, 20, 48)
    expected = torch.autograd.grad(torch.bmm(x, weights), (x, weights), slope)
    found = torch.autograd.grad(products.each_linear(x, weights.transpose(1, 2)), (x, weights), slope)
    assert len(calls) == 9  # forward, and twice backward, of three instances
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.parametrize("gelu", [False, True])
@pytest.mark.parametrize(("rows", "bias"), [(19, True), (20, False)])
def test_a_feed_forward_block_has_the_derivatives_of_torch(
    rows: int, bias: bool, gelu: bool, calls: list[Any]
) -> None:
    x, slope = drawn(3, rows, 32).requires_grad_(), drawn(3, rows, 32)
    inner, outer = nn.Linear(32, 64, bias=bias), nn.Linear(64, 32, bias=bias)
    factor = torch.tensor(0.7, requires_grad=True)
    wanted = (x, factor, *inner.parameters(), *outer.parameters())
    expected = factor * outer((F.gelu if gelu else F.relu)(inner(x)))
    slopes = torch.autograd.grad(expected, wanted, slope)
    found = products.feed_forward(x, inner, outer, factor, gelu=gelu)
    ours = torch.autograd.grad(found, wanted, slope)
    assert len(calls) == 6
    for one, other in zip((found, *ours), (expected, *slopes), strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    with torch.no_grad():
        torch.testing.assert_close(
            products.feed_forward(x, inner, outer, factor, gelu=gelu), expected, **CLOSE
        )


@pytest.mark.parametrize("rows", [20, 41])  # 41 are filled up to 42
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_map_is_added(rows: int, alpha: float, calls: list[Any]) -> None:
    x, total, weight, bias = drawn(rows, 32), drawn(rows, 48), drawn(48, 32), drawn(48)
    expected = total + alpha * F.linear(x, weight, bias)
    with torch.no_grad():
        torch.testing.assert_close(products.added(total.clone(), x, weight, bias, alpha), expected, **CLOSE)
        bare = products.added(total.clone(), x, weight, None, alpha)
    torch.testing.assert_close(bare, expected - alpha * bias, **CLOSE)


def test_tokens_with_room_are_not_copied(calls: list[Any]) -> None:
    heads = drawn(1, 4, 41, 8)
    with torch.no_grad():
        tokens = products.roomy(heads.transpose(1, 2)).flatten(2)
        assert torch.equal(tokens, heads.transpose(1, 2).flatten(2))
        assert products.roomy(tokens).data_ptr() == tokens.data_ptr()
        filled = products._with_rows(tokens, 41, 42)
    assert filled.data_ptr() == tokens.data_ptr()
    assert torch.equal(filled[41], torch.zeros(32))


def test_parts_by_heads_have_the_derivatives_of_torch() -> None:
    joined = drawn(2, 5, 3 * 4 * 8).requires_grad_()
    slopes = [drawn(2, 4, 5, 8), drawn(2, 4, 5, 8) * 2]
    plain = joined.unflatten(2, (3, 4, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    parts = layers.split_parts(joined, 3, 4)
    assert all(torch.equal(one, other) for one, other in zip(parts, plain, strict=True))
    # The third part is not used.
    expected = torch.autograd.grad(plain[:2], joined, slopes)
    assert torch.equal(torch.autograd.grad(parts[:2], joined, slopes)[0], expected[0])


def test_what_is_no_number_stays_so_in_training(calls: list[Any]) -> None:
    inner, outer = nn.Linear(32, 64), nn.Linear(64, 32)
    with torch.no_grad():
        inner.weight[5] = torch.nan
    assert products.feed_forward(drawn(3, 20, 32), inner, outer).isnan().all()
