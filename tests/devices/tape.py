"""What the second device has for CUDA's graphs: operations on fixed memory, recorded once, to be done again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


class Tape:
    """What the device has for a CUDA graph: operations on fixed memory, recorded once, to be done again.

    As with CUDA, nothing may wait or come from the host while it is recorded, and recording computes nothing: what it made
    holds nonsense until `replay`, and what it would have overwritten is as it was.
    """

    def __init__(self) -> None:
        self.done: list[tuple[Any, Any, Any, Any]] = []
        self.made: set[int] = set()
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.outside: dict[int, torch.Tensor] = {}
        self.replays = 0

    def keep(self, target: Any) -> None:
        """Remember what is about to be overwritten, unless it was made here."""
        if isinstance(target, torch.Tensor) and _storage(target) not in self.made:
            self.before.append((target, target.clone()))

    def note(self, op: Any, plain: Any, named: Any, out: Any, view: bool) -> None:
        """Add an operation, and whose memory it reads."""
        for tensor in tree_leaves((plain, named)):
            if isinstance(tensor, torch.Tensor) and _storage(tensor) not in self.made:
                self.outside[_storage(tensor)] = tensor
        if view:
            return
        given = {id(t) for t in tree_leaves((plain, named))}
        new = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and id(t) not in given]
        self.made.update(map(_storage, new))
        self.done.append((op, plain, named, new))

    def end(self) -> None:
        """Undo what recording computed."""
        for *_, made in self.done:
            for tensor in made:
                tensor.fill_(float("nan") if tensor.is_floating_point() else 0)
        for target, old in reversed(self.before):
            target.copy_(old)

    def replay(self) -> None:
        """Do all of it again, on the same memory."""
        self.replays += 1
        for op, plain, named, made in self.done:
            again = [t for t in tree_leaves(op(*plain, **named)) if isinstance(t, torch.Tensor)]
            for target, value in zip(made, again if made else (), strict=True):
                target.copy_(value)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


recorded: list[Tape] = []
"""Those that are recorded at present."""


@contextmanager
def graph(tape: Tape, pool: Any = None) -> Iterator[None]:
    recorded.append(tape)
    try:
        yield
    finally:
        recorded.pop()
    tape.end()
