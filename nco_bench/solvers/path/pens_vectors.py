"""PENS's node vectors: Gaussian, and a pure function of the keys that nodes carry."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gaussian_vectors(keys: Tensor, step: int | Tensor, width: int) -> Tensor:
    """Standard normal vectors as a pure function of keys: the same key and step give the same vector.

    Parameters
    ----------
    keys
        ``(B, T)`` int64.
    step
        A counter, or one as an int64 ``()``, that makes new vectors from the same keys.
    width
        Length of the vectors; even.

    Returns
    -------
    Tensor
        ``(B, T, width)`` float32.
    """
    pairs = torch.arange(width // 2, dtype=torch.int64, device=keys.device)
    counter = pairs * 0x1F3D5B79 + step * 0x2545F491
    mixed = mix(keys[..., None] ^ mix(counter))  # (B, T, width / 2)
    # Box and Muller: 31 bits for the radius, 32 for the angle.
    radius = torch.sqrt(-2 * torch.log(((mixed >> 33 & 0x7FFFFFFF) + 0.5) * 2.0**-31))
    angle = (mixed & 0xFFFFFFFF) * (2 * math.pi * 2.0**-32)
    return torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)], dim=-1)


def mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al. 2014) on int64, whose products wrap around."""
    x = (x ^ (x >> 30 & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    x = (x ^ (x >> 27 & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return x ^ (x >> 31 & 0x1FFFFFFFF)
