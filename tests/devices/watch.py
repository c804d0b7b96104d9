"""What the second device is seen to do: operations, waits of the host, and copies between it and the device."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Watch:
    """What was seen while it was on.

    Attributes
    ----------
    waits
        How often the host waited for the device, by operation and by the place in the program.
    hidden
        Indices on the CPU into tensors of the device, by place.
    uploads
        Tensors of the CPU that were copied to the device, by place.
    operations
        How many were done.
    """

    waits: Counter[tuple[str, str]] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    uploads: Counter[str] = field(default_factory=Counter)
    operations: int = 0

    def wait(self, name: str) -> None:
        """Count a wait."""
        self.waits[name.removeprefix("aten::"), place()] += 1


watches: list[Watch] = []


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch all that the device does."""
    watch = Watch()
    watches.append(watch)
    try:
        yield watch
    finally:
        watches.remove(watch)


def place() -> str:
    """Return the innermost place in the project, ``path/step.py:93 function``."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "nco_bench/" in name or "benchmarks/" in name:
            return f"{name.rpartition('nco_bench/')[2]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"
