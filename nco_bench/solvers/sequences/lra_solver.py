"""The classifiers of Long Range Arena as solvers. Weights are named with ``--weights``; none are shipped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.problems import Instance
from nco_bench.problems.lra import LRAInstance, LRATask
from nco_bench.solvers.network import RANDOM_WEIGHTS, built, facts_of
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, read_params
from nco_bench.solvers.sequences.lra import LRAClassifier, LRAConfig, lra_config
from nco_bench.weights.choice import at_hand, how_to_get
from nco_bench.weights.store import WeightsFile, load_into, resolve

TOKENS_PER_BATCH = 16_000


class LRASolver:
    """A classifier that answers with its most likely class."""

    def __init__(self, options: SolverOptions) -> None:
        self.name, self.options = options.solver, options
        read_params(self.name, options.params)
        if options.decoding not in (None, "greedy"):
            raise BadInputError(f"{self.name}: it answers directly; leave --decoding out.")
        if options.logit_scale is not None or options.coordinate_scale is not None:
            raise BadInputError(
                f"{self.name}: --logit-scale and --coordinate-scale are for routing models; leave them out."
            )
        self.network: LRAClassifier | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for other problems."""
        if isinstance(dataset.instances[0], LRAInstance):
            return None
        return f"answers Long Range Arena, not {dataset.problem}"

    def prepare(self, dataset: Dataset) -> None:
        """Load the weights and answer once."""
        first = dataset.instances[0]
        assert isinstance(first, LRAInstance)
        self.weights, network = load_classifier(self.name, first.task, self.options.weights)
        self.network = network.to(self.options.device).eval()
        self._answers([first])

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are answered together, by the longest."""
        return max(1, min(64, TOKENS_PER_BATCH // dataset.sizes[1]))

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Answer a batch, shorter sequences with padding behind them."""
        outcomes = self._answers([i for i in batch if isinstance(i, LRAInstance)])
        progress(len(batch))
        return outcomes

    @torch.inference_mode()
    def _answers(self, batch: list[LRAInstance]) -> list[Outcome]:
        assert self.network is not None
        columns = zip(*(i.texts for i in batch), strict=True)
        logits = self.network(*(self._padded(list(column)) for column in columns))
        return [np.array([said], dtype=np.int32) for said in logits.argmax(1).tolist()]

    def _padded(self, texts: list[np.ndarray]) -> torch.Tensor:
        out = np.zeros((len(texts), max(map(len, texts))), dtype=np.int64)
        for row, text in zip(out, texts, strict=True):
            row[: len(text)] = text
        return torch.from_numpy(out).to(self.options.device)

    def close(self) -> None:
        """Free the network."""
        self.network = None


def load_classifier(
    name: str, task: LRATask, weights: str | None
) -> tuple[WeightsFile | None, LRAClassifier]:
    """Return a classifier with its weights: a name or file, ``random``, or None for those trained into the cache.

    Raises
    ------
    BadWeightsError
        When they are missing, damaged, or of another task or network.
    """
    if weights is None and not at_hand(f"{name}-{task.name}"):
        raise BadWeightsError(
            f"{name}: no weights are shipped for {task.name}; train some with '{how_to_get(name, task.name).command}', or "
            "name others with --weights (random: an untrained network)."
        )
    if weights == RANDOM_WEIGHTS:
        config = lra_config(name, task.name, task.vocabulary, task.classes, task.texts)
        return None, built(lambda: LRAClassifier(config), None)
    file = resolve(weights or f"{name}-{task.name}", name, task.name)
    try:
        network = LRAClassifier(LRAConfig(**file.manifest.config))
    except TypeError as error:
        raise BadWeightsError(f"{file.path}: its manifest has other sizes than {name}: {error}.") from None
    load_into(network, file)
    return file, network
