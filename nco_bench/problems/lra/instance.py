"""What an instance of Long Range Arena is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.problems.lra.table import LRATask, lra_task


@dataclass(frozen=True, eq=False)
class LRAInstance:
    """One sequence with its class.

    Attributes
    ----------
    name
        Unique within its dataset.
    task_name
        As in `nco_bench.problems.lra.table`.
    tokens
        ``(L,)`` int16, each in 1 .. vocabulary - 1; without padding.
    label
        The right class.
    second
        Where the second text begins; L where there is one text.
    """

    name: str
    task_name: str
    tokens: NDArray[np.int16]
    label: int
    second: int = -1
    problem: str = field(default="lra", init=False)
    convention: str = field(default="accuracy", init=False)
    task: LRATask = field(default=None, init=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        task = lra_task(self.task_name)
        tokens = np.asarray(self.tokens)
        object.__setattr__(self, "task", task)
        if tokens.ndim != 1 or not len(tokens) or not np.issubdtype(tokens.dtype, np.integer):
            raise BadInputError(
                f"{self.name}: tokens are {tokens.dtype} of shape {tokens.shape}; expected whole numbers (L,)."
            )
        if tokens.min() < 1 or tokens.max() >= task.vocabulary:
            raise BadInputError(f"{self.name}: a token is outside 1..{task.vocabulary - 1}.")
        if not 0 <= self.label < task.classes:
            raise BadInputError(f"{self.name}: label {self.label} is outside 0..{task.classes - 1}.")
        second = len(tokens) if self.second < 0 else self.second
        if (0 < second < len(tokens)) != (task.texts == 2):
            raise BadInputError(f"{self.name}: {task.name} has {task.texts} text(s) in an instance.")
        object.__setattr__(self, "tokens", tokens.astype(np.int16))
        object.__setattr__(self, "label", int(self.label))
        object.__setattr__(self, "second", second)

    @property
    def n(self) -> int:
        """Length in tokens."""
        return len(self.tokens)

    @property
    def texts(self) -> tuple[NDArray[np.int16], ...]:
        """The text or the two texts."""
        if self.task.texts == 1:
            return (self.tokens,)
        return self.tokens[: self.second], self.tokens[self.second :]

    def asked(self) -> LRAInstance:
        """Return the instance without its class, 0, as a solver that is not ours is given it."""
        return replace(self, label=0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance, for hashing and storage."""
        return {
            "label": np.array(self.label),
            "second": np.array(self.second),
            "task": np.array(self.task_name),
            "tokens": self.tokens,
        }
