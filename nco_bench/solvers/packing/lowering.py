"""Lowering one box per lane onto its height map, compiled for the CPU; on a GPU operations on all lanes do the same."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor


def lowered(heights: Tensor, extents: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Do what `nco_bench.solvers.packing.decode.drop` does, on the CPU; the given maps stay as they are."""
    maps = heights.clone(memory_format=torch.contiguous_format)
    sides, across = extents.long().contiguous(), y.long().contiguous()
    x, z = _lower(maps.numpy(), sides.numpy(), across.numpy())
    return torch.from_numpy(x), torch.from_numpy(z), maps


@njit(cache=True)
def _lower(maps, sides, across):  # type: ignore[no-untyped-def]
    """Place the boxes, on `maps` too; return x and z of each."""
    lanes, length, width = maps.shape
    at, low = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
    profile = np.empty(length, maps.dtype)
    for lane in range(lanes):
        along, wide, up = sides[lane]
        begin, end = across[lane], min(across[lane] + wide, width)
        for x in range(length):
            top = maps[lane, x, begin]
            for y in range(begin + 1, end):
                top = max(top, maps[lane, x, y])
            profile[x] = top
        best, place = profile[0], -1
        for x in range(length - along + 1):
            rest = profile[x]
            for other in range(x + 1, x + along):
                rest = max(rest, profile[other])
            if place < 0 or rest < best:
                best, place = rest, x
        at[lane], low[lane] = place, int(best)
        maps[lane, place : place + along, begin:end] = low[lane] + up
    return at, low
