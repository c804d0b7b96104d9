"""The joined maps of a first layer against the layer itself: values, gradients, and where they are not for."""

from __future__ import annotations

import pytest
import torch

from nco_bench.solvers.sequences import few_features
from nco_bench.solvers.sequences.task_networks import (
    EncoderLayer,
    TaskNetwork,
    TaskNetworkConfig,
    build_task_network,
)


def uneven(name: str, features: int) -> tuple[TaskNetwork, EncoderLayer]:
    """A network whose norms and biases are not those of a fresh one, nor its attention nearly uniform."""
    torch.manual_seed(0)
    network = build_task_network(name, features, pooled=False)
    layer = network.layers[0]
    assert isinstance(layer, EncoderLayer)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1).mul_(1.5)
    return network, layer


@pytest.mark.parametrize("tokens", [1, 8, few_features.SHORT + 5])
@pytest.mark.parametrize("features", [1, 4])
@pytest.mark.parametrize("name", ["vanilla", "adaptive"])
def test_values_and_gradients_are_those_of_the_layer(name: str, features: int, tokens: int) -> None:
    network, layer = uneven(name, features)
    x = torch.rand(40, tokens, features) * 4 - 1
    assert few_features.pays(x, layer)
    wanted = layer(network.embed(x))
    found = few_features.first_layer(x, network.embed, layer)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=2e-5)
    with torch.no_grad():
        torch.testing.assert_close(network.encode(x), wanted, rtol=1e-4, atol=2e-5)
    used = [*network.embed.parameters(), *layer.parameters()]
    weight = torch.randn_like(wanted)
    for mine, plain in zip(
        torch.autograd.grad((found * weight).sum(), used),
        torch.autograd.grad((wanted * weight).sum(), used),
        strict=True,
    ):
        torch.testing.assert_close(mine, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()) + 1e-4)


def test_blocks_of_rows_are_one_result(monkeypatch: pytest.MonkeyPatch) -> None:
    network, layer = uneven("adaptive", 2)
    x = torch.rand(7, 9, 2)
    whole = few_features.first_layer(x, network.embed, layer)
    monkeypatch.setattr(few_features, "ROWS_AT_A_TIME", 10)
    torch.testing.assert_close(few_features.first_layer(x, network.embed, layer), whole)


def test_many_features_other_layers_and_bf16_take_the_plain_way() -> None:
    def pays(config: TaskNetworkConfig) -> bool:
        layer = TaskNetwork(config).layers[0]
        assert isinstance(layer, EncoderLayer)
        return few_features.pays(torch.rand(2, 3, config.features), layer)

    assert pays(TaskNetworkConfig(4, False, "vanilla"))
    assert not pays(TaskNetworkConfig(9, False, "vanilla"))
    assert not pays(TaskNetworkConfig(1, False, "tropical"))
    assert not pays(TaskNetworkConfig(1, False, "vanilla", pre_norm=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not pays(TaskNetworkConfig(1, False, "vanilla"))
