"""States after wrong turns: real path problems with their optimal completion."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.training.learners.detours import DetourOptions, make_detours, save_paths, shortest_path, walk
from nco_bench.training.shards import read_shard


def _length(points: np.ndarray) -> float:
    return float(np.linalg.norm(np.diff(points.astype(float), axis=0), axis=1).sum())


def _circle(nodes: int) -> np.ndarray:
    angles = np.arange(nodes) * 2 * np.pi / nodes
    return 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)


def test_a_walk_without_wrong_turns_is_a_piece_of_the_tour() -> None:
    rows = walk(_circle(20), 7, DetourOptions(wrong=(0.0, 0.0)), np.random.default_rng(0))
    current, *left, destination = rows.tolist()
    assert destination == 0
    forward = [12, *range(13, 20), 0]
    backward = [8, *range(1, 8), 0]
    assert [current, *left, destination] in (forward, backward)


def test_wrong_turns_leave_nodes_behind() -> None:
    rng = np.random.default_rng(0)
    walks = [walk(_circle(40), 15, DetourOptions(wrong=(0.2, 0.2)), rng) for _ in range(50)]
    assert all(len(rows) == 17 and len(set(rows.tolist())) == 17 and rows[-1] == 0 for rows in walks)
    # Without a wrong turn the unvisited nodes are consecutive; here they rarely are.
    gaps = [np.any(np.diff(rows[1:-1]) > 1) for rows in walks]
    assert np.mean(gaps) > 0.5


def test_paths_are_optimal_with_their_ends_fixed() -> None:
    rng = np.random.default_rng(3)
    for _ in range(10):
        points = rng.random((8, 2))
        order = shortest_path(points, 0.01)
        assert (order[0], order[-1]) == (0, 7)
        best = min(_length(points[[0, *inner, 7]]) for inner in itertools.permutations(range(1, 7)))
        assert _length(points[order]) == pytest.approx(best, rel=1e-3)  # distances are rounded for the solver


def test_detours_are_repeatable_and_read_back(tmp_path: Path) -> None:
    ordered = np.stack([_circle(30)] * 5)
    first, second = (make_detours(ordered, 12, seed=4) for _ in range(2))
    assert first.shape == (5, 12, 2)
    assert np.array_equal(first[:, [0, -1]], second[:, [0, -1]])
    shard = read_shard(save_paths(first, tmp_path / "detours.npz"))
    assert not shard.tours
    assert np.array_equal(shard.ordered, first)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(BadInputError, match="expected 4 to 30"):
        make_detours(np.stack([_circle(30)]), 31, seed=0)
