"""
Neural solvers: a model, its weights and a decoding behind the solver protocol.

Instances are given to the network in the unit square: coordinates that already lie there stay as they are, others
are shifted to the origin and divided by the longer side of their bounding box, one scale for both axes, so
that shapes are kept. Tours are scored on the raw coordinates, by the referee, like everybody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.decoding.spec import Decoding, parse_decoding
from nco_bench.decoding.solve import decode_path
from nco_bench.errors import BadInputError, MissingDependencyError
from nco_bench.models.registry import build_path_policy, entry
from nco_bench.problems import Instance
from nco_bench.solvers.base import Outcome, Progress, Solved, SolverOptions, read_params
from nco_bench.weights.store import WeightsFile, load_state, resolve

TOKENS_PER_BATCH = {"cpu": 20_000, "cuda": 400_000}
"""Nodes solved together with ``--batch-size auto``: enough to keep the device busy, little enough for its memory."""
RANDOM_WEIGHTS = "random"


@dataclass(frozen=True)
class UnitSquare:
    """Coordinates as a network sees them, ``(N, 2)`` float32 in [0, 1]."""

    coords: NDArray[np.float32]


def to_unit_square(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    """
    Shift and scale coordinates into the unit square, one scale for both axes.

    Parameters
    ----------
    coords
        ``(N, 2)`` raw coordinates.

    Returns
    -------
    NDArray
        ``(N, 2)``; the same array where it already lies in the unit square; zeros where all points are equal.
    """
    low, high = coords.min(axis=0), coords.max(axis=0)
    if low.min() >= 0.0 and high.max() <= 1.0:
        return coords
    side = float((high - low).max())
    return (coords - low) / (side if side > 0 else 1.0)


class PathSolver:
    """Any path policy with any decoding that fits it; ``--weights random`` runs an untrained network."""

    def __init__(self, options: SolverOptions) -> None:
        self.name = options.solver
        self.model = entry(self.name)
        self.decoding: Decoding = parse_decoding(options.decoding or "greedy")
        self.options = options
        self.params = read_params(self.name, options.params, knn=(int, 0))
        self.policy: torch.nn.Module | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates, or too small for a network."""
        for instance in dataset.instances:
            arrays = instance.arrays()
            if instance.convention == "explicit":
                return f"needs coordinates, {instance.name} is given by a distance matrix"
            if "max_route_length" in arrays:
                return f"does not know route length limits, {instance.name} has one"
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, move the network to the device."""
        device = torch.device(self.options.device)
        state: dict[str, Any] | None = None
        config: dict[str, Any] = {}
        if self.options.weights != RANDOM_WEIGHTS:
            self.weights = resolve(self.options.weights or self.name, self.name, dataset.problem)
            state, config = load_state(self.weights), dict(self.weights.manifest.config)
        self.policy = build_path_policy(
            self.name, dataset.problem, logit_scale=self.options.logit_scale, **config
        )
        if state is None:
            _initialise(self.policy)
        else:
            self.policy.load_state_dict(state)
        self.policy = self.policy.to(device).eval()

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return {"name": RANDOM_WEIGHTS, "sha256": RANDOM_WEIGHTS} if self.weights is None else self.weights.facts()

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together; one at a time where sizes differ."""
        smallest, largest = dataset.sizes
        if smallest != largest:
            return 1
        beams = self.decoding.k if self.decoding.name in ("beam", "sample") else 1
        tokens = TOKENS_PER_BATCH[self.options.device.partition(":")[0]]
        return max(1, min(1024, tokens // (largest * beams)))

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Solve instances of equal size together, others one by one."""
        if len({instance.n for instance in batch}) > 1:
            return [
                outcome
                for offset, instance in enumerate(batch)
                for outcome in self.solve([instance], seed=seed + offset, time_limit=time_limit, progress=progress)
            ]
        raise BadInputError("not wired yet")

    def close(self) -> None:
        """Free the network."""
        self.policy = None


def _initialise(policy: torch.nn.Module) -> None:
    """Draw fresh weights from a fixed seed, so that an untrained network is the same everywhere."""
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for parameter in policy.parameters():
            bound = 1.0 / max(1, parameter.shape[-1] if parameter.dim() else 1) ** 0.5
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))
