"""Scores of the task networks without a results folder: for sweeps over lengths and for means over training seeds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nco_bench.problems.tasks import Task, TaskBatch, generate
from nco_bench.solvers.sequences.task_solver import LARGEST_BATCH, SCORES_PER_BATCH, load_network
from nco_bench.weights.shelf import list_weights


@dataclass(frozen=True)
class TaskScore:
    """Pooled metrics of a network on a set: F1 and accuracy in percent, or the mean squared error; the rest is None."""

    f1: float | None = None
    accuracy: float | None = None
    mse: float | None = None

    @property
    def main(self) -> float:
        """F1 of the positive class, or the mean squared error."""
        value = self.mse if self.f1 is None else self.f1
        assert value is not None
        return value


def score_of(task: Task, answers: np.ndarray, targets: np.ndarray) -> TaskScore:
    """Pool the metrics of raw answers (logits or numbers) over all tokens of all instances."""
    if task.regression:
        return TaskScore(mse=float(((answers.astype(np.float64) - targets) ** 2).mean()))
    said, truth = answers > 0, targets > 0.5
    hits, marked = int((said & truth).sum()), int(said.sum() + truth.sum())
    return TaskScore(f1=200.0 * hits / max(1, marked), accuracy=100.0 * float((said == truth).mean()))


@torch.inference_mode()
def score_network(name: str, task: Task, batch: TaskBatch, weights: str | None = None) -> TaskScore:
    """Run a network on a set, on the CPU.

    Parameters
    ----------
    name, weights
        As `nco_bench.solvers.sequences.task_solver.load_network`, which see for what it raises.
    """
    _, network = load_network(name, task, weights)
    network = network.eval()
    tokens = batch.inputs.shape[1]
    each = max(1, min(LARGEST_BATCH, SCORES_PER_BATCH.cpu // tokens**2))
    parts = torch.from_numpy(batch.inputs).split(each)
    answers = torch.cat([network(part).float() for part in parts])
    return score_of(task, answers.numpy(), batch.targets)


@dataclass(frozen=True)
class TrainingSeeds:
    """Weights of one network and task that can be pooled: the most trained ones, and those trained as far.

    Attributes
    ----------
    seeds
        Ascending.
    samples, share_of_paper
        Of each training; the share is None where the manifest does not know it.
    """

    seeds: tuple[int, ...]
    samples: int
    share_of_paper: float | None


def training_seeds(name: str, task: Task) -> TrainingSeeds | None:
    """Return the training seeds of which weights are at hand, equally trained; None for none."""
    pattern = re.compile(rf"{re.escape(name)}-{re.escape(task.name)}-seed(\d+)")
    found = {int(m[1]): file.manifest for file in list_weights() if (m := pattern.fullmatch(file.path.stem))}
    if not found:
        return None
    most = max(found.values(), key=lambda manifest: manifest.samples)
    equal = tuple(sorted(seed for seed, manifest in found.items() if manifest.samples == most.samples))
    return TrainingSeeds(equal, most.samples, most.share_of_paper)


def over_seeds(
    name: str, task: Task, setting: str, count: int, seeds: Sequence[int], metric: str = "main"
) -> tuple[float, float | None]:
    """Return mean and sample deviation of a score over training seeds; one seed has no deviation.

    Parameters
    ----------
    setting, count
        Which instances, and how many; the same for all seeds.
    seeds
        Training seeds whose weights are at hand, at least one.
    metric
        An attribute of `TaskScore` that the task has.
    """
    batch = generate(task.name, setting, None, count, variant=task.variant)
    values = [float(getattr(score_network(name, task, batch, f"seed{seed}"), metric)) for seed in seeds]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return float(np.mean(values)), deviation
