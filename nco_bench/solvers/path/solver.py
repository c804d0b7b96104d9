"""Path policies as solvers: a model, its weights and a decoding behind the solver protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.build import count_parameters
from nco_bench.nn.device import PerDevice, check_graphs, warn_of_slow
from nco_bench.problems import Instance
from nco_bench.solvers.network import (
    RANDOM_WEIGHTS,
    Family,
    NetworkSolver,
    to_tensors,
    to_unit_square,
    to_unit_square_by_one_range,
)
from nco_bench.solvers.path.decode import Trace, decode_path
from nco_bench.solvers.path.policy import PathPolicy
from nco_bench.solvers.path.step import TimeIsUpError
from nco_bench.solvers.protocol import Failure, Outcome, Solved, SolverOptions

if TYPE_CHECKING:
    from nco_bench.weights.calibration import Calibrated
    from nco_bench.weights.store import WeightsFile

ANYTIME = ("rrc", "prc")
AUTO, EXTRAPOLATE = "auto", "extrapolate"
"""Coordinate scales from the calibration: within its sizes, and beyond them too."""
ATTENTIONS = ("blocks", "flex")
AXES = {"together": to_unit_square, "common": to_unit_square_by_one_range}
"""How coordinates come into the unit square: each axis shifted by itself, or both by one; one scale in either way."""


class PathSolver(NetworkSolver):
    """Any path policy with any decoding that fits it."""

    family = Family(
        params={
            "precision": (str, "fp32"),
            "attention": (str, "blocks"),
            "graphs": (str, "off"),
            "axes": (str, "together"),
        },
        budget=PerDevice(cpu=20_000, gpu=400_000),  # keeps the device busy, fits its memory
        largest_batch=1024,
    )

    def __init__(self, options: SolverOptions) -> None:
        super().__init__(options)
        self.attention: str = self.params["attention"]
        if self.attention not in ATTENTIONS:
            raise BadInputError(
                f"--param attention={self.attention}: expected one of {', '.join(ATTENTIONS)}."
            )
        if self.params["axes"] not in AXES:
            raise BadInputError(f"--param axes={self.params['axes']}: expected one of {', '.join(AXES)}.")
        calibrated = options.coordinate_scale in (AUTO, EXTRAPOLATE)
        self.scale = None if calibrated else _coordinate_scale(options.coordinate_scale)
        self.calibration: list[Calibrated] = []

    def build(self, dataset: Dataset, config: dict[str, Any]) -> nn.Module:
        """Build the policy; a name's own logit scale stands above that of weights which it shares."""
        if self.weights is not None and self.weights.manifest.model != self.name:
            config.pop("scale", None)  # what the name stands for, and all that differs
        policy = super().build(dataset, config)
        if self.weights is None:
            _initialise(policy)
        return policy

    def adapted(self, policy: nn.Module, dataset: Dataset) -> nn.Module:
        """Read the calibration, and give the policy the attention, precision and recordings that were asked for."""
        self._read_calibration(dataset, self.weights)
        if not isinstance(policy, PathPolicy):
            raise BadInputError(
                f"{self.name}: {type(policy).__name__} needs PathPolicy as a base beside Module."
            )
        if self.attention == "flex":
            if policy.flex is None:
                raise BadInputError(
                    f"--param attention=flex: {self.name} has no positional bias; it is for PENS."
                )
            policy.flex = True
        ready: PathPolicy = policy
        if self.params["precision"] != "fp32":
            from nco_bench.solvers.path.precision import at_precision

            ready = at_precision(ready, self.name, self.params["precision"])
            warn_of_slow(self.params["precision"], self.options.device, "--param")
        if check_graphs(self.params["graphs"], self.options.device):
            from nco_bench.solvers.path.replayed import Replayed

            ready = Replayed(ready)
        return cast("nn.Module", ready)

    def check_sizes(self, dataset: Dataset) -> None:
        """Refuse, too, a dataset with a size that the calibration does not cover."""
        super().check_sizes(dataset)
        if self.scale is None:
            self._read_calibration(dataset, self.weights_to_load(dataset))

    def _read_calibration(self, dataset: Dataset, weights: WeightsFile | None) -> None:
        """Read the calibration where it is asked for, and refuse sizes that it does not cover."""
        if self.scale is None:
            self.calibration = self._calibrated(weights)
            for n in dataset.sizes:
                self._factor(n)

    def _calibrated(self, weights: WeightsFile | None) -> list[Calibrated]:
        from nco_bench.weights.calibration import calibrate_command, read_calibration

        calibration = [] if weights is None else read_calibration(weights)
        if not calibration:
            asked = f"--coordinate-scale {self.options.coordinate_scale}"
            if weights is None:
                raise BadInputError(f"{asked}: untrained networks have no calibration; give a factor.")
            raise BadInputError(
                f"{asked}: the weights {weights.manifest.name} have no calibration; "
                f"make one with '{calibrate_command(self.name, self.options.weights)}', or give a factor."
            )
        return calibration

    def _factor(self, n: int) -> float:
        if self.scale is not None:
            return self.scale
        from nco_bench.weights.calibration import factor_at

        beyond = self.options.coordinate_scale == EXTRAPOLATE
        return factor_at(self.calibration, n, self.name, extrapolate=beyond, weights=self.options.weights)

    def weights_facts(self) -> dict[str, Any]:
        """Return what a record says about the weights, and the calibration's factors and seeds by size, where it is used."""
        facts = super().weights_facts()
        if self.weights is None and self.policy is not None:
            facts["sha256"] = f"{RANDOM_WEIGHTS}-{count_parameters(self.policy)}"
        if not self.calibration:
            return facts
        factors = {str(c.n): c.factor for c in self.calibration}
        seeds = {str(c.n): c.seed for c in self.calibration}
        return {**facts, "calibration": factors, "calibration_seeds": seeds}

    def cost(self, dataset: Dataset) -> int:
        """Nodes of all beams or samples of an instance."""
        return dataset.sizes[1] * (self.decoding.k if self.decoding.name in ("beam", "sample") else 1)

    def decode(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        """Decode as was asked; rrc and prc stop when time is up and tell costs against time.

        A construction that the time limit ends is no solution: its instances are ``timeout``.
        """
        try:
            return self._decoded(batch, seed, time_limit)
        except TimeIsUpError as error:
            return [Failure("timeout", str(error))] * len(batch)

    def _decoded(self, batch: Sequence[Instance], seed: int, time_limit: float | None) -> list[Outcome]:
        trace = Trace() if self.decoding.name in ANYTIME else None
        coords, demand, capacity = to_tensors(batch, AXES[self.params["axes"]])
        solutions = decode_path(
            self.policy,
            coords.float(),
            None if demand is None else demand.long(),
            None if capacity is None else capacity.long(),
            decoding=self.decoding,
            seed=seed,
            time_limit=None if time_limit is None else time_limit * len(batch),
            coordinate_scale=self._factor(batch[0].n),
            trace=trace,
        )
        if trace is None:
            return list(solutions)
        return [
            Solved(
                solution,
                trace=tuple((t, float(c[j])) for t, c in zip(trace.seconds, trace.costs, strict=True)),
            )
            for j, solution in enumerate(solutions)
        ]


def _initialise(policy: nn.Module) -> None:
    """Draw fresh weights from a fixed seed, so that an untrained network is the same everywhere."""
    generator = torch.Generator().manual_seed(1234)
    with torch.no_grad():
        for parameter in policy.parameters():
            bound = 1.0 / max(1, parameter.shape[-1] if parameter.dim() else 1) ** 0.5
            parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))


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
