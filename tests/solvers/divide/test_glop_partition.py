"""GLOP's partition network: compiled layers compute what those with gradients do, whole or in blocks."""

from __future__ import annotations

import pytest
import torch

from nco_bench.solvers.divide import glop_partition
from nco_bench.solvers.divide.glop_partition import PartitionNetwork


def network() -> PartitionNetwork:
    """An untrained network whose norms have statistics and maps of their own."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = PartitionNetwork(units=12, depth=3)
        for layer in model.layers:
            for norm in (layer.node_norm, layer.edge_norm):
                norm.weight.data.uniform_(-2, 2)
                norm.bias.data.uniform_(-1, 1)
                norm.running_mean.uniform_(-1, 1)
                norm.running_var.uniform_(0.5, 2)
    return model.eval()


@pytest.mark.parametrize("entries", [5 * 4 * 12, 2**18])
def test_compiled_layers_compute_what_those_with_gradients_do(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glop_partition, "ENTRIES_AT_A_TIME", entries)
    generator, model = torch.Generator().manual_seed(1), network()
    nodes, edges = torch.randn(13, 3, generator=generator), torch.randn(13, 4, 2, generator=generator)
    neighbours = torch.randint(13, (13, 4), generator=generator)
    plain = model(nodes, edges, neighbours)
    assert plain.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(model(nodes, edges, neighbours), plain, rtol=1e-4, atol=1e-5)


def test_statistics_of_the_batch_are_taken_in_training_without_gradients_too() -> None:
    generator, model = torch.Generator().manual_seed(1), network().train()
    given = torch.randn(13, 3, generator=generator), torch.randn(13, 4, 2, generator=generator)
    neighbours = torch.randint(13, (13, 4), generator=generator)
    plain = model(*given, neighbours)
    with torch.no_grad():
        torch.testing.assert_close(model(*given, neighbours), plain.detach())
