"""Tokens in a matrix that is filled up once go through the same layers to the same scores."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor

from nco_bench.nn import filled, packed, products
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.policy import PathNodes, path_state

CASES = [(name, problem) for name in ("lehd", "sit") for problem in ("tsp", "cvrp")] + [
    ("decoder-6x128", "tsp")
]
MODULES = {"lehd": "lehd", "sit": "sit", "decoder-6x128": "decoder_only"}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[filled.Filled]:
    """Let oneDNN multiply, whatever the processor; returns the tokens that were filled up."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this build of PyTorch has no oneDNN")
    monkeypatch.setattr(products, "faster", lambda: True)
    found: list[filled.Filled] = []
    begin = filled.Filled.__init__

    def noted(self: filled.Filled, *parts: Tensor) -> None:
        found.append(self)
        begin(self, *parts)

    monkeypatch.setattr(filled.Filled, "__init__", noted)
    return found


def scores(policy: Any, batch: int, count: int) -> Tensor:
    """Scores of a state of so many nodes."""
    draw = torch.Generator().manual_seed(count)
    cvrp = policy.problem == "cvrp"
    demand, left = torch.rand(batch, count, generator=draw) / 9, torch.rand(batch, generator=draw)
    nodes = PathNodes(torch.rand(batch, count, 2, generator=draw), demand if cvrp else None, count)
    with torch.inference_mode():
        features = policy.embed(nodes)
        rows = torch.stack([torch.randperm(count, generator=draw) for _ in range(batch)])
        return policy.scores(path_state(nodes, features, rows, remaining=left if cvrp else None))


@pytest.mark.parametrize(("batch", "count"), [(8, 37), (1, 100), (13, 100), (40, 45)])
@pytest.mark.parametrize(("name", "problem"), CASES)
def test_scores_are_those_of_the_layers(
    name: str, problem: str, batch: int, count: int, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = build_path_policy(name, problem).eval()
    for key, value in policy.named_parameters():
        if "alpha" in key:  # an untrained decoder's branches count for nothing
            torch.nn.init.constant_(value, 0.3)
    quick = scores(policy, batch, count)
    few = name == "sit" and batch == 1  # its 16 representatives are too few for that library
    assert len(made) == (0 if few else 3 if name == "sit" else 1)
    monkeypatch.setattr(f"nco_bench.solvers.path.{MODULES[name]}.pays", lambda *_: False)
    torch.testing.assert_close(quick, scores(policy, batch, count), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["decoder.2", "decoder.2.attention"])
def test_layers_are_called_where_somebody_listens(part: str, made: list[Any]) -> None:
    policy = build_path_policy("lehd", "tsp").eval()
    heard: list[str] = []
    handle = policy.get_submodule(part).register_forward_hook(lambda *_: heard.append(part))
    scores(policy, 8, 37)
    assert not made  # the layer was called as a module; of its attention, only what is called so is heard
    assert bool(heard) == (part == "decoder.2")
    handle.remove()
    scores(policy, 8, 37)
    assert made


def test_other_precisions_and_gradients_go_layer_by_layer(made: list[Any]) -> None:
    policy = build_path_policy("lehd", "tsp").eval()
    nodes = PathNodes(torch.rand(8, 37, 2), None, 37)
    state = path_state(nodes, policy.embed(nodes), torch.arange(37).expand(8, -1))
    policy.scores(state).sum().backward()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        policy.scores(state)
    assert not made


def test_packed_weights_follow_their_maps(made: list[Any]) -> None:
    linear, x = torch.nn.Linear(64, 48), torch.randn(96, 64)
    with torch.inference_mode():
        before = packed.mapped(x, linear)
        torch.testing.assert_close(before, linear(x), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        linear.weight.mul_(2)  # as optimisers and `load_state_dict` do
    for other in (linear, copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
        with torch.inference_mode():
            torch.testing.assert_close(packed.mapped(x, other), other(x), rtol=1e-5, atol=1e-5)
    linear.weight = torch.nn.Parameter(torch.randn(48, 64))
    with torch.inference_mode():
        torch.testing.assert_close(packed.mapped(x, linear), linear(x), rtol=1e-5, atol=1e-5)
    assert list(linear.state_dict()) == ["weight", "bias"]


def test_weights_of_inference_mode_are_taken_as_they_are(made: list[Any]) -> None:
    with torch.inference_mode():
        linear, x = torch.nn.Linear(64, 48), torch.randn(96, 64)
        packed.mapped(x, linear)
        linear.weight.mul_(2)
        torch.testing.assert_close(packed.mapped(x, linear), linear(x), rtol=1e-5, atol=1e-5)
