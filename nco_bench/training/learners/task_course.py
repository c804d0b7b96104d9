"""The course of the task networks, ``nco-bench train tropical --data knapsack``: the paper's recipe on fresh instances."""

from __future__ import annotations

from dataclasses import dataclass

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.tasks import TASKS, VARIANTS, Task
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Measure
from nco_bench.training.learners.tasks import (
    BATCH,
    GRAPH_BATCH,
    GRAPH_VALIDATION,
    PAPER_SAMPLES,
    VALIDATION,
    TaskLearner,
    task_manifest,
    untrained,
    validation_score,
)
from nco_bench.training.machine import keep_freed_memory
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer


@dataclass(frozen=True)
class TaskRecipe(LoopRecipe):
    """How a task network learns; see `LoopRecipe` for the rest.

    Attributes
    ----------
    graph_batch
        Graphs per update, in place of `batch`. The paper's 10M samples are 625,000 steps of 16.
    """

    learner: str = "tasks"
    batch: int = BATCH
    graph_batch: int = GRAPH_BATCH
    steps: int = PAPER_SAMPLES // BATCH
    lr: float = 1e-3
    schedule: str = "constant"
    clip: float = 0.0
    spike: float = 0.0
    log_every: int = 100


def prepare(assignment: Assignment) -> Prepared:
    """Make network, learner and measure for the task that ``--data`` names.

    Raises
    ------
    BadInputError, UnknownNameError
        When it names no task, several, or a variant without a published network.
    """
    task, recipe = _task(assignment), assignment.recipe
    keep_freed_memory()
    policy = untrained(assignment.model, task, assignment.seed).to(assignment.device)
    batch = recipe.graph_batch if task.graph else recipe.batch
    learner = TaskLearner(policy, task, max(1, batch), assignment.seed)

    def validate(trainer: Trainer) -> Measure:
        value = validation_score(trainer.policy, task)
        count = GRAPH_VALIDATION if task.graph else VALIDATION
        if task.regression:
            return Measure(value, 0.0, count, name="validation_mse", unit="")
        return Measure(value, 0.0, count, name="validation_f1", unit="%", higher_is_better=True)

    return Prepared(
        policy=policy,
        learner=learner,
        validate=validate,
        manifest=lambda trainer, name: task_manifest(
            trainer, name, assignment.model, task, assignment.seed, trainer.progress.gap
        ),
        identity={
            "model": assignment.model,
            "problem": task.name,
            "variant": task.variant,
            "seed": assignment.seed,
        },
    )


def _task(assignment: Assignment) -> Task:
    if len(assignment.data) != 1:
        raise BadInputError(
            f"{assignment.model} learns one task: name it, as in --data knapsack (there are: {', '.join(TASKS)})."
        )
    name, *parts = str(assignment.data[0]).split(":")
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    if not parts:
        return TASKS[name]
    variant = parts[0].removeprefix("variant=")
    if len(parts) > 1 or variant not in VARIANTS[name]:
        raise BadInputError(
            f"--data {assignment.data[0]}: training takes a task and perhaps its variant, "
            f"such as {name}:variant={next(iter(VARIANTS[name]))}."
        )
    return VARIANTS[name][variant]


COURSE = Course("tasks", TaskRecipe, prepare)
