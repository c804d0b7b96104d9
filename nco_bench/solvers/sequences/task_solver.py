"""The networks of the Tropical Attention paper as solvers of the algorithmic tasks.

A network belongs to one task. Without ``--weights`` the shipped ones of training seed 0 for the dataset's task are taken;
``--weights seed3`` takes those of another seed, ``--weights random`` runs an untrained network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice
from nco_bench.problems import Instance
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.algorithmic_regression import as_stored
from nco_bench.problems.tasks import Task
from nco_bench.solvers.network import RANDOM_WEIGHTS, Family, NetworkSolver, built
from nco_bench.solvers.protocol import Outcome
from nco_bench.solvers.sequences.task_networks import TaskNetwork, build_task_network
from nco_bench.weights.store import SUFFIX, WeightsFile, resolve

SCORES_PER_BATCH = PerDevice(cpu=2**22, gpu=2**27)
"""Attention scores (instances x tokens x tokens) of a head per batch with ``--batch-size auto``."""

LARGEST_BATCH = 500


class TaskNetworkSolver(NetworkSolver):
    """A network that answers each token, or the instance, with 0 or 1 or a number."""

    family = Family(
        decodes=False,
        refused=dict.fromkeys(
            ("--logit-scale", "--coordinate-scale"), "{} is for routing models; leave it out."
        ),
        budget=SCORES_PER_BATCH,
        largest_batch=LARGEST_BATCH,
    )

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for other problems, and for tasks whose answers are classes."""
        instance = dataset.instances[0]
        if not isinstance(instance, TaskInstance):
            return f"answers algorithmic tasks, not {dataset.problem}"
        if instance.task.answer == "classes":
            return f"answers 0/1 or numbers, not the classes of variant {instance.variant}"
        return None

    def find_weights(self, dataset: Dataset) -> WeightsFile:
        """Return the weights named, or the shipped ones of the dataset's task."""
        return find_weights(self.name, _task(dataset.instances), self.options.weights)

    def build(self, dataset: Dataset, config: dict[str, Any]) -> TaskNetwork:
        """Build the network of the dataset's task: there is one of each."""
        return build(self.name, _task(dataset.instances))

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights, and the setting of training: the distribution.

        The manifest names task and variant, which `find_weights` insists on.
        """
        facts = super().weights_facts()
        return facts if self.weights is None else {**facts, "training_distribution": "id"}

    def cost(self, dataset: Dataset) -> int:
        """Attention scores of an instance."""
        return len(cast("TaskInstance", dataset.instances[0]).inputs) ** 2

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Answer instances of equal length."""
        inputs = np.stack([cast("TaskInstance", instance).inputs for instance in batch])
        values = self.policy(torch.from_numpy(inputs).to(self.options.device)).float().cpu().numpy()
        return [_stored(_task(batch), np.atleast_1d(row)) for row in values]


def _task(instances: Sequence[Instance]) -> Task:
    return cast("TaskInstance", instances[0]).task


def _stored(task: Task, values: NDArray[np.float32]) -> NDArray[np.int32]:
    return as_stored(values) if task.regression else (values > 0).astype(np.int32)


def build(name: str, task: Task) -> TaskNetwork:
    """Build the network of a task with fresh weights."""
    return build_task_network(name, task.width, task.output == "pooled")


def find_weights(name: str, task: Task, weights: str | None) -> WeightsFile:
    """Return the weights of a network for a task; see `load_network`."""
    chosen = weights or "seed0"
    if re.fullmatch(r"seed\d+", chosen):
        chosen = f"{name}-{task.name}-{chosen}"
    train = f"make them with 'nco-bench train {name} --data {task.name} --out {chosen}{SUFFIX}'"
    file = resolve(chosen, name, task.name, remedy=f"{train} and give the file as weights")
    trained_on = file.manifest.data.distribution
    if trained_on != f"{task.name}:variant={task.variant}":
        raise BadInputError(
            f"{file.path}: these are weights for {trained_on}, not for variant {task.variant}; "
            "run on the dataset's default variant, or give others with --weights."
        )
    return file


def load_network(name: str, task: Task, weights: str | None) -> tuple[WeightsFile | None, TaskNetwork]:
    """Return a network for a task with its weights.

    Parameters
    ----------
    name
        ``tropical``, ``vanilla``, ``adaptive``, ``ut-vanilla`` or ``ut-adaptive``.
    weights
        Name or file of weights, ``seedK`` for the shipped ones of a training seed, ``random``, or None for seed 0.

    Raises
    ------
    BadWeightsError
        When they are missing, damaged, or of another task, variant or network.
    """
    file = None if weights == RANDOM_WEIGHTS else find_weights(name, task, weights)
    return file, built(lambda: build(name, task), file)
