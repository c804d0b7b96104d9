"""attend2pack as a solver: both policies, their weights, greedy decoding or the best of samples.

The network is made for one base (its convolutions and its choice of y have that size), so weights are looked up by base:
without ``--weights`` the shipped ``attend2pack-120x100`` (or another base's), else ``attend2pack`` if it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import Instance
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.network import RANDOM_WEIGHTS, built, facts_of
from nco_bench.solvers.packing.decode import CELLS_AT_A_TIME, decode_packing, to_solutions
from nco_bench.solvers.protocol import Outcome, Progress, SolverOptions, one_by_one, read_params
from nco_bench.weights.choice import how_to_get
from nco_bench.weights.store import SHIPPED, SUFFIX, WeightsFile, resolve

MODEL = "attend2pack"
LARGEST_BATCH = 256


class Attend2packSolver:
    """attend2pack; ``--weights random`` runs an untrained network."""

    def __init__(self, options: SolverOptions) -> None:
        self.options = options
        read_params(MODEL, options.params)
        self.decoding = parse_decoding(options.decoding or "greedy")
        if self.decoding.name not in ("greedy", "sample") or self.decoding.augmentation > 1:
            raise BadInputError(
                f"{MODEL}: decoding {self.decoding} does not fit a packing; use greedy or sample:K."
            )
        if self.decoding.knn is not None:
            raise BadInputError(
                f"{MODEL}: decoding {self.decoding}: the model sees all boxes; leave knn out."
            )
        if options.coordinate_scale is not None:
            raise BadInputError(f"{MODEL}: a packing has no coordinates; leave --coordinate-scale out.")
        self.policy: Any = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances whose bins differ."""
        if dataset.problem != "bpp3d":
            return f"{MODEL} packs boxes (bpp3d), it does not solve {dataset.problem}"
        if len({base_of(instance) for instance in dataset.instances}) > 1:
            return f"{MODEL} is made for one base, {dataset.name} has several"
        return None

    def prepare(self, dataset: Dataset) -> None:
        """Load the weights for the dataset's base and move the network to the device."""
        length, width = base_of(dataset.instances[0])
        config: dict[str, Any] = {"bin_length": length, "bin_width": width}
        if self.options.weights != RANDOM_WEIGHTS:
            remedy = f"make some with '{how_to_get(MODEL, 'bpp3d').command}'"
            name = self.options.weights or default_weights(length, width)
            self.weights = resolve(name, MODEL, "bpp3d", remedy=remedy)
            config = self.weights.manifest.config
            made_for = (config["bin_length"], config["bin_width"])
            if made_for != (length, width):
                raise BadWeightsError(
                    f"{self.weights.path}: made for the base {made_for[0]} x {made_for[1]}, {dataset.name} has "
                    f"{length} x {width}; choose others with --weights."
                )
        sizes = {"problem": "bpp3d", **config}
        policy = built(
            lambda: build_path_policy(MODEL, logit_scale=self.options.logit_scale, **sizes), self.weights
        )
        self.policy = policy.to(self.options.device).eval()

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights."""
        return facts_of(self.weights)

    def batch_size(self, dataset: Dataset) -> int:
        """Return how many instances are packed together; one at a time where numbers of boxes differ."""
        smallest, largest = dataset.sizes
        if smallest != largest:
            return 1
        length, width = base_of(dataset.instances[0])
        lanes = CELLS_AT_A_TIME[self.options.device.partition(":")[0]] // (length * width)
        return max(1, min(LARGEST_BATCH, lanes // self.decoding.k))

    def solve(
        self, batch: Sequence[Instance], *, seed: int, time_limit: float | None, progress: Progress
    ) -> list[Outcome]:
        """Pack instances of equal size together, others one by one."""
        if len({instance.n for instance in batch}) > 1:
            return one_by_one(self.solve, batch, seed=seed, time_limit=time_limit, progress=progress)
        boxes = np.stack([instance.arrays()["boxes"] for instance in batch])
        packed = decode_packing(
            self.policy,
            torch.from_numpy(np.sort(boxes, axis=2)),
            torch.arange(seed, seed + len(batch)),
            self.decoding.k if self.decoding.name == "sample" else None,
        )
        progress(len(batch))
        return list(to_solutions(boxes, packed.rows.cpu().numpy()))

    def close(self) -> None:
        """Free the network."""
        self.policy = None


def base_of(instance: Instance) -> tuple[int, int]:
    """Return length and width of an instance's bin."""
    assert isinstance(instance, BPP3DInstance)
    return int(instance.base[0]), int(instance.base[1])


def default_weights(length: int, width: int) -> str:
    """Name the weights for a base: those that are shipped for it, else the model's own."""
    name = f"{MODEL}-{length}x{width}"
    return name if (SHIPPED / f"{name}{SUFFIX}").is_file() else MODEL
