"""AM, POMO and ELG as solvers: a model, its weights and a decoding.

Without ``--weights`` a model takes those under its name, else the official ones of the nearest training size.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.device import PerDevice, check_graphs, on_cpu, warn_of_slow
from nco_bench.problems import Instance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import (
    Family,
    NetworkSolver,
    small_problem,
    to_tensors,
    to_unit_square,
    to_unit_square_by_one_range,
)
from nco_bench.solvers.protocol import Outcome, SolverOptions
from nco_bench.solvers.stepwise.decode import check_decoding, decode_encode_once, trajectories


def apart(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift and scale each axis of coordinates ``(N, 2)`` to [0, 1]."""
    low, side = coords.min(axis=0), np.ptp(coords, axis=0)
    return (coords - low) / np.where(side > 0, side, 1.0)


AXES = {"together": to_unit_square, "common": to_unit_square_by_one_range, "apart": apart}
"""How coordinates come into the unit square: one scale, each axis shifted by itself or both by one; or two scales."""


class EncodeOnceSolver(NetworkSolver):
    """Any encode-once policy with any decoding that fits it."""

    family = Family(
        params={
            "loads": (str, "exact"),
            "axes": (str, "together"),
            "precision": (str, "fp32"),
            "graphs": (str, "off"),
        },
        choices={"loads": ("exact", "float32"), "axes": tuple(AXES)},
        refused={"--coordinate-scale": "{} is for models with relative positions; leave it out."},
        fractional=True,
        budget=PerDevice(cpu=2**22, gpu=2**28),  # scores; decoding cuts them further
        largest_batch=1024,
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        check_decoding(self.decoding)

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Give the policy the precision and the recordings that were asked for."""
        if self.params["precision"] != "fp32":
            from nco_bench.solvers.stepwise.precision import at_precision

            policy = at_precision(policy, self.params["precision"])
            warn_of_slow(self.params["precision"], self.options.device, "--param")
        if check_graphs(self.params["graphs"], self.options.device):
            from nco_bench.solvers.stepwise.replayed import Replayed

            policy = Replayed(policy)
        return policy

    def warm_up(self, dataset: Dataset) -> None:
        """Compile the loops of `rollout`, or load them, before a clock runs."""
        if on_cpu(self.options.device):
            floats = self.params["loads"] == "float32"
            coords, *load = small_problem(dataset)
            with suppress(BadInputError):  # of a logit scale of weights for more nodes
                for name in ("greedy", "multistart") if self.decoding.name != "greedy" else ("greedy",):
                    # Many trajectories have loops of their own.
                    decoding = parse_decoding(name)
                    decode_encode_once(self.policy, coords, *load, decoding=decoding, float32_loads=floats)

    def cost(self, dataset: Dataset) -> int:
        """Scores of one step: trajectories x nodes."""
        n = dataset.sizes[1]
        return n * trajectories(self.decoding, n) * self.decoding.augmentation

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Decode as was asked; there is no intermediate solution to stop at."""
        solutions = decode_encode_once(
            self.policy,
            *to_tensors(batch, AXES[self.params["axes"]]),
            decoding=self.decoding,
            seeds=torch.arange(seed, seed + len(batch)),
            float32_loads=self.params["loads"] == "float32",
        )
        return list(solutions)
