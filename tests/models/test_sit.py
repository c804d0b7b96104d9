"""SIT: the cheaper order of computation gives what the written-out attention gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.decoding.problem import tsp_problem
from nco_bench.models import sit
from nco_bench.models.path import path_state
from nco_bench.models.registry import build_path_policy
from nco_bench.models.sit import CrossAttention, Layer, SitConfig

CONFIG = SitConfig(width=24, heads=3, head_dim=8, ffn=32, layers=2)


def plain(attention: CrossAttention, queries: Tensor, keys: Tensor) -> Tensor:
    """Multi-head attention as in a textbook."""

    def heads(x: Tensor) -> Tensor:
        return x.unflatten(2, (3, 8)).transpose(1, 2)

    query, key, value = (
        heads(attention.query(queries)),
        heads(attention.key(keys)),
        heads(attention.value(keys)),
    )
    return attention.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("grad", [True, False])
def test_a_layer_is_two_textbook_attentions(grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sit, "CHUNK_TOKENS", 7)  # several pieces along the tokens
    torch.manual_seed(0)
    layer, few, many = Layer(CONFIG), torch.randn(3, 5, 24), torch.randn(3, 30, 24)
    few_1 = few + plain(layer.reading, few, many)
    few_2 = few_1 + layer.few_feed_forward(few_1)
    many_1 = many + plain(layer.writing, many, few_2)
    many_2 = many_1 + layer.many_feed_forward(many_1)
    with torch.set_grad_enabled(grad):
        ours = layer(few, many.clone(), 8**-0.5)
    torch.testing.assert_close(ours[0], few_2)
    torch.testing.assert_close(ours[1], many_2)


def test_scoring_twice_gives_the_same_although_tokens_are_overwritten() -> None:
    policy = build_path_policy("sit", width=24, heads=3, head_dim=8, ffn=32, layers=2)
    problem = tsp_problem(torch.rand(2, 20, 2))
    with torch.inference_mode():
        state = path_state(problem.nodes, policy.embed(problem.nodes), problem.rows, closed=True)
        assert torch.equal(policy.scores(state), policy.scores(state))
