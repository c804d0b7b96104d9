"""Learning the algorithmic tasks: endless fresh instances, binary cross-entropy or squared error (appendix F of the paper).

``nco-bench train tropical --data knapsack`` and the like. The paper names two learning rates, 1e-3 in its text and 1e-4 in
its table; 1e-3 is used here. Every task is trained on 10,000,000 samples, the graph tasks too, whose batches are smaller and
updates more. Weights are those after the last update, as published; instances are drawn afresh instead of 100 times from a
fixed set of 100,000.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nco_bench.errors import BadInputError, ResultsError, UnknownNameError
from nco_bench.nn.memory import keep_freed_memory
from nco_bench.problems.tasks import TASKS, VARIANTS, Task, TaskBatch, generate, stream
from nco_bench.solvers.sequences.task_networks import TaskNetwork, build_task_network
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Loss, Measure
from nco_bench.training.manifest import manifest_of
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData

PAPER_SAMPLES = 10_000_000
BATCH, GRAPH_BATCH = 500, 16
CHAPTER = 64
"""Batches drawn from one seed of the generator; a resumed run skips at most so many."""

CHAPTERS_PER_SEED = 1_000_000
VALIDATION, GRAPH_VALIDATION, VALIDATION_SEED = 2000, 200, 4321


@dataclass(frozen=True)
class TaskRecipe(LoopRecipe):
    """How a task network learns; see `LoopRecipe` for the rest.

    Attributes
    ----------
    graph_batch
        Graphs per update, in place of `batch`.
    steps
        Updates in all. For a graph task they follow from the samples, ``steps * batch`` of them in batches of `graph_batch`,
        unless ``--config steps=N`` says otherwise (`fitted`): the paper's 10M samples are 625,000 steps of 16.
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


def batch_of(recipe: TaskRecipe, task: Task) -> int:
    """Return the instances per update on a task."""
    return max(1, recipe.graph_batch if task.graph else recipe.batch)


def fitted(recipe: TaskRecipe, config: Mapping[str, str], data: Sequence[str | Path]) -> TaskRecipe:
    """Give a graph task the samples that the recipe has for the others, where no steps were asked for."""
    task = TASKS.get(str(data[0]).partition(":")[0]) if len(data) == 1 else None
    if task is None or not task.graph or "steps" in config:
        return recipe
    batch = batch_of(recipe, task)
    # At least one update: a recipe of 0 steps would train until the time is over.
    return dataclasses.replace(recipe, batch=batch, steps=max(1, recipe.steps * recipe.batch // batch))


def untrained(network: str, task: Task, seed: int) -> TaskNetwork:
    """Return a network for a task, initialised from the seed; the global generator is left as it was.

    Raises
    ------
    BadInputError
        For a variant with classes as answers, for which there is no published network.
    """
    if task.answer == "classes":
        raise BadInputError(
            f"{task.name}:variant={task.variant}: the networks answer 0/1 or a number; choose another variant."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_task_network(network, task.width, task.output == "pooled")


def task_loss(task: Task, answers: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of answers and targets of one shape: cross-entropy with logits, or squared error."""
    if task.regression:
        return functional.mse_loss(answers, targets)
    return functional.binary_cross_entropy_with_logits(answers, targets)


class TaskLearner:
    """Draws batches of a task in training and returns the loss of a network on them.

    Parameters
    ----------
    policy
        The network.
    task
        The task in its variant.
    batch
        Instances per update.
    seed
        Of the instances; no seed draws instances of a test set.
    """

    def __init__(self, policy: nn.Module, task: Task, batch: int, seed: int) -> None:
        self.extra = nn.ModuleDict()
        self.policy, self.task, self.batch, self.seed = policy, task, batch, seed
        self.device = next(policy.parameters()).device
        self.drawn = 0
        self.batches: Iterator[TaskBatch] = iter(())

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw the next batch and return the loss on it."""
        if self.drawn % CHAPTER == 0:
            self._open(0)
        found = next(self.batches)
        self.drawn += 1
        inputs = torch.from_numpy(found.inputs).to(self.device)
        targets = torch.from_numpy(found.targets).float().to(self.device)
        loss = task_loss(self.task, self.policy(inputs), targets)
        return Loss(loss, loss, len(found))

    def _open(self, skip: int) -> None:
        seed = self.seed * CHAPTERS_PER_SEED + self.drawn // CHAPTER
        self.batches = stream(self.task.name, "id", None, self.batch, seed, self.task.variant)
        for _ in range(skip):
            next(self.batches)

    def position(self) -> dict[str, Any]:
        """Return task, seed and how many batches were drawn."""
        return {"task": self.task.name, "variant": self.task.variant, "seed": self.seed, "drawn": self.drawn}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position.

        Raises
        ------
        ResultsError
            When it belongs to another task or seed.
        """
        mine = self.position()
        for key in ("task", "variant", "seed"):
            if position.get(key) != mine[key] and not adopt:
                raise ResultsError(
                    f"This training was of {key} {position.get(key)}, not {mine[key]}; choose another folder."
                )
        self.drawn = int(position["drawn"])
        if self.drawn % CHAPTER:
            self._open(self.drawn % CHAPTER)


@torch.inference_mode()
def validation_score(policy: nn.Module, task: Task) -> float:
    """Return F1 of the positive class in percent, or the mean squared error, on fresh instances as in training."""
    device = next(policy.parameters()).device
    count = GRAPH_VALIDATION if task.graph else VALIDATION
    fresh = generate(task.name, "id", None, count, VALIDATION_SEED, task.variant)
    training = policy.training
    policy.eval()
    answers = torch.cat([policy(part.to(device)).cpu() for part in torch.from_numpy(fresh.inputs).split(500)])
    policy.train(training)
    truth = torch.from_numpy(fresh.targets).float()
    if task.regression:
        return float(((answers - truth) ** 2).mean())
    said, positive = answers > 0, truth > 0.5
    return float(200 * (said & positive).sum() / (said.sum() + positive.sum()).clamp(min=1))


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
    learner = TaskLearner(policy, task, batch_of(recipe, task), assignment.seed)

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
        manifest=lambda trainer, name: _manifest(trainer, name, task),
        identity={
            "model": assignment.model,
            "problem": task.name,
            "variant": task.variant,
            "seed": assignment.seed,
        },
    )


def _manifest(trainer: Trainer, name: str, task: Task) -> Manifest:
    """Say what the weights are; the score is the last validation's."""
    samples, score = trainer.progress.samples, trainer.progress.gap
    what = "mean squared error" if task.regression else "F1 in percent"
    measured = "" if score is None else f" On fresh instances as in training: {what} {score:.4g}."
    made = manifest_of(
        trainer,
        name,
        TrainingData(f"{task.name}:variant={task.variant}", task.train_n, samples, "exact labels"),
        PAPER_SAMPLES,
        config={"features": task.width, "pooled": task.output == "pooled"},
        notes=f"Weights after the last update.{measured}",
        digits=5,
    )
    return dataclasses.replace(made, share_of_paper=samples / PAPER_SAMPLES)


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


COURSE = Course("tasks", TaskRecipe, prepare, fit=fitted)
