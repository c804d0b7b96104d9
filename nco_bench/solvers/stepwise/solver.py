"""AM, POMO and ELG as solvers: a model, its weights and a decoding.

Instances are given to the network in the unit square, as `nco_bench.solvers.network` says. Without ``--weights`` a model
takes those under its name, else the official ones of the nearest training size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.cards import card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import Instance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import RANDOM_WEIGHTS, built, facts_of, to_tensors, to_unit_square, unsuited
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, one_by_one, read_params
from nco_bench.solvers.stepwise.decode import check_decoding, decode_encode_once, trajectories
from nco_bench.weights.choice import default_weights
from nco_bench.weights.pulling import find
from nco_bench.weights.store import WeightsFile

ENTRIES_PER_BATCH = {"cpu": 2**22, "cuda": 2**28}
"""Scores (instances x trajectories x nodes) per batch with ``--batch-size auto``; decoding cuts them further."""

LARGEST_BATCH = 1024
CHOICES = {"loads": ("exact", "float32"), "axes": ("together", "apart")}


class EncodeOnceSolver:
    """Any encode-once policy with any decoding that fits it; ``--weights random`` runs an untrained network."""

    def __init__(self, options: SolverOptions) -> None:
        self.name = options.solver
        self.options = options
        self.decoding = parse_decoding(options.decoding or card(self.name).decodings[0])
        check_decoding(self.decoding)
        params = read_params(self.name, options.params, loads=(str, "exact"), axes=(str, "together"))
        for key, known in CHOICES.items():
            if params[key] not in known:
                raise UnknownNameError(f"value of parameter {key} of {self.name}", params[key], known)
        if options.coordinate_scale is not None:
            raise BadInputError(
                f"{self.name}: --coordinate-scale is for models with relative positions; leave it out."
            )
        self.float32_loads, self.apart = params["loads"] == "float32", params["axes"] == "apart"
        self.policy: torch.nn.Module | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates, or with route length limits."""
        return unsuited(dataset, fractional=True)

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, move the network to the device."""
        config: dict[str, Any] = {}
        if self.options.weights != RANDOM_WEIGHTS:
            name = self.options.weights or default_weights(self.name, dataset.problem, dataset.sizes[1])
            self.weights = find(name, self.name, dataset.problem)
            config = self.weights.manifest.config
        sizes = {"problem": dataset.problem, **config}
        policy = built(
            lambda: build_path_policy(self.name, logit_scale=self.options.logit_scale, **sizes),
            self.weights,
        )
        self.policy = policy.to(self.options.device).eval()

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together; one at a time where sizes differ."""
        smallest, largest = dataset.sizes
        if smallest != largest:
            return 1
        entries = ENTRIES_PER_BATCH[self.options.device.partition(":")[0]]
        each = largest * trajectories(self.decoding, largest) * self.decoding.augmentation
        return max(1, min(LARGEST_BATCH, entries // each))

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Solve instances of equal size together, others one by one."""
        if len({instance.n for instance in batch}) > 1:
            return one_by_one(self.solve, batch, seed=seed, time_limit=time_limit, progress=progress)
        assert self.policy is not None
        coords, demand, capacity = to_tensors(batch, self._scaled)
        solutions = decode_encode_once(
            self.policy,
            coords,
            demand,
            capacity,
            decoding=self.decoding,
            seeds=torch.arange(seed, seed + len(batch)),
            float32_loads=self.float32_loads,
        )
        progress(len(batch))
        return list(solutions)

    def close(self) -> None:
        """Free the network."""
        self.policy = None

    def _scaled(self, coords: NDArray[np.float64]) -> NDArray[np.float64]:
        if not self.apart:
            return to_unit_square(coords)
        low, side = coords.min(axis=0), np.ptp(coords, axis=0)
        return (coords - low) / np.where(side > 0, side, 1.0)
