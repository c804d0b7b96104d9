"""The networks of the Tropical Attention paper as solvers of the algorithmic tasks.

A network belongs to one task. Without ``--weights`` the shipped ones of training seed 0 for the dataset's task are taken;
``--weights seed3`` takes those of another seed, ``--weights random`` runs an untrained network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.algorithmic_regression import as_stored
from nco_bench.problems.tasks import Task
from nco_bench.solvers.network import RANDOM_WEIGHTS, built
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, read_params
from nco_bench.solvers.sequences.task_networks import TaskNetwork, build_task_network
from nco_bench.weights.store import SUFFIX, WeightsFile, load_into, resolve

SCORES_PER_BATCH = {"cpu": 2**22, "cuda": 2**27}
"""Attention scores (instances x tokens x tokens) of a head per batch with ``--batch-size auto``."""

LARGEST_BATCH = 500
DECODINGS = ("greedy",)


class TaskNetworkSolver:
    """A network that answers each token, or the instance, with 0 or 1 or a number."""

    def __init__(self, options: SolverOptions) -> None:
        self.name, self.options = options.solver, options
        read_params(self.name, options.params)
        if options.decoding not in (None, *DECODINGS):
            raise BadInputError(f"{self.name}: it answers directly; leave --decoding out.")
        for option, value in (
            ("--logit-scale", options.logit_scale),
            ("--coordinate-scale", options.coordinate_scale),
        ):
            if value is not None:
                raise BadInputError(f"{self.name}: {option} is for routing models; leave it out.")
        self.network: TaskNetwork | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for other problems, and for tasks whose answers are classes."""
        instance = dataset.instances[0]
        if not isinstance(instance, TaskInstance):
            return f"answers algorithmic tasks, not {dataset.problem}"
        if instance.task.answer == "classes":
            return f"answers 0/1 or numbers, not the classes of variant {instance.variant}"
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Load the weights of the dataset's task and run once."""
        first = dataset.instances[0]
        assert isinstance(first, TaskInstance)
        self.weights, network = load_network(self.name, first.task, self.options.weights)
        self.network = network.to(self.options.device).eval()
        self._answers([first])

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        if self.weights is None:
            return {"name": RANDOM_WEIGHTS, "sha256": RANDOM_WEIGHTS}
        # The manifest names task and variant, which `solve` insists on; the distribution is the setting of training.
        return {**self.weights.facts(), "training_distribution": "id"}

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are answered together; one at a time where lengths differ."""
        smallest, largest = dataset.sizes
        first = dataset.instances[0]
        if smallest != largest or not isinstance(first, TaskInstance):
            return 1
        budget = SCORES_PER_BATCH[self.options.device.partition(":")[0]]
        return max(1, min(LARGEST_BATCH, budget // len(first.inputs) ** 2))

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Answer instances of equal length together, others one by one."""
        instances = [i for i in batch if isinstance(i, TaskInstance)]
        if len({len(i.inputs) for i in instances}) > 1:
            outcomes = [answer for i in instances for answer in self._answers([i])]
        else:
            outcomes = self._answers(instances)
        progress(len(batch))
        return outcomes

    @torch.inference_mode()
    def _answers(self, batch: list[TaskInstance]) -> list[Outcome]:
        assert self.network is not None
        inputs = torch.from_numpy(np.stack([i.inputs for i in batch])).to(self.options.device)
        values = self.network(inputs).float().cpu().numpy()
        task = batch[0].task
        return [_stored(task, np.atleast_1d(row)) for row in values]

    def close(self) -> None:
        """Free the network."""
        self.network = None


def _stored(task: Task, values: NDArray[np.float32]) -> NDArray[np.int32]:
    return as_stored(values) if task.regression else (values > 0).astype(np.int32)


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
    if weights == RANDOM_WEIGHTS:
        return None, built(lambda: build_task_network(name, task.width, task.output == "pooled"), None)
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
    network = build_task_network(name, task.width, task.output == "pooled")
    load_into(network, file)
    return file, network
