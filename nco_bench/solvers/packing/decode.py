"""Packing with attend2pack: one loop for greedy decoding, for sampling and for training, batched over lanes.

Letters in shapes: B instances, P samples, R lanes (B x P), N boxes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.nn.device import PerDevice
from nco_bench.problems.bpp3d import ORIENTATIONS
from nco_bench.progress import tracked
from nco_bench.solvers.decoding.search import sampling
from nco_bench.solvers.packing.steps import steps_of

Choose = Callable[[Tensor, int], Tensor]
"""Picks from ``(B, P, A)`` logits at a step, ``(B, P)``."""

CELLS_AT_A_TIME = PerDevice(cpu=2**20, gpu=2**27)
"""Cells of height maps that are decoded together, to bound memory."""


@dataclass(frozen=True)
class Packed:
    """Packings of R lanes.

    Attributes
    ----------
    rows
        ``(R, N, 4)`` int64 x, y, z and orientation of the sides in ascending order.
    height
        ``(R,)`` float32 height reached; whole numbers.
    log_prob
        ``(R,)`` log-probability of all choices of both policies, or None where it was not asked for.
    """

    rows: Tensor
    height: Tensor
    log_prob: Tensor | None


def best_choice(logits: Tensor, step: int) -> Tensor:
    """Take the best-scored action."""
    return logits.argmax(dim=2)


def roll_out(
    policy: Any, encoded: Any, sides: Tensor, choose: Choose, samples: int = 1, *, log_prob: bool = False
) -> Packed:
    """Pack all boxes.

    Parameters
    ----------
    policy
        An `Attend2Pack`.
    encoded
        Its `encode` of the instances, repeated for the samples.
    sides
        ``(R, N, 3)`` whole sides in ascending order, each instance `samples` times in a row.
    choose
        Picks actions; the steps count both policies' choices.
    samples
        P.
    log_prob
        Add up the log-probabilities of what is chosen.
    """
    steps = steps_of(policy, encoded, sides)
    total = torch.zeros(len(sides), device=sides.device) if log_prob else None
    for step in tracked(range(sides.shape[1]), "step"):
        logits = steps.boxes()
        box = choose(logits.unflatten(0, (-1, samples)), 2 * step).flatten()
        places = steps.places(box)
        place = choose(places.unflatten(0, (-1, samples)), 2 * step + 1).flatten()
        if total is not None:
            total = total + _log_prob(logits, box) + _log_prob(places, place)
        steps.put(box, place)
    return Packed(*steps.packed(), total)


def _log_prob(logits: Tensor, action: Tensor) -> Tensor:
    return logits.log_softmax(1).gather(1, action[:, None]).squeeze(1)


@torch.inference_mode()
def decode_packing(policy: Any, sides: Tensor, seeds: Tensor, samples: int | None = None) -> Packed:
    """Solve a batch greedily, or by the best of several samples.

    Parameters
    ----------
    policy
        An `Attend2Pack` in evaluation mode; work is done on its device.
    sides
        ``(B, N, 3)`` whole sides in ascending order.
    seeds
        ``(B,)`` int64, for sampling.
    samples
        None is greedy.

    Returns
    -------
    Packed
        One lane per instance: the lowest packing, the first among equals.
    """
    device = next(policy.parameters()).device
    sides, seeds = sides.to(device), seeds.to(device)
    encoded = policy.encode(sides)
    if samples is None:
        return roll_out(policy, encoded, sides, best_choice)
    cells = len(sides) * policy.config.bin_length * policy.config.bin_width
    group = max(1, CELLS_AT_A_TIME.on(device) // cells)
    best: Packed | None = None
    for begin in tracked(range(0, samples, group), "group"):
        count = min(group, samples - begin)
        lanes = sides.repeat_interleave(count, dim=0)
        choose = sampling(seeds, begin, count)
        found = _lowest(roll_out(policy, encoded.repeated(count), lanes, choose, count), count)
        if best is None:
            best = found
            continue
        better = found.height < best.height
        best = Packed(
            torch.where(better[:, None, None], found.rows, best.rows),
            torch.minimum(found.height, best.height),
            None,
        )
    assert best is not None
    return best


def _lowest(packed: Packed, samples: int) -> Packed:
    """Keep the lowest of the samples of each instance."""
    height = packed.height.view(-1, samples)
    # A whole number again, so that the first of equals is taken on every device.
    order = height.long() * samples + torch.arange(samples, device=height.device)
    lane = order.amin(1) % samples + torch.arange(len(height), device=height.device) * samples
    return Packed(packed.rows[lane], packed.height[lane], None)


def to_solutions(boxes: NDArray[np.int64], rows: NDArray[np.int64]) -> list[NDArray[np.int32]]:
    """Turn orientations of sorted sides into those of the boxes as given.

    Parameters
    ----------
    boxes
        ``(B, N, 3)`` sides as given.
    rows
        ``(B, N, 4)`` x, y, z, orientation of the sides in ascending order.
    """
    ranks = np.argsort(boxes, axis=2, kind="stable")  # which given side is the k-th smallest
    order = np.take_along_axis(ranks, np.array(ORIENTATIONS)[rows[..., 3]], axis=2)
    # Orientations are in lexicographic order: two per side along x, the smaller of the other two along y first.
    turns = 2 * order[..., 0] + (order[..., 1] > order[..., 2])
    out = np.concatenate([rows[..., :3], turns[..., None]], axis=2).astype(np.int32)
    return [packing.ravel() for packing in out]
