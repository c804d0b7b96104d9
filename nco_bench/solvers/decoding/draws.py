"""Random numbers as a pure function of what they are for, so that draws do not depend on batches or groups."""

from __future__ import annotations

from dataclasses import dataclass

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


def coarse_uniform(stream: Tensor, step: int | Tensor) -> Tensor:
    """Return float32 draws of steps in [0, 1) from 24 bits, its mantissa; streams and steps are broadcast."""
    return (mixed(stream + step) >> 40 & 0xFFFFFF).float() / 2**24


def picked(weights: Tensor, draw: Tensor) -> Tensor:
    """Pick positions by weight: ``(..., A)`` weights and ``(...)`` draws in [0, 1) to ``(...)`` int64."""
    cumulative = weights.cumsum(dim=-1)
    total = cumulative[..., -1:]
    # Below the total whatever rounding does, so that nothing of weight 0 is picked.
    target = torch.minimum(draw[..., None] * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True).squeeze(-1)


@dataclass(frozen=True)
class Draws:
    """What a search by iterations draws: a stream per instance, and one for what a batch must share.

    Instances whose sub-problems are solved together must agree on the shape of these. Their shapes come from a stream
    that knows neither the instances nor their seeds, so that an instance meets the same shapes in any batch.

    Attributes
    ----------
    stream
        ``(B,)`` int64 keys, see `streams`.
    shared
        Key of the shared stream.
    """

    stream: Tensor
    shared: int = 0

    def uniform(self, step: int, kind: int, count: int = 1) -> Tensor:
        """Draw ``(B, count)`` float64 in [0, 1) for one step; draws of several kinds, 0 ... 7, are independent."""
        key = mixed(self.stream + (step * KINDS + kind))
        return uniform(key[:, None] + torch.arange(count, device=key.device), 0)

    def below(self, step: int, kind: int, high: int | Tensor) -> Tensor:
        """Draw ``(B,)`` int64 uniformly from ``0 ... high - 1``, one bound for all or ``(B,)``."""
        return scaled(self.uniform(step, kind).squeeze(1), high)

    def coins(self, step: int, kind: int, count: int) -> Tensor:
        """Toss ``(B, count)`` fair coins."""
        return self.uniform(step, kind, count) < 0.5

    def permutations(self, step: int, kind: int, count: int) -> Tensor:
        """Draw ``(B, count)`` permutations of ``0 ... count - 1``."""
        return self.uniform(step, kind, count).argsort(dim=1, stable=True)

    def shared_between(self, step: int, low: int, high: int) -> int:
        """Draw an integer from ``low ... high`` for the whole batch, whatever is in it."""
        key = streams(torch.tensor([self.shared]), 0, 1)
        return low + int(scaled(uniform(key, step), high - low + 1))


KINDS = 8
"""How many kinds of draws one step has at most."""


def instance_draws(seeds: Tensor) -> Draws:
    """Give instance b the stream of ``seeds[b]``; the shared stream is the same in every run."""
    return Draws(streams(seeds, 0, 1).squeeze(1))


def drawn_draws(batch: int, generator: torch.Generator, device: torch.device) -> Draws:
    """Draw all streams, the shared one too, from a generator: for training, which calls a search again and again."""
    *keys, shared = torch.randint(2**62, (batch + 1,), generator=generator).tolist()
    return Draws(torch.tensor(keys, dtype=torch.int64, device=device), shared)


def scaled(fraction: Tensor, high: int | Tensor) -> Tensor:
    """Scale [0, 1) to ``0 ... high - 1``; the bound holds whatever rounding does."""
    top = torch.as_tensor(high, device=fraction.device)
    return torch.minimum((fraction * top).long(), top - 1)


def mixed(key: Tensor) -> Tensor:
    """Hash int64 keys (the finaliser of splitmix64, Steele et al. 2014); products wrap around."""
    key = key * -7046029254386353131  # 0x9E3779B97F4A7C15
    key = (key ^ _shifted(key, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    key = (key ^ _shifted(key, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return key ^ _shifted(key, 31)


def _shifted(key: Tensor, bits: int) -> Tensor:
    """Shift right without copying the sign."""
    return key >> bits & (1 << 64 - bits) - 1
