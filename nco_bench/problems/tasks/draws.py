"""Random draws for many instances at once, such that the first k instances do not depend on how many there are."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray


class Draws:
    """Draws for instances ``start .. start + count - 1`` of a set.

    Every call has a stream of its own, filled instance by instance, so a set can be cut anywhere, and another order of
    magnitude of instances changes none of them. Numbers come from 53-bit uniforms by IEEE multiplication only, so the
    integers are the same on every machine.

    Parameters
    ----------
    key
        Whole numbers that name the set: seed, version, purpose.
    start, count
        The instances.
    """

    def __init__(self, key: tuple[int, ...], start: int, count: int) -> None:
        self._key, self._start, self._call = key, start, 0
        self.count = count

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        """Return ``(count, *shape)`` real numbers in [0, 1)."""
        bits = np.random.PCG64(np.random.SeedSequence((*self._key, self._call)))
        self._call += 1
        if self._start:
            bits.advance(self._start * prod(shape))
        return np.random.Generator(bits).random((self.count, *shape))

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int32]:
        """Return ``(count, *shape)`` integers from the inclusive range, uniform."""
        return (self.uniform(*shape) * (high - low + 1)).astype(np.int32) + np.int32(low)

    def flags(self, probability: float, *shape: int) -> NDArray[np.bool_]:
        """Return ``(count, *shape)`` flags that are true with this probability."""
        return self.uniform(*shape) < probability
