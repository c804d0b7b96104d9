"""attend2pack as a solver: both policies, their weights, greedy decoding or the best of samples.

The network is made for one base (its convolutions and its choice of y have that size), so weights are looked up by base:
without ``--weights`` the shipped ``attend2pack-120x100`` (or another base's), else ``attend2pack`` if it fits.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.device import on_cpu
from nco_bench.nn.logit_scale import none
from nco_bench.problems import Instance
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.solvers.network import Family, NetworkSolver
from nco_bench.solvers.packing.decode import CELLS_AT_A_TIME, decode_packing, to_solutions
from nco_bench.solvers.protocol import Outcome, SolverOptions
from nco_bench.weights.choice import packing_training
from nco_bench.weights.store import WeightsFile, files_called, resolve

MODEL = "attend2pack"


class Attend2packSolver(NetworkSolver):
    """attend2pack; ``--weights random`` runs an untrained network."""

    family = Family(
        refused={"--coordinate-scale": "a packing has no coordinates; leave {} out."},
        budget=CELLS_AT_A_TIME,
        largest_batch=256,
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        decoding = self.decoding
        if decoding.name not in ("greedy", "sample") or decoding.augmentation > 1:
            raise BadInputError(
                f"{MODEL}: decoding {decoding} does not fit a packing; use greedy or sample:K."
            )
        if decoding.knn is not None:
            raise BadInputError(f"{MODEL}: decoding {decoding}: the model sees all boxes; leave knn out.")

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances whose bins differ."""
        if dataset.problem != "bpp3d":
            return f"{MODEL} packs boxes (bpp3d), it does not solve {dataset.problem}"
        if len({base_of(instance) for instance in dataset.instances}) > 1:
            return f"{MODEL} is made for one base, {dataset.name} has several"
        return None

    def find_weights(self, dataset: Dataset) -> WeightsFile:
        """Return the weights named, or those for the dataset's base; refuse those of another base."""
        length, width = base_of(dataset.instances[0])
        remedy = f"make some for this base with '{packing_training(MODEL, f'{length}x{width}')}'"
        weights = resolve(
            self.options.weights or default_weights(length, width), MODEL, "bpp3d", remedy=remedy
        )
        made_for = (weights.manifest.config["bin_length"], weights.manifest.config["bin_width"])
        if made_for != (length, width):
            raise BadWeightsError(
                f"{weights.path}: made for the base {made_for[0]} x {made_for[1]}, {dataset.name} has "
                f"{length} x {width}; choose others with --weights, or {remedy}."
            )
        return weights

    def build(self, dataset: Dataset, config: dict[str, Any]) -> nn.Module:
        """Build the network for the dataset's base."""
        length, width = base_of(dataset.instances[0])
        return super().build(dataset, {"bin_length": length, "bin_width": width, **config})

    def warm_up(self, dataset: Dataset) -> None:
        """Compile the convolutions, or load them, before a clock runs."""
        if on_cpu(self.options.device):
            boxes = np.sort(dataset.instances[0].arrays()["boxes"][None, :2], axis=2)
            unscaled = copy.copy(self.policy)  # logit scales such as EIE's refuse two boxes
            unscaled.logit_scale = none
            decode_packing(unscaled, torch.from_numpy(boxes), torch.arange(1), None)

    def cost(self, dataset: Dataset) -> int:
        """Cells of the height maps of an instance."""
        length, width = base_of(dataset.instances[0])
        return length * width * self.decoding.k

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Pack all boxes; there is no intermediate solution to stop at."""
        boxes = np.stack([instance.arrays()["boxes"] for instance in batch])
        packed = decode_packing(
            self.policy,
            torch.from_numpy(np.sort(boxes, axis=2)),
            torch.arange(seed, seed + len(batch)),
            self.decoding.k if self.decoding.name == "sample" else None,
        )
        return list(to_solutions(boxes, packed.rows.cpu().numpy()))


def base_of(instance: Instance) -> tuple[int, int]:
    """Return length and width of an instance's bin."""
    assert isinstance(instance, BPP3DInstance)
    return int(instance.base[0]), int(instance.base[1])


def default_weights(length: int, width: int) -> str:
    """Name the weights for a base: its own, but the model's where only those are cached."""
    name = f"{MODEL}-{length}x{width}"
    return MODEL if files_called(MODEL) and not files_called(name) else name
