"""What the loop is given and gets back: a way to learn, the loss of one update, and a measure of how good the model is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


@dataclass(frozen=True)
class Loss:
    """Loss of one batch.

    Attributes
    ----------
    total
        What is minimised, a scalar with a gradient. It may be negative (policy gradients).
    reported
        The part that the log shows, a scalar.
    samples
        How many sub-problems, instances or sequences it averages.
    """

    total: Tensor
    reported: Tensor
    samples: int


@dataclass(frozen=True)
class Measure:
    """How good a model is on instances that it does not learn from.

    Attributes
    ----------
    value, ci95
        Mean over instances, and half width of its 95 % interval (normal approximation).
    instances
        How many.
    name
        Column of the log; ``validation_gap`` is the mean gap in percent.
    unit
        Printed behind the value.
    higher_is_better
        True for rewards and accuracies.
    also
        Further measures of the same kind, such as gaps at other sizes; each is a column of the log.
    """

    value: float
    ci95: float
    instances: int
    name: str = "validation_gap"
    unit: str = "%"
    higher_is_better: bool = False
    also: tuple[Measure, ...] = ()

    @classmethod
    def of(cls, values: NDArray[np.floating], name: str = "validation_gap", unit: str = "%") -> Measure:
        """Return mean and interval of values, one per instance."""
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        return cls(float(values.mean()), 1.96 * spread / len(values) ** 0.5, len(values), name, unit)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Measure:
        """Return what `dataclasses.asdict` turned into JSON values."""
        also = tuple(cls.from_json(other) for other in values.get("also", ()))
        return cls(**{**values, "also": also})

    @property
    def percent(self) -> float:
        """The value, where it is a gap."""
        return self.value

    def describe(self) -> str:
        """Say names, values and units, such as ``validation gap 3.142 %``."""
        return ", ".join(said(m.name, m.value, m.unit) for m in (self, *self.also))


GAP = Measure.name
"""The one measure that is a gap."""


def said(name: str, value: float, unit: str = "") -> str:
    """Say a measure in words, from its column in the log, its value and its unit."""
    words = name.replace("_", " ")
    for acronym in ("f1", "mse"):
        words = words.replace(f" {acronym}", f" {acronym.upper()}")
    number = f"{value:.3f}" if unit == "%" else f"{value:.5g}"
    return f"{words} {number}{f' {unit}' if unit else ''}"


class Learner(Protocol):
    """A way to learn."""

    extra: nn.ModuleDict
    """Modules that are trained along and not exported."""

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw the data of this update and return its loss."""

    def position(self) -> dict[str, Any]:
        """Return where in the data the learner stands, as JSON values."""

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `NcoBenchError` for other data, unless it is to be adopted."""


@runtime_checkable
class FollowsOptimizer(Protocol):
    """A learner that changes the learning rate by what it finds, beside the recipe's schedule."""

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Take the optimiser, once, before the first update; each of its groups has its rate as ``peak``."""


@runtime_checkable
class ChoosesWeights(Protocol):
    """A learner that knows which of the weights it went through are to be exported, instead of the last."""

    def chosen(self, step: int) -> dict[str, Tensor]:
        """Return the policy's state, after so many updates; an empty one as long as nothing was chosen."""


@runtime_checkable
class RollsOut(Protocol):
    """A learner that looks at what the weights to ship do, between updates."""

    def look_at(self, shipping: Callable[[], AbstractContextManager[Any]]) -> None:
        """Take, once, what puts the weights to ship into the policy for a while, and yields it."""


@runtime_checkable
class KeepsTensors(Protocol):
    """A learner with tensors of its own that a checkpoint must hold (a baseline network, pseudo-labels, a generator)."""

    def tensors(self) -> dict[str, Tensor]:
        """Return them by name."""

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""


@runtime_checkable
class SharesBatches(Protocol):
    """A learner whose batches several processes can share; others are trained by one."""

    shares_batches: bool


@runtime_checkable
class HoldsProcesses(Protocol):
    """A learner that others work for."""

    def close(self) -> None:
        """End them."""


@runtime_checkable
class LeavesUndecayed(Protocol):
    """A policy with parameters that weight decay must leave alone."""

    @property
    def undecayed(self) -> tuple[nn.Parameter, ...]:
        """These parameters."""
