"""A stand-in for the one function of torch-cluster that INViT's and DGL's code calls; the package needs a compiler."""

from __future__ import annotations

import sys
from types import ModuleType

import torch
from torch import Tensor


def knn(x: Tensor, y: Tensor, k: int, batch_x: Tensor, batch_y: Tensor) -> Tensor:
    """Return ``(2, M)``: rows of `y`, and the rows of `x` of the same batch nearest to each, nearest first."""
    asked, found = [], []
    for row, (point, batch) in enumerate(zip(y, batch_y, strict=True)):
        members = (batch_x == batch).nonzero().flatten()
        distance = (x[members] - point).norm(dim=1)
        near = members[distance.topk(min(k, len(members)), largest=False).indices]
        asked.append(torch.full_like(near, row))
        found.append(near)
    return torch.stack([torch.cat(asked), torch.cat(found)])


def stand_in() -> None:
    """Let ``from torch_cluster import knn`` find the function above."""
    module = ModuleType("torch_cluster")
    module.knn = knn  # type: ignore[attr-defined]
    sys.modules["torch_cluster"] = module
