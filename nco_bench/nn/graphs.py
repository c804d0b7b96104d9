"""Record what a network does to tensors of some shapes, and replay it at once: graphs of operations, as CUDA has them.

A step of a construction is some hundred small operations, which a GPU does faster than Python asks for them. A recording
asks for all of them together. It is for one set of shapes and always works on the same memory: what a step sees is copied
there, and what it found is copied from there.

Shapes are met again: policies that encode once or look around have one for all steps, and where sub-problems shrink they
are padded to the sizes of `rounded`, a few dozen in all. So shapes are first met without a recording, recorded when they are
met again, and replayed from then on; what is met once costs nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nco_bench.nn.device import memory_of_graphs, record

LARGEST = 1024
"""Recordings that are kept; shapes beyond are computed as ever."""

SIZES_PER_DOUBLING = 8
"""So many sizes of `rounded` lie between a power of 2 and the next; padding is at most an eighth of what is there."""


def rounded(count: int, least: int = 1) -> int:
    """Round a size up, so that steps of similar sizes share a recording.

    Up to `n` there are ``8 log2(n)`` such sizes, about: 13 up to 100, 40 up to 1,000, 66 up to 10,000 with ``least=8``.

    Parameters
    ----------
    count
        At least 1.
    least
        Sizes are multiples of this power of 2.
    """
    step = max(least, (1 << (count - 1).bit_length()) // (2 * SIZES_PER_DOUBLING))
    return math.ceil(count / step) * step


@dataclass
class Recording:
    """One recorded call.

    Attributes
    ----------
    constant, given
        The object whose tensors were copied last, and the copies' memory.
    seen
        The memory of what changes from call to call.
    graph, found
        What is replayed, and where its result appears.
    """

    constant: Any
    given: list[Tensor]
    seen: list[Tensor]
    graph: Any
    found: Any


class Recorded:
    """A function that is recorded for all shapes that it is given twice.

    Parameters
    ----------
    function
        Of two values. Values, also what it returns, are tensors, dataclasses and tuples of them, and plain values, for
        each of which there is a recording of its own. What the function looks up elsewhere must never change.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function
        self.met: dict[Any, Recording | None] = {}
        self.replays = 0
        self.memory: Any = None
        self.room: dict[Any, Tensor] = {}

    def __call__(self, constant: Any, changing: Any) -> Any:
        """Return ``function(constant, changing)``; an object that is given again as `constant` must not have changed."""
        key = outline(constant), outline(changing)
        if key not in self.met:
            if len(self.met) < LARGEST:
                self.met[key] = None
            return self.function(constant, changing)
        recording = self.met[key]
        if recording is None:
            recording = self.met[key] = self._record(constant, changing)
        else:
            _copy(recording.seen, changing)
            if recording.constant is not constant:
                _copy(recording.given, constant)
                recording.constant = constant
        recording.graph.replay()
        self.replays += 1
        return refilled(recording.found, (tensor.clone() for tensor in tensors(recording.found)))

    def _record(self, constant: Any, changing: Any) -> Recording:
        given = [tensor.clone() for tensor in tensors(constant)]
        seen = [self._copied(place, tensor) for place, tensor in enumerate(tensors(changing))]
        fixed, moving = refilled(constant, iter(given)), refilled(changing, iter(seen))
        device = seen[0].device
        if self.memory is None:
            self.memory = memory_of_graphs(device)
        graph, found = record(device, self.memory, lambda: self.function(fixed, moving))
        return Recording(constant, given, seen, graph, found)

    def _copied(self, place: int, tensor: Tensor) -> Tensor:
        """Copy what changes to memory that all recordings share: it is written anew before each replay."""
        room = self.room.get((place, tensor.dtype))
        if room is None or room.numel() < tensor.numel():
            room = self.room[place, tensor.dtype] = tensor.new_empty(tensor.numel())
        return room[: tensor.numel()].view(tensor.shape).copy_(tensor)


def _copy(memory: list[Tensor], value: Any) -> None:
    for target, tensor in zip(memory, tensors(value), strict=True):
        target.copy_(tensor)


def _parts(value: Any) -> list[Any] | None:
    """Return what a value is made of; None for one that is whole."""
    if dataclasses.is_dataclass(value):
        return [getattr(value, field.name) for field in dataclasses.fields(value)]
    return list(value) if isinstance(value, tuple) else None


def outline(value: Any) -> Any:
    """Return all of a value but what its tensors hold; hashable."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    parts = _parts(value)
    return value if parts is None else (type(value), *map(outline, parts))


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield a value's tensors, in order."""
    if isinstance(value, Tensor):
        yield value
    for part in _parts(value) or ():
        yield from tensors(part)


def refilled(value: Any, others: Iterator[Tensor]) -> Any:
    """Return a value with other tensors in place of its own."""
    if isinstance(value, Tensor):
        return next(others)
    parts = _parts(value)
    if parts is None:
        return value
    made = [refilled(part, others) for part in parts]
    return tuple(made) if isinstance(value, tuple) else type(value)(*made)
