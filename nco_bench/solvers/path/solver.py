"""Path policies as solvers: a model, its weights and a decoding behind the solver protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nco_bench.cards import network_card
from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.problems import Instance
from nco_bench.solvers.decoding.spec import Decoding, parse_decoding
from nco_bench.solvers.network import RANDOM_WEIGHTS, facts_of, to_unit_square, unsuited
from nco_bench.solvers.path.decode import Trace, decode_path
from nco_bench.solvers.path.precision import at_precision
from nco_bench.solvers.protocol import Outcome, Progress, Solved, SolverOptions, one_by_one, read_params
from nco_bench.weights.calibration import Calibrated, calibrate_command, factor_at, read_calibration
from nco_bench.weights.choice import default_weights
from nco_bench.weights.pulling import find
from nco_bench.weights.store import WeightsFile, load_into

TOKENS_PER_BATCH = {"cpu": 20_000, "cuda": 400_000}
"""Nodes solved together with ``--batch-size auto``: enough to keep the device busy, little enough for its memory."""
ANYTIME = ("rrc", "prc")
AUTO, EXTRAPOLATE = "auto", "extrapolate"
"""Coordinate scales from the calibration: within its sizes, and beyond them too."""
ATTENTIONS = ("blocks", "flex")


class PathSolver:
    """Any path policy with any decoding that fits it; ``--weights random`` runs an untrained network."""

    def __init__(self, options: SolverOptions) -> None:
        self.name = options.solver
        self.model = network_card(self.name)
        self.decoding: Decoding = parse_decoding(options.decoding or "greedy")
        self.options = options
        given = read_params(self.name, options.params, precision=(str, "fp32"), attention=(str, "blocks"))
        self.precision, self.attention = str(given["precision"]), str(given["attention"])
        if self.attention not in ATTENTIONS:
            raise BadInputError(
                f"--param attention={self.attention}: expected one of {', '.join(ATTENTIONS)}."
            )
        calibrated = options.coordinate_scale in (AUTO, EXTRAPOLATE)
        self.scale = None if calibrated else _coordinate_scale(options.coordinate_scale)
        self.calibration: list[Calibrated] = []
        self.policy: torch.nn.Module | None = None
        self.weights: WeightsFile | None = None

    def unsupported(self, dataset: Dataset) -> str | None:
        """Return a reason for instances without coordinates, or too small for a network."""
        return unsuited(dataset)

    def prepare(self, dataset: Dataset) -> None:
        """Load weights, move the network to the device."""
        device = torch.device(self.options.device)
        if self.options.weights == RANDOM_WEIGHTS:
            self.policy = build_path_policy(self.name, dataset.problem, logit_scale=self.options.logit_scale)
            _initialise(self.policy)
        else:
            name = self.options.weights or default_weights(self.name, dataset.problem, dataset.sizes[1])
            self.weights = find(name, self.name, dataset.problem)
            config = dict(self.weights.manifest.config)
            if self.weights.manifest.model != self.name:
                config.pop("scale", None)  # what the name stands for, and all that differs
            self.policy = build_path_policy(
                self.name, dataset.problem, logit_scale=self.options.logit_scale, **config
            )
            load_into(self.policy, self.weights)
        if self.scale is None:
            self.calibration = self._calibrated()
            for n in dataset.sizes:
                self._factor(n)  # a size that the calibration does not cover is refused here
        if self.attention == "flex":
            if not hasattr(self.policy, "flex"):
                raise BadInputError(
                    f"--param attention=flex: {self.name} has no positional bias; it is for PENS."
                )
            self.policy.flex = True  # type: ignore[assignment]
        self.policy = at_precision(self.policy.to(device), self.name, self.precision).eval()

    def _calibrated(self) -> list[Calibrated]:
        calibration = [] if self.weights is None else read_calibration(self.weights)
        if not calibration:
            asked = f"--coordinate-scale {self.options.coordinate_scale}"
            if self.weights is None:
                raise BadInputError(f"{asked}: untrained networks have no calibration; give a factor.")
            raise BadInputError(
                f"{asked}: the weights {self.weights.manifest.name} have no calibration; "
                f"make one with '{calibrate_command(self.name, self.options.weights)}', or give a factor."
            )
        return calibration

    def _factor(self, n: int) -> float:
        if self.scale is not None:
            return self.scale
        beyond = self.options.coordinate_scale == EXTRAPOLATE
        return factor_at(self.calibration, n, self.name, extrapolate=beyond, weights=self.options.weights)

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights, and the calibration's factors and seeds by size, where it is used."""
        facts = facts_of(self.weights)
        if self.weights is None and self.policy is not None:
            facts["sha256"] = f"{RANDOM_WEIGHTS}-{count_parameters(self.policy)}"
        if not self.calibration:
            return facts
        factors = {str(c.n): c.factor for c in self.calibration}
        seeds = {str(c.n): c.seed for c in self.calibration}
        return {**facts, "calibration": factors, "calibration_seeds": seeds}

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
            return one_by_one(self.solve, batch, seed=seed, time_limit=time_limit, progress=progress)
        assert self.policy is not None
        trace = Trace() if self.decoding.name in ANYTIME else None
        solutions = decode_path(
            self.policy,
            *_tensors(batch),
            decoding=self.decoding,
            seed=seed,
            time_limit=None if time_limit is None else time_limit * len(batch),
            coordinate_scale=self._factor(batch[0].n),
            trace=trace,
        )
        progress(len(batch))
        if trace is None:
            return list(solutions)
        return [
            Solved(
                solution,
                trace=tuple((t, float(c[j])) for t, c in zip(trace.seconds, trace.costs, strict=True)),
            )
            for j, solution in enumerate(solutions)
        ]

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


def _tensors(batch: Sequence[Instance]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return coordinates ``(B, N, 2)`` float32 in the unit square, and demands and capacities for the CVRP."""
    if batch[0].problem == "tsp":
        coords = np.stack([to_unit_square(i.arrays()["coords"]) for i in batch])
        return torch.from_numpy(coords.astype(np.float32)), None, None
    arrays = [i.arrays() for i in batch]
    nodes = [np.concatenate([a["depot"].reshape(1, 2), a["customers"]]) for a in arrays]
    coords = np.stack([to_unit_square(n) for n in nodes])
    demand = np.stack([a["demand"] for a in arrays]).astype(np.int64)
    capacity = np.array([int(a["capacity"]) for a in arrays])
    return torch.from_numpy(coords.astype(np.float32)), torch.from_numpy(demand), torch.from_numpy(capacity)


def _coordinate_scale(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise BadInputError(f"--coordinate-scale {text!r}: expected auto, extrapolate or a positive number.")
    return factor
