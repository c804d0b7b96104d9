"""The classifiers of Long Range Arena: padding, blocks, gradients, long sequences."""

from __future__ import annotations

import pytest
import torch

from nco_bench.cards import trained_by
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.device import PerDevice
from nco_bench.problems.lra import lra_task
from nco_bench.solvers.sequences import lra, tropical
from nco_bench.solvers.sequences.lra import (
    LRAClassifier,
    LRAConfig,
    lra_config,
    masked_attention,
    masked_layer,
)

LRA = trained_by("lra")
ATTENTIONS = [card.facts["attention"] for card in LRA.values()]


def small(attention: str, **sizes: int) -> LRAClassifier:
    torch.manual_seed(3)
    return LRAClassifier(LRAConfig(attention, 16, 10, **{"layers": 2, "width": 32, "heads": 2, **sizes}))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_padding_changes_no_answer(attention: str) -> None:
    model = small(attention).eval()
    tokens = torch.randint(1, 16, (3, 20))
    padded = torch.cat([tokens, torch.zeros(3, 9, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(padded), model(tokens), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_without_padding_a_layer_is_that_of_the_task_networks(attention: str) -> None:
    layer = small(attention).layers[0]
    x = torch.randn(2, 12, 32)
    mine = masked_layer(layer, x, torch.zeros(2, 12, dtype=torch.bool))
    torch.testing.assert_close(mine, layer(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", tropical.VARIANTS.values(), ids=list(tropical.VARIANTS))
def test_without_padding_every_variant_of_tropical_attention_is_itself(
    options: tropical.TropicalOptions,
) -> None:
    """The plain logarithm was undone by the inverse of the other one."""
    attention, x = tropical.TropicalAttention(32, 2, options), torch.randn(2, 12, 32)
    mine = masked_attention(attention, x, torch.zeros(2, 12, dtype=torch.bool))
    torch.testing.assert_close(mine, attention(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_blocks_of_queries_give_what_the_whole_gives(attention: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(attention).double()  # double precision takes the torch path, not the compiled loops
    tokens = torch.randint(0, 16, (2, 30))
    tokens[:, 0] = 5
    whole = model(tokens)
    monkeypatch.setattr(tropical, "BLOCK_ENTRIES", PerDevice(cpu=700, gpu=700))
    monkeypatch.setattr(lra, "ADAPTIVE_ENTRIES", 300)
    torch.testing.assert_close(model(tokens), whole)
    torch.testing.assert_close(model.float()(tokens), whole.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradients_are_those_of_finite_differences(attention: str) -> None:
    model = small(attention, layers=1, width=8).double()
    tokens = torch.tensor([[3, 7, 11, 2, 15, 0, 0], [12, 4, 4, 9, 1, 6, 15]])
    weight = model.embed.weight

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(tokens), torch.tensor([2, 7]))

    loss().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for n, p in model.named_parameters())
    for row, column in ((3, 1), (7, 4), (12, 0)):
        expected = weight.grad[row, column].item()
        with torch.no_grad():
            weight[row, column] += 1e-6
            above = loss().item()
            weight[row, column] -= 2e-6
            below = loss().item()
            weight[row, column] += 1e-6
        assert (above - below) / 2e-6 == pytest.approx(expected, rel=1e-3, abs=1e-7)


def test_order_matters_with_positions_only() -> None:
    tokens = torch.randint(1, 16, (1, 12))
    torch.manual_seed(0)
    model = LRAClassifier(LRAConfig("tropical", 16, 10, layers=1, width=16, heads=2, positions=False))
    torch.testing.assert_close(model(tokens), model(tokens.flip(1)), rtol=1e-4, atol=1e-5)
    model = small("tropical")
    assert (model(tokens) - model(tokens.flip(1))).abs().max() > 1e-3


def test_retrieval_reads_both_texts() -> None:
    model = small("tropical", texts=2)
    first, second, third = (torch.randint(1, 16, (2, n)) for n in (9, 14, 14))
    assert (model(first, second) - model(first, third)).abs().max() > 1e-3


def test_two_thousand_tokens_fit() -> None:
    config = lra_config("lra-tropical", "lra-listops", 16, 10, 1, layers=1, width=32, heads=2)
    model = LRAClassifier(config)
    logits = model(torch.randint(1, 16, (1, 2000)))
    logits.sum().backward()
    assert model.embed.weight.grad.isfinite().all()


def test_published_sizes_and_wrong_ones() -> None:
    config = lra_config("lra-tropical", "lra-listops", 16, 10, 1)
    assert (config.layers, config.width, config.heads) == (4, 512, 8)
    with pytest.raises(UnknownNameError, match="lra-tropical"):
        lra_config("lra-tropcal", "lra-listops", 16, 10, 1)
    with pytest.raises(BadInputError, match="multiple of twice the heads"):
        LRAClassifier(LRAConfig("tropical", 16, 10, width=30, heads=4))


@pytest.mark.parametrize("name", LRA)
def test_listed_parameters_are_those_of_the_networks(name: str) -> None:
    for task, listed in LRA[name].parameters.items():
        facts = lra_task(task)
        with torch.device("meta"):
            network = LRAClassifier(lra_config(name, task, facts.vocabulary, facts.classes, facts.texts))
        assert sum(p.numel() for p in network.parameters()) == listed
