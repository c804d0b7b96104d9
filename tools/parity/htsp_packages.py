"""Stand-ins for two packages that H-TSP's code builds on: Lightning's base class, and two reductions of torch-scatter."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn


class LightningModule(nn.Module):
    """What the authors' modules ask of their base class outside a trainer."""

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def save_hyperparameters(self, _settings: Any) -> None:
        """Keep nothing: no checkpoint is written."""

    def log(self, *_given: Any, **_named: Any) -> None:
        """Log nothing."""

    log_dict = log


def scatter_mean(source: Tensor, index: Tensor, dim: int) -> Tensor:
    """Return the mean of the rows of each group, ``(M, C)``."""
    return reduced(source, index, dim, "mean")


def scatter_max(source: Tensor, index: Tensor, dim: int) -> tuple[Tensor, None]:
    """Return the largest of the rows of each group; which rows they are is never asked."""
    return reduced(source, index, dim, "amax"), None


def reduced(source: Tensor, index: Tensor, dim: int, how: str) -> Tensor:
    groups = source.new_zeros(int(index.max()) + 1, source.shape[1])
    return groups.scatter_reduce(dim, index[:, None].expand_as(source), source, how, include_self=False)


def stand_in() -> None:
    """Let the authors' imports find what is above."""
    lightning, scatter = ModuleType("pytorch_lightning"), ModuleType("torch_scatter")
    lightning.LightningModule = LightningModule  # type: ignore[attr-defined]
    scatter.scatter_mean, scatter.scatter_max = scatter_mean, scatter_max  # type: ignore[attr-defined]
    sys.modules |= {"pytorch_lightning": lightning, "torch_scatter": scatter}
    for part in ("loggers", "callbacks", "plugins"):
        sys.modules[f"pytorch_lightning.{part}"] = MagicMock()
