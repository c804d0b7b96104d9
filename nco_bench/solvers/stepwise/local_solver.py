"""INViT and DGL as solvers: a model, its weights and a decoding.

Without ``--weights`` a model takes those under its own name, else the official ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import torch
from torch import nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.device import check_graphs, on_cpu, warn_of_slow
from nco_bench.problems import Instance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import Family, NetworkSolver, small_problem, to_tensors
from nco_bench.solvers.protocol import Outcome, SolverOptions
from nco_bench.solvers.stepwise.decode import check_decoding, trajectories
from nco_bench.solvers.stepwise.local_steps import ROWS_AT_A_TIME, decode_local_views
from nco_bench.solvers.stepwise.policy import LocalViewPolicy


class LocalViewSolver(NetworkSolver):
    """Any local-view policy with any decoding that fits it."""

    family = Family(
        params={"turns": (int, 1), "precision": (str, "fp32"), "graphs": (str, "off")},
        refused={"--coordinate-scale": "{} has no effect on its views; leave it out."},
        budget=ROWS_AT_A_TIME,
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        self.turns: int = self.params["turns"]
        check_decoding(self.decoding, self.turns)

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Set precision, recordings, and how many neighbours are seen, as the authors of DGL do for library instances."""
        count = self.decoding.knn
        if count is not None and not cast("LocalViewPolicy", policy).limit_neighbours(count):
            raise BadInputError(
                f"Decoding knn={count}: the views of {self.name} have fixed sizes; leave knn out."
            )
        if self.params["precision"] != "fp32":
            from nco_bench.solvers.stepwise.precision import at_precision

            policy = at_precision(policy, self.params["precision"])
            warn_of_slow(self.params["precision"], self.options.device, "--param")
        if check_graphs(self.params["graphs"], self.options.device):
            from nco_bench.solvers.stepwise.replayed import ReplayedViews

            policy = ReplayedViews(policy)
        return policy

    def warm_up(self, dataset: Dataset) -> None:
        """Compile what quick steps need, or load it, before a clock runs."""
        if on_cpu(self.options.device):
            with suppress(
                BadInputError
            ):  # of a logit scale that is not for so few nodes: solving says it where it is so
                decode_local_views(self.policy, *small_problem(dataset), decoding=parse_decoding("greedy"))

    def cost(self, dataset: Dataset) -> int:
        """Partial solutions of an instance."""
        return trajectories(self.decoding, dataset.sizes[1]) * max(self.decoding.augmentation, self.turns)

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Decode as was asked; there is no intermediate solution to stop at."""
        solutions = decode_local_views(
            self.policy,
            *to_tensors(batch),
            decoding=self.decoding,
            seeds=torch.arange(seed, seed + len(batch)),
            copies=self.turns,
        )
        return list(solutions)
