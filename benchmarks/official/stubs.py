"""Packages that the authors' code imports and the benchmark does without: empty ones, and neighbours by a plain search."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from typing import Any

import torch
from torch import Tensor


def without(*names: str, **values: Any) -> None:
    """Let missing packages be imported; `values` are what is asked of the last of them."""
    for name in names:
        whole = name.split(".")[0]
        if name in sys.modules or (whole not in sys.modules and importlib.util.find_spec(whole) is not None):
            continue
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(
            name, None
        )  # who looks for the package must not stumble
        module.__path__ = []  # type: ignore[attr-defined]
        for key, value in values.items():
            setattr(module, key, value)
        sys.modules[name] = module


def torch_cluster() -> None:
    """Put a search through all distances in the place of ``torch_cluster.knn``, which builds a tree anew at every step.

    On instances of these sizes that is the faster of the two, so the official code loses nothing.
    """
    without("torch_cluster", knn=knn)


def knn(points: Tensor, queries: Tensor, count: int, batch: Tensor, query_batch: Tensor) -> Tensor:
    """Return numbers of queries and of their nearest points, nearest first; one query per batch, batches in order."""
    sizes = torch.bincount(batch, minlength=len(queries)).tolist()
    found, first = [], 0
    for number, size in enumerate(sizes):
        distance = (points[first : first + size] - queries[number]).square().sum(-1)
        near = distance.topk(min(count, size), largest=False).indices + first
        found.append(torch.stack([torch.full_like(near, number), near]))
        first += size
    return torch.cat(found, dim=1)
