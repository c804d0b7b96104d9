"""Learning the algorithmic tasks: endless fresh instances, binary cross-entropy or squared error (appendix F of the paper).

The paper names two learning rates, 1e-3 in its text and 1e-4 in its table; 1e-3 is used here. Weights are those after the
last update, as published; instances are drawn afresh instead of 100 times from a fixed set of 100,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nco_bench.errors import BadInputError, ResultsError
from nco_bench.problems.tasks import Task, TaskBatch, generate, stream
from nco_bench.solvers.sequences.task_networks import TaskNetwork, build_task_network
from nco_bench.training.learner import Loss
from nco_bench.training.machine import code_version, machine
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData

PAPER_SAMPLES = 10_000_000
BATCH, GRAPH_BATCH = 500, 16
CHAPTER = 64
"""Batches drawn from one seed of the generator; a resumed run skips at most so many."""

CHAPTERS_PER_SEED = 1_000_000
VALIDATION, GRAPH_VALIDATION, VALIDATION_SEED = 2000, 200, 4321


def task_recipe(task: Task) -> LoopRecipe:
    """Return the paper's recipe: AdamW at a constant 1e-3 without warm-up, batch 500 (graphs 16), 10M samples."""
    batch = GRAPH_BATCH if task.graph else BATCH
    return LoopRecipe(
        learner="tasks",
        batch=batch,
        steps=PAPER_SAMPLES // batch,
        lr=1e-3,
        weight_decay=0.01,
        clip=0.0,
        schedule="constant",
        spike=0.0,
        log_every=100,
    )


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


def task_manifest(
    trainer: Trainer, name: str, network: str, task: Task, seed: int, score: float | None
) -> Manifest:
    """Return the manifest of a network's weights; the hash is filled in when they are written.

    Parameters
    ----------
    name
        Of the weights.
    score
        What `validation_score` says of them, None where it was not asked.
    """
    samples, what = trainer.progress.samples, "mean squared error" if task.regression else "F1 in percent"
    measured = "" if score is None else f" On fresh instances as in training: {what} {score:.4g}."
    return Manifest(
        name=name,
        model=network,
        config={"features": task.width, "pooled": task.output == "pooled"},
        problem=task.name,
        parameters=sum(p.numel() for p in trainer.policy.parameters()),
        sha256="",
        steps=trainer.progress.step,
        samples=samples,
        data=TrainingData(f"{task.name}:variant={task.variant}", task.train_n, samples, "exact labels"),
        recipe=asdict(trainer.recipe),
        seed=seed,
        hours=round(trainer.progress.seconds / 3600, 5),
        machine=machine(next(trainer.policy.parameters()).device),
        code_version=code_version(),
        paper_samples=PAPER_SAMPLES,
        share_of_paper=samples / PAPER_SAMPLES,
        recipe_changes=tuple(line for line in trainer.progress.history if "changed" in line),
        notes=f"Weights after the last update.{measured}",
    )
