"""The steps of a packing: what the policies are shown, and where the chosen box comes to rest.

The geometry is that of section 6 of attend2pack with the open direction up: for a box of extents (ex, ey, ez) at y, every x
is tried, the box falls onto the highest cell under it, and the lowest of these places counts, the smallest x among equals.

Letters in shapes: R lanes, N boxes, L x W base.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from nco_bench.nn.device import on_cpu
from nco_bench.problems.bpp3d import ORIENTATIONS
from nco_bench.solvers.packing.lowering import lowered

if TYPE_CHECKING:
    from nco_bench.solvers.packing.attend2pack import Attend2Pack, EncodedBoxes


class Steps(Protocol):
    """A packing of R lanes on its way: box and place are chosen in turn, by whoever calls."""

    def boxes(self) -> Tensor:
        """Return ``(R, N)`` logits of the next box."""

    def places(self, box: Tensor) -> Tensor:
        """Return ``(R, 6 W)`` logits of orientation and y of the boxes ``(R,)`` chosen."""

    def put(self, box: Tensor, place: Tensor) -> None:
        """Let the boxes ``(R,)`` fall at their places ``(R,)``, orientation times W plus y."""

    def packed(self) -> tuple[Tensor, Tensor]:
        """Return x, y, z and orientation of the sides in ascending order, ``(R, N, 4)`` int64; height, ``(R,)`` float32."""


def steps_of(policy: Attend2Pack, encoded: EncodedBoxes, sides: Tensor) -> Steps:
    """Begin to pack: on the CPU in compiled loops where no gradients are wanted.

    Parameters
    ----------
    policy, encoded
        The policy, and its `encode` of the boxes.
    sides
        ``(R, N, 3)`` whole sides in ascending order.
    """
    rounded = torch.is_autocast_enabled("cpu") or encoded.boxes.dtype != torch.float32
    if on_cpu(sides.device) and not rounded and not torch.is_grad_enabled():
        from nco_bench.solvers.packing.quick_steps import QuickSteps

        return QuickSteps(policy, encoded, sides)
    return PlainSteps(policy, encoded, sides)


class PlainSteps:
    """In operations on all lanes, for every device, with gradients."""

    def __init__(self, policy: Attend2Pack, encoded: EncodedBoxes, sides: Tensor) -> None:
        self._policy, self._encoded = policy, encoded
        lanes, count, _ = sides.shape
        device, config = sides.device, policy.config
        self._base = config.bin_length, config.bin_width
        self._lane = torch.arange(lanes, device=device)
        self._across = torch.arange(config.bin_width, device=device)
        self._extents = sides.float()[:, :, torch.tensor(ORIENTATIONS, device=device)]  # (R, N, 6, 3)
        self._previous = self._heights = torch.zeros(lanes, *self._base, device=device)
        self._left = torch.ones(lanes, count, dtype=torch.bool, device=device)
        self._rows = torch.zeros(lanes, count, 4, dtype=torch.int64, device=device)
        self._seen = torch.empty(0)

    def boxes(self) -> Tensor:
        """Look at the bin, and score the boxes left."""
        self._seen = self._policy.see(self._previous, self._heights)
        return self._policy.sequence_logits(self._encoded, self._left, self._seen)

    def places(self, box: Tensor) -> Tensor:
        """Score orientations and places across the bin."""
        length, width = self._base
        packed = torch.zeros((), dtype=torch.bool, device=box.device)
        self._left = self._left.index_put((self._lane, box), packed)
        turned = self._extents[self._lane, box]  # (R, 6, 3)
        feasible = (self._across + turned[..., 1:2] <= width) & (turned[..., :1] <= length)
        return self._policy.placement_logits(self._encoded, self._left, box, self._seen, feasible)

    def put(self, box: Tensor, place: Tensor) -> None:
        """Let the boxes fall."""
        turn, y = place // self._base[1], place % self._base[1]
        self._previous = self._heights
        x, z, self._heights = drop(self._heights, self._extents[self._lane, box, turn], y)
        self._rows[self._lane, box] = torch.stack([x, y, z, turn], dim=1)

    def packed(self) -> tuple[Tensor, Tensor]:
        """Return places and heights."""
        return self._rows, self._heights.flatten(1).amax(1)


def drop(heights: Tensor, extents: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lower one box per lane onto its height map.

    Parameters
    ----------
    heights
        ``(R, L, W)`` float32 whole heights; exact below 2^24.
    extents
        ``(R, 3)`` of the box along x, y, z.
    y
        ``(R,)`` where it begins across the bin.

    Returns
    -------
    tuple
        x and z of the box, ``(R,)`` int64, and the new height maps.
    """
    return lowered(heights, extents, y) if on_cpu(heights.device) else drop_together(heights, extents, y)


def drop_together(heights: Tensor, extents: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Do what `drop` does in operations on all lanes, for devices without loops of their own."""
    _, length, width = heights.shape
    across = torch.arange(width, device=heights.device)
    beside = (across >= y[:, None]) & (across < (y + extents[:, 1].long())[:, None])  # (R, W)
    profile = (heights * beside[:, None].to(heights.dtype)).amax(2)  # (R, L)
    ex = extents[:, 0].long()
    along = torch.arange(length, device=heights.device)
    rests = window_max(profile, ex)
    # One whole number to minimise: lowest first, then the smallest x, on every device.
    key = (rests.long() * length + along).masked_fill(along > (length - ex)[:, None], 2**62).amin(1)
    x, z = key % length, key // length
    under = (along >= x[:, None]) & (along < (x + ex)[:, None])
    top = (z + extents[:, 2].long()).to(heights.dtype)
    covered = under[:, :, None] & beside[:, None]
    return x, z, torch.where(covered, top[:, None, None], heights)


def window_max(values: Tensor, window: Tensor) -> Tensor:
    """Return for each start the maximum of the next `window` values, by a table of powers of two.

    Parameters
    ----------
    values
        ``(R, L)``, none negative.
    window
        ``(R,)`` one per row, at most L; starts too near the end see the shorter rest.
    """
    table, width = [values], 1
    while 2 * width <= values.shape[1]:
        last = table[-1]
        table.append(torch.maximum(last, torch.nn.functional.pad(last[:, width:], (0, width))))
        width *= 2
    # frexp is exact: window = m 2^e with m in [1/2, 1).
    level = torch.frexp(window.double()).exponent.long() - 1
    row = torch.stack(table)[level, torch.arange(len(values), device=values.device)]  # (R, L)
    shift = (window - 2**level)[:, None] + torch.arange(values.shape[1], device=values.device)
    return torch.maximum(row, row.gather(1, shift.clamp(max=values.shape[1] - 1)))
