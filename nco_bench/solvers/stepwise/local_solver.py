"""INViT and DGL as solvers: a model, its weights and a decoding.

Instances are given to the network in the unit square, as `nco_bench.solvers.network` says. Without ``--weights`` a model
takes those under its own name, else the official ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from nco_bench.cards import network_card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import Instance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import RANDOM_WEIGHTS, built, facts_of, to_tensors, unsuited
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, one_by_one, read_params
from nco_bench.solvers.stepwise.decode import ROWS_AT_A_TIME, check_decoding, decode_local_views, trajectories
from nco_bench.weights.choice import default_weights
from nco_bench.weights.pulling import find
from nco_bench.weights.store import WeightsFile


class LocalViewSolver:
    """Any local-view policy with any decoding that fits it; ``--weights random`` runs an untrained network."""

    def __init__(self, options: SolverOptions) -> None:
        self.name = options.solver
        self.model = network_card(self.name).name
        self.options = options
        self.decoding = parse_decoding(options.decoding or "greedy")
        self.turns: int = read_params(self.name, options.params, turns=(int, 1))["turns"]
        check_decoding(self.decoding, self.turns)
        if options.coordinate_scale is not None:
            raise BadInputError(f"{self.name}: --coordinate-scale has no effect on its views; leave it out.")
        self.policy: torch.nn.Module | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates, with route length limits or fractional demands."""
        return unsuited(dataset)

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, move the network to the device."""
        config: dict[str, Any] = {}
        if self.options.weights != RANDOM_WEIGHTS:
            name = self.options.weights or default_weights(self.model, dataset.problem, dataset.sizes[1])
            self.weights = find(name, self.model, dataset.problem)
            config = self.weights.manifest.config
        sizes = {"problem": dataset.problem, **config}
        policy = built(
            lambda: build_path_policy(self.model, logit_scale=self.options.logit_scale, **sizes), self.weights
        )
        if self.decoding.knn is not None:
            _limit_neighbours(policy, self.name, self.decoding.knn)
        self.policy = policy.to(self.options.device).eval()

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are solved together; one at a time where sizes differ."""
        smallest, largest = dataset.sizes
        if smallest != largest:
            return 1
        each = trajectories(self.decoding, largest) * max(self.decoding.augmentation, self.turns)
        return max(1, ROWS_AT_A_TIME[self.options.device.partition(":")[0]] // each)

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Solve instances of equal size together, others one by one."""
        if len({instance.n for instance in batch}) > 1:
            return one_by_one(self.solve, batch, seed=seed, time_limit=time_limit, progress=progress)
        assert self.policy is not None
        solutions = decode_local_views(
            self.policy,
            *to_tensors(batch),
            decoding=self.decoding,
            seeds=torch.arange(seed, seed + len(batch)),
            copies=self.turns,
        )
        progress(len(batch))
        return list(solutions)

    def close(self) -> None:
        """Free the network."""
        self.policy = None


def _limit_neighbours(policy: torch.nn.Module, name: str, count: int) -> None:
    """Set how many neighbours DGL sees, as its authors do for library instances; INViT's views are part of the model."""
    if not hasattr(policy.config, "neighbours"):
        raise BadInputError(f"Decoding knn={count}: the views of {name} have fixed sizes; leave knn out.")
    policy.config = replace(policy.config, neighbours=count, depot_neighbours=count)  # type: ignore[type-var, assignment]
