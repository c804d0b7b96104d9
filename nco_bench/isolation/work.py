"""What a batch goes through on its way to a child process and back: cut into chunks, packed, sent, answered."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from nco_bench.isolation.outcomes import Outcome
from nco_bench.problems import Instance

CHUNK_INSTANCES = 512
CHUNK_NODES = 200_000


class Limits(NamedTuple):
    """What holds for all instances of a batch, see `ChildProcess.begin`."""

    seed: int
    time_limit: float | None
    kill_after: float | None


Steps = Generator["Chunk | float", None, tuple[list[Outcome], float]]
"""Yields a chunk when packed, and the time since when the child has had it; returns outcomes and the last answer's time."""


class Chunk(NamedTuple):
    """Instances that travel together."""

    message: bytes
    is_last: bool


class Ahead(NamedTuple):
    """A chunk that the child has, or has the beginning of, while it works on another."""

    message: bytes
    rest: memoryview
    time: float


class Work:
    """A batch on its way: what is left to do, then its outcomes."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.error: Exception | None = None
        self.outcomes: list[Outcome] | None = None
        self.chunk: Chunk | None = None
        self.sent = self.answered = 0.0

    def advance(self) -> None:
        """Take the next step."""
        if self.error is not None:
            raise self.error
        try:
            step = next(self._steps)
        except StopIteration as end:
            self.outcomes, self.answered = end.value
            step = self.answered
        if isinstance(step, Chunk):
            self.chunk = step
        else:
            self.sent = self.sent or step


def next_chunk(batch: Sequence[Instance], todo: list[int], suspects: set[int]) -> list[int]:
    """Take instances from the front of `todo`: bounded in nodes, and a suspect always alone."""
    if todo[0] in suspects:
        return todo[:1]
    chunk: list[int] = []
    nodes = 0
    for j in todo[:CHUNK_INSTANCES]:
        nodes += batch[j].n
        if j in suspects or (chunk and nodes > CHUNK_NODES):
            break
        chunk.append(j)
    return chunk
