"""Random numbers as a pure function of what they are for, so that draws do not depend on batches or groups."""

from __future__ import annotations

import torch
from torch import Tensor


def streams(seeds: Tensor, first_sample: int, samples: int) -> Tensor:
    """Give every sample of every instance a stream of its own.

    Parameters
    ----------
    seeds
        ``(B,)`` int64, one per instance.
    first_sample
        Number of the first of the `samples` samples.

    Returns
    -------
    Tensor
        ``(B, samples)`` int64 keys; the draw of a step is a hash of key and step, see `uniform`.
    """
    return mixed(
        mixed(seeds)[:, None] + torch.arange(first_sample, first_sample + samples, device=seeds.device)
    )


def uniform(stream: Tensor, step: int) -> Tensor:
    """Return the float64 draws of one step in [0, 1), of the streams' shape."""
    return (mixed(stream + step) >> 11 & (1 << 53) - 1).double() * 2.0**-53


def mixed(key: Tensor) -> Tensor:
    """Hash int64 keys (the finaliser of splitmix64, Steele et al. 2014); products wrap around."""
    key = key * -7046029254386353131  # 0x9E3779B97F4A7C15
    key = (key ^ _shifted(key, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    key = (key ^ _shifted(key, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return key ^ _shifted(key, 31)


def _shifted(key: Tensor, bits: int) -> Tensor:
    """Shift right without copying the sign."""
    return key >> bits & (1 << 64 - bits) - 1
