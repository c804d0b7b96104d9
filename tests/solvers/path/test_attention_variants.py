"""SIT with self-attention (its Table 3) and BQ with cross-attention (Table 10): by other code, and by the equations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import UnknownNameError
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.solvers.path.bq import BqConfig, CrossLayer
from nco_bench.solvers.path.policy import PathState
from nco_bench.training.run import train
from nco_bench.weights.store import load_into, resolve

SMALL = {"width": 24, "heads": 3, "head_dim": 8, "ffn": 32}


def _state(problem: str, width: int, nodes: int, features: Tensor) -> PathState:
    demand = torch.rand(2, nodes) if problem == "cvrp" else None
    remaining = torch.tensor([0.4, 0.9]) if problem == "cvrp" else None
    return PathState(features, torch.rand(2, nodes, 2), demand, remaining, False, 100)


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_sit_without_cross_attention_is_lehds_decoder_on_embedded_nodes(problem: str) -> None:
    """LEHD, checked against its official outputs elsewhere, without encoder and with the same numbers."""
    torch.manual_seed(0)
    ours: Any = build_path_policy("sit", problem, attention="self", repeats=1, layers=3, **SMALL)
    lehd: Any = build_path_policy("lehd", problem, encoder_layers=0, decoder_layers=3, **SMALL)
    lehd.load_state_dict({k.replace("layers.", "decoder."): v for k, v in ours.state_dict().items()})
    raw = torch.rand(2, 12, 3 if problem == "cvrp" else 2)
    with torch.no_grad():
        found = ours.scores(_state(problem, 24, 12, raw))
        expected = lehd.scores(_state(problem, 24, 12, lehd.embedding(raw)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_ablation_differs_in_nothing_but_its_layers() -> None:
    """Each of six layers: four maps of 128 x 128 with one bias, feed-forward 128-512-128; SIT's has two of each."""
    cross, self_ = (build_path_policy("sit", "cvrp", attention=attention) for attention in ("cross", "self"))
    half = 4 * 128 * 128 + 128 + 2 * 128 * 512 + 512 + 128
    assert count_parameters(cross) - count_parameters(self_) == 6 * half


def _heads(x: Tensor) -> Tensor:
    return x.unflatten(2, (3, 8)).transpose(1, 2)


def test_bqs_cross_attention_is_equations_3_and_4_in_bqs_layers() -> None:
    torch.manual_seed(0)
    layer = CrossLayer(BqConfig(width=24, heads=3, ffn=32, attention="cross"))
    with torch.no_grad():
        for name, value in layer.named_parameters():
            if "alpha" in name:
                value.uniform_(0.5, 1.5)
    few, many = torch.randn(2, 2, 24), torch.randn(2, 9, 24)

    def half(part: Any, x: Tensor, tokens: Tensor) -> Tensor:
        key, value = part.attention.key_value(tokens).chunk(2, dim=2)
        logits = _heads(part.attention.query(x)) @ _heads(key).transpose(2, 3)  # BQ does not divide
        read = (logits.softmax(3) @ _heads(value)).transpose(1, 2).flatten(2)
        x = x + part.alpha_attention * part.attention.out(read)
        hidden = F.relu(part.feed_forward.inner(x))
        return x + part.alpha_ffn * part.feed_forward.outer(hidden)

    expected_few = half(layer.reading, few, many)
    expected_many = half(layer.writing, many, expected_few)
    found_few, found_many = layer(few, many, 1.0)
    torch.testing.assert_close(found_few, expected_few)
    torch.testing.assert_close(found_many, expected_many)
    score = torch.nn.Linear(24, 2)
    torch.testing.assert_close(layer.scored(few, many, 1.0, score), score(expected_many[:, 1:-1]))


@pytest.mark.parametrize(("model", "attention"), [("sit", "self"), ("bq", "cross")])
def test_variants_train_by_sit_and_their_weights_run(tmp_path: Path, model: str, attention: str) -> None:
    sizes = {"width": "16", "heads": "2", "ffn": "32", "layers": "2", "attention": attention}
    config = {
        "learner": "self-improved", "size": "12", "instances": "8", "batch": "4", "rounds_updates": "2", "steps": "5",
        "iterations": "2", "longest": "13", "longest_start": "13", "validation_instances": "4",
        "auxiliary": "0", **{f"model.{key}": value for key, value in sizes.items()},
    }  # fmt: skip
    done = train(model, (), config, out=tmp_path / "w", problem="cvrp", progress="silent")
    file = resolve(str(done.weights), model, "cvrp")
    assert file.manifest.config["attention"] == attention
    load_into(build_path_policy(model, "cvrp", **file.manifest.config), file)


@pytest.mark.parametrize("model", ["sit", "bq"])
def test_an_unknown_attention_is_named(model: str) -> None:
    with pytest.raises(UnknownNameError, match="attention of"):
        build_path_policy(model, attention="linear")
