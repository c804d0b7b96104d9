"""The classifiers of Long Range Arena as solvers. Weights are named with ``--weights``; none are shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadWeightsError
from nco_bench.nn.device import PerDevice
from nco_bench.problems import Instance
from nco_bench.problems.lra import LRAInstance, LRATask
from nco_bench.solvers.network import Family, NetworkSolver
from nco_bench.solvers.protocol import Outcome
from nco_bench.solvers.sequences.lra import LRAClassifier, LRAConfig, lra_config
from nco_bench.weights.choice import at_hand, how_to_get
from nco_bench.weights.store import WeightsFile, resolve


class LRASolver(NetworkSolver):
    """A classifier that answers with its most likely class, shorter sequences with padding behind them."""

    family = Family(
        decodes=False,
        refused=dict.fromkeys(
            ("--logit-scale", "--coordinate-scale"),
            "--logit-scale and --coordinate-scale are for routing models; leave them out.",
        ),
        mixed_sizes=True,
        budget=PerDevice(cpu=16_000, gpu=16_000),
        largest_batch=64,
    )

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for other problems."""
        if isinstance(dataset.instances[0], LRAInstance):
            return None
        return f"answers Long Range Arena, not {dataset.problem}"

    def find_weights(self, dataset: Dataset) -> WeightsFile:
        """Return the weights named, or those trained into the cache for the dataset's task."""
        task, asked = _task(dataset).name, self.options.weights
        if asked is None and not at_hand(f"{self.name}-{task}"):
            raise BadWeightsError(
                f"{self.name}: no weights are shipped for {task}; train some with "
                f"'{how_to_get(self.name, task).command}', or name others with --weights (random: an untrained network)."
            )
        return resolve(asked or f"{self.name}-{task}", self.name, task)

    def build(self, dataset: Dataset, config: dict[str, Any]) -> LRAClassifier:
        """Build the classifier of a stored configuration, or of the paper's for the task."""
        if self.weights is None:
            task = _task(dataset)
            return LRAClassifier(lra_config(self.name, task.name, task.vocabulary, task.classes, task.texts))
        try:
            return LRAClassifier(LRAConfig(**config))
        except TypeError as error:
            raise BadWeightsError(
                f"{self.weights.path}: its manifest has other sizes than {self.name}: {error}."
            ) from None

    def cost(self, dataset: Dataset) -> int:
        """Tokens of the longest."""
        return dataset.sizes[1]

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Answer all."""
        columns = zip(*(cast("LRAInstance", instance).texts for instance in batch), strict=True)
        logits = self.policy(*(self._padded(list(column)) for column in columns))
        return [np.array([said], dtype=np.int32) for said in logits.argmax(1).tolist()]

    def _padded(self, texts: list[np.ndarray]) -> torch.Tensor:
        out = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for row, text in zip(out, texts, strict=True):
            row[: len(text)] = text
        return torch.from_numpy(out).to(self.options.device)


def _task(dataset: Dataset) -> LRATask:
    return cast("LRAInstance", dataset.instances[0]).task
