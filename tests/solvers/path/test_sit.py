"""SIT: the cheaper order of computation gives what the written-out attention gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn import packed, products
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import PerDevice
from nco_bench.solvers.path import sit, sit_pieces, sit_streaming
from nco_bench.solvers.path.policy import PathState, path_state
from nco_bench.solvers.path.problem import cvrp_problem, tsp_problem
from nco_bench.solvers.path.sit import CrossAttention, Layer, Sit, SitConfig

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


def drawn(policy: Sit, problem: str, batch: int, count: int) -> PathState:
    """The first step of random instances."""
    coords, remaining = torch.rand(batch, count, 2), None
    if problem == "cvrp":
        demand, capacity = torch.randint(1, 9, (batch, count)), torch.full((batch,), 30)
        task, remaining = cvrp_problem(coords, demand, capacity), torch.linspace(1.0, 0.2, batch)
    else:
        task = tsp_problem(coords)
    return path_state(task.nodes, policy.embed(task.nodes), task.rows, closed=True, remaining=remaining)


def test_a_layer_is_two_textbook_attentions() -> None:
    torch.manual_seed(0)
    layer, few, many = Layer(CONFIG), torch.randn(3, 5, 24), torch.randn(3, 30, 24)
    few_1 = few + plain(layer.reading, few, many)
    few_2 = few_1 + layer.few_feed_forward(few_1)
    many_1 = many + plain(layer.writing, many, few_2)
    many_2 = many_1 + layer.many_feed_forward(many_1)
    ours = layer(few, many, 8**-0.5)
    torch.testing.assert_close(ours[0], few_2)
    torch.testing.assert_close(ours[1], many_2)


@pytest.mark.parametrize("chunk", [17, 50, 1000])  # pieces of an instance, instance by instance, all at once
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_inference_computes_the_plain_network_however_tokens_are_cut(
    problem: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sit_streaming, "CHUNK_TOKENS", PerDevice(cpu=chunk, gpu=chunk))
    monkeypatch.setattr(sit, "STREAMED_FROM", 0)
    torch.manual_seed(0)
    policy = build_path_policy("sit", problem, width=24, heads=3, head_dim=8, ffn=32, layers=3)
    state = drawn(policy, problem, 3, 20)
    with torch.no_grad():
        streamed = policy.scores(state)
        monkeypatch.setattr(sit, "STREAMED_FROM", 1000)
        in_place = policy.scores(state)
    plain_scores = policy.scores(state).detach()
    torch.testing.assert_close(streamed, plain_scores, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(in_place, plain_scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
def test_tokens_that_are_filled_up_change_no_score(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sit, "STREAMED_FROM", 0)
    monkeypatch.setattr(sit_streaming, "CHUNK_TOKENS", PerDevice(cpu=80, gpu=80))
    torch.manual_seed(0)
    policy = build_path_policy("sit", width=24, heads=3, head_dim=8, ffn=32, layers=3)
    task = tsp_problem(torch.rand(batch, 300, 2))
    state = path_state(task.nodes, policy.embed(task.nodes), task.rows, closed=True)
    found = []
    for faster in (False, True):
        monkeypatch.setattr(sit_streaming, "faster", lambda faster=faster: faster)
        with torch.no_grad():
            found.append(policy.scores(state))
    tokens = state.candidates + 1 + policy.config.repeats
    assert sit_streaming.filled(tokens, state.features.device) > tokens
    assert found[0].shape == found[1].shape
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_instances_that_pass_one_by_one_get_the_same_scores(
    problem: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sit, "STREAMED_FROM", 0)
    monkeypatch.setattr(sit_streaming, "CHUNK_TOKENS", PerDevice(cpu=120, gpu=120))
    for module in (products, sit_streaming):
        monkeypatch.setattr(module, "faster", lambda: torch.backends.mkldnn.is_available())
    monkeypatch.setattr(products, "FEWEST", 1)
    monkeypatch.setattr(packed, "FEWEST_PACKED", 1)
    torch.manual_seed(0)
    policy = build_path_policy("sit", problem, width=48, heads=3, head_dim=16, ffn=64, layers=3)
    state, known = (
        drawn(policy, problem, batch, 100 if batch > 1 else 300),
        torch.backends.mkldnn.is_available(),
    )
    pays = [sit_pieces.Alone.pays]
    with torch.no_grad():
        with monkeypatch.context() as watched:
            watched.setattr(sit_pieces.Alone, "pays", lambda *given: pays.append(pays[0](*given)) or pays[-1])
            alone = policy.scores(state)
        assert pays[1:] == [known]
        monkeypatch.setattr(sit_pieces.Alone, "pays", lambda *given: False)
        together = policy.scores(state)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 5])  # pieces of an instance, groups of instances
def test_scores_are_the_same_bit_for_bit_with_any_number_of_threads(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sit, "STREAMED_FROM", 0)
    monkeypatch.setattr(sit_streaming, "CHUNK_TOKENS", PerDevice(cpu=80, gpu=80))
    torch.manual_seed(0)
    policy = build_path_policy("sit", width=24, heads=3, head_dim=8, ffn=32, layers=3)
    task = tsp_problem(torch.rand(batch, 60 if batch > 1 else 400, 2))
    state = path_state(task.nodes, policy.embed(task.nodes), task.rows, closed=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            with torch.no_grad():
                found.append(policy.scores(state))
    finally:
        torch.set_num_threads(before)
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
