"""The one training loop: update until the steps or the time are spent, log, validate, checkpoint.

The `Trainer` knows what an update is; the loop knows clocks and budgets only.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from nco_bench.nn.device import flushing_denormals
from nco_bench.training.distributed import agreed
from nco_bench.training.learner import Measure
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer

QUESTION_SECONDS = 1.0


@dataclass(frozen=True)
class Hooks:
    """What the loop calls besides updating.

    Attributes
    ----------
    validate
        Measures `Trainer.weights`, or returns None where there is nothing to validate on.
    report
        Takes each line of the log as a dict.
    tick
        Takes the share of the run that is done after each update.
    saved
        Called after each checkpoint.
    """

    validate: Callable[[Trainer], Measure | None]
    report: Callable[[dict[str, Any]], None]
    tick: Callable[[float], None]
    saved: Callable[[Trainer], None]


@flushing_denormals()
def train_until_done(
    trainer: Trainer,
    hooks: Hooks,
    budget_s: float | None,
    planned_s: float | None = None,
    until_step: int | None = None,
    asked_to_end: Callable[[], bool] = lambda: False,
) -> bool:
    """Update until the recipe's steps or this session's time are spent; the last act is a checkpoint.

    Parameters
    ----------
    trainer
        A fresh or resumed run.
    hooks
        Validation and reporting.
    budget_s
        Wall time of this session, validations and checkpoints included; None for no limit. Where the recipe has no number
        of steps, schedules are planned to land at its end.
    planned_s
        Time of all sessions together, where that is known: schedules land at its end instead.
    until_step
        Updates in all sessions after which this one ends; schedules go on as if it did not.
    asked_to_end
        Asked every second; when it says so the session ends with a checkpoint, and without a validation.

    Returns
    -------
    bool
        True when the run is complete, False when only this session has ended.
    """
    recipe, progress = trainer.recipe, trainer.progress
    began = saved = time.monotonic()
    began_core, before_core = time.process_time(), progress.core_seconds
    before = progress.seconds
    # An early validation tells how much time the last one will need.
    next_validation = began + min(recipe.validate_every, (budget_s or math.inf) / 4)
    reserve, window = 0.0, _Window(progress.samples)
    asked, next_question = False, began
    validated: int | None = None
    trainer.policy.train()
    while True:
        elapsed = time.monotonic() - began
        left = None if budget_s is None else budget_s - reserve
        fraction = _fraction(recipe, progress.step, before, elapsed, left)
        if planned_s is not None and not recipe.steps:
            fraction = min((before + elapsed) / planned_s, 1.0 - 1e-9)  # the budget ends the last session
        done = fraction >= 1.0 or (left is not None and elapsed >= left)
        done = done or (until_step is not None and progress.step >= until_step)
        if time.monotonic() >= next_question:
            asked, next_question = asked_to_end(), time.monotonic() + QUESTION_SECONDS
        done = done or asked
        if trainer.group.size > 1:  # the first process keeps time for all
            device = next(iter(trainer.parameters.values())).device
            fraction, done = agreed(fraction, device), bool(agreed(float(done), device))
        if done:
            break
        started = time.monotonic()
        norms = trainer.update(fraction, wait=(progress.step + 1) % recipe.log_every == 0)
        now = time.monotonic()
        window.add(norms, now - started)
        progress.seconds = before + now - began
        progress.core_seconds = before_core + (time.process_time() - began_core) * trainer.group.size
        hooks.tick(fraction)
        if progress.step % recipe.log_every == 0:
            _log(trainer, hooks, window)
            window = _Window(progress.samples)
        if now >= next_validation and not asked:  # an end asked for in a long update is due first
            asked = asked_to_end()
        if now >= next_validation and not asked:
            reserve, validated = _validate(trainer, hooks), progress.step
            next_validation = time.monotonic() + recipe.validate_every
        if now - saved >= recipe.checkpoint_every:
            trainer.save()
            hooks.saved(trainer)
            saved = time.monotonic()
    if not asked and validated != progress.step:
        _validate(trainer, hooks)
    progress.seconds = before + time.monotonic() - began
    progress.core_seconds = before_core + (time.process_time() - began_core) * trainer.group.size
    trainer.save()
    hooks.saved(trainer)
    return fraction >= 1.0


@dataclass
class _Window:
    """What is averaged between two lines of the log."""

    first_sample: int
    norms: list[float] = field(default_factory=list)
    busy: float = 0.0

    def add(self, norms: list[float], seconds: float) -> None:
        self.norms += norms
        self.busy += seconds


def _fraction(recipe: LoopRecipe, step: int, before: float, elapsed: float, budget_s: float | None) -> float:
    if recipe.steps:
        return step / recipe.steps
    if budget_s is None:
        return 0.0
    return (before + elapsed) / max(before + budget_s, 1e-9)


def _log(trainer: Trainer, hooks: Hooks, window: _Window) -> None:
    progress = trainer.progress
    line = {
        "step": progress.step,
        "samples": progress.samples,
        "seconds": round(progress.seconds, 1),
        "loss": progress.loss,
        "grad_norm": fmean(window.norms),
        "samples_per_s": (progress.samples - window.first_sample) / max(window.busy, 1e-9),
        "lr": trainer.optimizer.param_groups[0]["lr"],
    }
    progress.history.append(line)
    hooks.report(line)


def _validate(trainer: Trainer, hooks: Hooks) -> float:
    """Validate, log, and return the seconds that it took."""
    progress, started = trainer.progress, time.monotonic()
    if not trainer.group.first:
        return 0.0
    trainer.policy.eval()
    measure = hooks.validate(trainer)
    trainer.policy.train()
    if measure is not None:
        progress.gap, progress.gap_ci95 = measure.value, measure.ci95
        progress.validation = dataclasses.asdict(measure)
        line = {
            "step": progress.step,
            "samples": progress.samples,
            "seconds": round(progress.seconds, 1),
            **{m.name: m.value for m in (measure, *measure.also)},
        }
        progress.history.append(line)
        hooks.report({**line, "unit": measure.unit})
    return time.monotonic() - started
