"""Small policies with random but decided weights, and random instances."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nco_bench.nn.build import build_path_policy

SMALL = {
    "lehd": {"width": 16, "heads": 2, "head_dim": 8, "ffn": 16, "decoder_layers": 2},
    "bq": {"width": 16, "heads": 2, "ffn": 16, "layers": 2},
    "sigd": {"width": 16, "heads": 2, "ffn": 16, "blocks": 2},
    "sigd-lehd": {"width": 16, "heads": 2, "ffn": 16, "blocks": 1},
    "sit": {"width": 16, "heads": 2, "head_dim": 8, "ffn": 16, "layers": 2},
    "pens-a": {"width": 16, "heads": 2, "ffn": 16, "layers": 1},
    "decoder-6x128": {"depth": 2, "width": 16, "heads": 2, "head_dim": 8, "ffn": 16},
}
CVRP_POLICIES = ("lehd", "bq", "sigd", "sigd-lehd", "sit")


def small_policy(name: str, problem: str = "tsp") -> nn.Module:
    """Build a small policy whose scores are well apart: larger weights, residual scalars that are not 0."""
    torch.manual_seed(5)
    policy = build_path_policy(name, problem, **SMALL[name])
    with torch.no_grad():
        for key, parameter in policy.named_parameters():
            if parameter.dim() < 1 or (key.endswith(".weight") and parameter.dim() == 1):
                parameter.fill_(0.7)
            else:
                parameter.mul_(2.0)
    return policy


@pytest.fixture
def make_policy() -> Callable[..., nn.Module]:
    return small_policy


def random_cvrp(batch: int, customers: int, capacity: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Coordinates, demands 1..9 and capacities."""
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(batch, customers + 1, 2, generator=generator)
    demand = torch.randint(1, min(9, capacity) + 1, (batch, customers + 1), generator=generator)
    demand[:, 0] = 0
    return coords, demand, torch.full((batch,), capacity)


@pytest.fixture
def make_cvrp() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    return random_cvrp
