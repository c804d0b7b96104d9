"""Lowering a box onto a height map, compiled for the CPU; on a GPU operations on all lanes do the same."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn.compiling import njit


def lowered(heights: Tensor, extents: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Do what `nco_bench.solvers.packing.steps.drop` does, on the CPU; the given maps stay as they are."""
    maps = heights.int().contiguous()
    sides, across = extents.long().contiguous(), y.long().contiguous()
    x, z = _lower_all(maps.numpy(), sides.numpy(), across.numpy())
    return torch.from_numpy(x), torch.from_numpy(z), maps.to(heights.dtype)


@njit(cache=True, nogil=True)
def _lower_all(maps, sides, across):  # type: ignore[no-untyped-def]
    """Place the boxes, on `maps` too; return x and z of each."""
    at, low = np.zeros(len(maps), np.int64), np.zeros(len(maps), np.int64)
    for lane in range(len(maps)):
        along, wide, up = sides[lane]
        begin = across[lane]
        x, z = lower(maps[lane], along, wide, begin)
        at[lane], low[lane] = x, z
        maps[lane, x : x + along, begin : begin + wide] = z + up
    return at, low


@njit(cache=True, nogil=True)
def lower(heights, along, wide, begin):  # type: ignore[no-untyped-def]
    """Return x and z of a box on a map of whole heights ``(L, W)``: the lowest place, the smallest x among equals.

    The largest of whole numbers is found in vectors, that of floating-point numbers one by one.
    """
    length = len(heights)
    profile = np.empty(length, np.int32)
    for x in range(length):
        row = heights[x, begin : begin + wide]
        top = row[0]
        for y in range(len(row)):
            top = max(top, row[y])
        profile[x] = top
    rests = profile[: length - along + 1].copy()
    for shift in range(1, along):
        for x in range(len(rests)):
            rests[x] = max(rests[x], profile[x + shift])
    place = 0
    for x in range(1, len(rests)):
        if rests[x] < rests[place]:
            place = x
    return place, np.int64(rests[place])
