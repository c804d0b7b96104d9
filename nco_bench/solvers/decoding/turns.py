"""Rotations and reflections by random angles: the augmentation of INViT and DGL.

Copy 0 of an instance is left as it is; even copies are rotated, odd ones reflected, and each is then shifted and scaled
to fit the unit square.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nco_bench.solvers.decoding.draws import streams, uniform


def turned(coords: Tensor, angle: Tensor, reflect: Tensor) -> Tensor:
    """Rotate by an angle, or reflect at the axis of that angle, and fit into the unit square.

    Parameters
    ----------
    coords
        ``(R, N, 2)``.
    angle
        ``(R,)`` radians.
    reflect
        ``(R,)`` bool.

    Returns
    -------
    Tensor
        ``(R, N, 2)``, one scale for both axes.
    """
    double = torch.where(reflect, 2 * angle, angle)
    cosine, sine = double.cos(), double.sin()
    sign = torch.where(reflect, 1.0, -1.0).to(coords.dtype)
    # Rotation: [c, -s; s, c]; reflection: [c, s; s, -c].
    x, y = coords.unbind(2)
    new_x = cosine[:, None] * x + (sign * sine)[:, None] * y
    new_y = sine[:, None] * x - (sign * cosine)[:, None] * y
    moved = torch.stack([new_x, new_y], dim=2)
    moved = moved - moved.amin(dim=1, keepdim=True)
    side = moved.amax(dim=(1, 2), keepdim=True)
    return moved / torch.where(side > 0, side, 1.0)


def turns(coords: Tensor, copies: int, seeds: Tensor) -> Tensor:
    """Return copies of each instance, the first unchanged.

    Parameters
    ----------
    coords
        ``(B, N, 2)``.
    copies
        How many, the original among them.
    seeds
        ``(B,)`` int64, one per instance.

    Returns
    -------
    Tensor
        ``(B copies, N, 2)``, instance by instance.
    """
    angle = uniform(streams(seeds, 0, copies), 0).flatten().to(coords.dtype) * (2 * math.pi)
    copy = torch.arange(copies, device=coords.device).repeat(len(coords))
    repeated = coords.repeat_interleave(copies, dim=0)
    return torch.where((copy == 0)[:, None, None], repeated, turned(repeated, angle, copy % 2 == 1))
