"""What supervised learning shows to a model, and what it asks of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nco_bench.errors import UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import precision
from nco_bench.training.data import LabelStream
from nco_bench.training.learners.pieces import draw_length, draw_sub_paths
from nco_bench.training.learners.supervised import Neighbours, Supervised, next_node_loss
from nco_bench.training.recipes import Recipe, recipe_for

POLYGON = 9


def _polygons(batch: int) -> np.ndarray:
    """Regular polygons in tour order: neighbours are 2 sin(pi / n) r apart, all others further."""
    angles = np.arange(POLYGON) * 2 * np.pi / POLYGON
    points = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.repeat(points[None], batch, axis=0).astype(np.float32)


def _drawn(ordered: np.ndarray, length: int, symmetries: bool) -> np.ndarray:
    return draw_sub_paths(torch.from_numpy(ordered), length, np.random.default_rng(0), symmetries).numpy()


@pytest.mark.parametrize("symmetries", [False, True])
@pytest.mark.parametrize("length", [3, 6, POLYGON])
def test_pieces_follow_the_label_tour(length: int, symmetries: bool) -> None:
    pieces = _drawn(_polygons(50), length, symmetries)
    side = math.sin(math.pi / POLYGON)
    assert np.allclose(np.linalg.norm(np.diff(pieces, axis=1), axis=2), side, atol=1e-6)
    assert all(len(np.unique(piece.round(5), axis=0)) == length for piece in pieces)


def test_the_longest_piece_is_the_closed_tour() -> None:
    pieces = _drawn(_polygons(20), POLYGON + 1, True)
    assert np.array_equal(pieces[:, 0], pieces[:, -1])
    assert all(len(np.unique(piece.round(5), axis=0)) == POLYGON for piece in pieces)


def test_lengths_share_samples_or_time() -> None:
    rng = np.random.default_rng(0)
    drawn = {how: [draw_length(4, 11, how, rng) for _ in range(20_000)] for how in ("uniform", "seconds")}
    counts = {how: np.bincount(lengths, minlength=12)[4:] for how, lengths in drawn.items()}
    np.testing.assert_allclose(counts["uniform"], 20_000 / 8, rtol=0.08)
    rows = counts["seconds"] * np.arange(4, 12)  # the cost of a sub-path grows with its rows
    np.testing.assert_allclose(rows, rows.mean(), rtol=0.08)
    with pytest.raises(UnknownNameError, match="seconds"):
        recipe_for("decoder-6x128", {"lengths": "second"})


def test_starts_and_directions_vary() -> None:
    pieces = _drawn(_polygons(400), 3, False)
    assert len(np.unique(pieces.round(5), axis=0)) == 2 * POLYGON


def test_eight_symmetries_of_the_square_occur() -> None:
    points = np.array([[[0.1, 0.3], [0.2, 0.9], [0.7, 0.4]]], np.float32).repeat(500, axis=0)
    pieces = _drawn(points, 3, True)
    assert len(np.unique(pieces.round(5), axis=0)) == 8 * 6  # 3 starts x 2 directions each
    assert pieces.min() >= 0
    assert pieces.max() <= 1


def test_labels_are_left_alone() -> None:
    ordered = _polygons(4)
    before = ordered.copy()
    _drawn(ordered, 5, True)
    assert np.array_equal(ordered, before)


def test_next_node_loss_by_hand() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0]])
    log_sum = math.log(math.e**2 + math.e + 1)
    assert next_node_loss(scores, closed=False).item() == pytest.approx(log_sum - 2.0, rel=1e-6)
    # A closed tour may begin in either direction.
    assert next_node_loss(scores, closed=True).item() == pytest.approx(log_sum - 1.0, rel=1e-6)


def _ideal(tokens: Tensor) -> Neighbours:
    """A head whose logit is large for tokens that are next to each other in a chain of one-hot tokens."""
    count = tokens.shape[1]
    head = Neighbours(count, rank=count)
    chain = torch.diag(torch.ones(count - 1), 1)
    with torch.no_grad():
        head.query.weight.copy_(60.0 * (chain + chain.T))
        head.key.weight.copy_(torch.eye(count))
        head.query.bias.zero_()
        head.key.bias.zero_()
    return head


def test_the_auxiliary_loss_of_a_perfect_guess_is_the_entropy_of_two_neighbours() -> None:
    tokens = torch.eye(6)[None]
    loss = _ideal(tokens)(tokens, closed=False).item()
    # Only inner tokens count, and each of them has two neighbours.
    assert loss == pytest.approx(math.log(2), abs=1e-3)


def test_the_auxiliary_loss_knows_a_wrong_guess() -> None:
    tokens = torch.eye(6)[None]
    shuffled = tokens[:, torch.tensor([0, 3, 1, 4, 2, 5])]
    head = _ideal(tokens)
    assert head(shuffled, closed=False).item() > 5 * head(tokens, closed=False).item()


def test_training_in_bf16_sees_nodes_where_they_are(shards: list[Path]) -> None:
    """Coordinates and what is embedded stay float32, as in decoding; in bf16 they would lie on a grid of 1/256."""
    policy: Any = build_path_policy("decoder-6x128", "tsp", depth=1, width=16, heads=2, ffn=32)
    learner = Supervised(
        policy, LabelStream(shards, 1), Recipe(longest=11, longest_start=11), 1, torch.device("cpu")
    )
    seen: list[torch.dtype] = []
    for part in (policy.embedding, policy.start, policy.current):
        part.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with precision("bf16", "cpu"):
        learner.loss(0, 0.0)
    assert seen == 3 * [torch.float32]
