"""Labelled instances whose optimal tours are known: points on a circle, visited by angle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def circle(count: int, nodes: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Points on a circle in random order; a convex polygon's optimal tour is its boundary."""
    rng = np.random.default_rng(seed)
    angles = rng.random((count, nodes)) * 2 * np.pi
    coords = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return coords, np.argsort(angles, axis=1)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Three shards of 40 labelled instances of 10 nodes."""
    folder = tmp_path / "labels"
    folder.mkdir()
    paths = []
    for number in range(3):
        coords, tours = circle(40, 10, seed=number)
        paths.append(folder / f"shard-{number}.npz")
        np.savez(paths[-1], coords=coords, tours=tours)
    return paths
