"""Parity fixtures: official weights, inputs and outputs, and the comparison of ours with them.

A fixture is a pair ``NAME.safetensors`` and ``NAME.json``. The tensors are called ``state_dict.<official key>``,
``input.<name>`` and ``expected.<name>``; the JSON holds the model, the problem and its configuration. A check replays what
the fixture expects and no more: groups, steps and sizes are those that it holds. What no check reads of it is listed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from nco_bench.errors import BadInputError

LOGIT_TOLERANCE = 1e-4
"""|ours - expected| <= tolerance * (1 + |expected|)."""

PARAMETER_TOLERANCE = 2e-4
"""Absolute, for parameters after training steps: Adam amplifies gradients near zero."""


@dataclass(frozen=True)
class Fixture:
    """One fixture in memory."""

    path: Path
    meta: dict[str, Any]
    tensors: dict[str, Tensor]
    read: set[str] = field(default_factory=set, compare=False)

    @property
    def name(self) -> str:
        """File name without ending."""
        return self.path.stem

    @property
    def config(self) -> dict[str, Any]:
        """The configuration in the JSON."""
        return self.meta.get("config", {})

    @property
    def sizes(self) -> dict[str, Any]:
        """The arguments of the official constructor."""
        return self.config.get("model_params", self.config)

    @property
    def state_dict(self) -> dict[str, Tensor]:
        """Official weights under their official keys."""
        prefix = "state_dict."
        return {k.removeprefix(prefix): v.clone() for k, v in self.tensors.items() if k.startswith(prefix)}

    def has(self, key: str) -> bool:
        """Whether a tensor, or a group of tensors with this prefix, is there."""
        return any(name == key or name.startswith(f"{key}.") for name in self.tensors)

    def input(self, name: str) -> Tensor:
        """Return ``input.<name>``."""
        return self._tensor(f"input.{name}")

    def expected(self, name: str) -> Tensor:
        """Return ``expected.<name>``."""
        return self._tensor(f"expected.{name}")

    def wanted(self, name: str) -> Tensor | None:
        """Return ``expected.<name>``, or None where the fixture does not hold it."""
        return self.expected(name) if f"expected.{name}" in self.tensors else None

    def row(self, name: str, index: int) -> Tensor | None:
        """Return one row of ``expected.<name>``, or None where the fixture does not hold it."""
        expected = self.wanted(name)
        return None if expected is None else expected[index]

    def wants(self, *names: str) -> bool:
        """Whether any of these tensors, or groups of tensors, is expected."""
        return any(self.has(f"expected.{name}") for name in names)

    def groups(self, pattern: str) -> list[str]:
        r"""Return the expected groups or tensors that match, such as ``step20`` for ``step\d+``; numbers by their size."""
        form = re.compile(rf"expected\.({pattern})(?:\.|$)")
        found = {match[1] for key in self.tensors if (match := form.match(key))}
        return sorted(
            found, key=lambda name: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", name)]
        )

    def not_read(self) -> tuple[str, ...]:
        """Return what is expected and no check has read."""
        return tuple(sorted(k for k in self.tensors if k.startswith("expected.") and k not in self.read))

    def _tensor(self, key: str) -> Tensor:
        if key not in self.tensors:
            raise BadInputError(f"{self.path}: holds no tensor {key}; what it expects needs it.")
        self.read.add(key)
        return self.tensors[key]

    def fact(self, key: str) -> Any:
        """Return an entry of the JSON."""
        if key not in self.meta:
            raise BadInputError(f"{self.path.with_suffix('.json')}: lacks {key!r}.")
        return self.meta[key]

    def option(self, key: str) -> Any:
        """Return an entry of the configuration."""
        if key not in self.config:
            raise BadInputError(f"{self.path.with_suffix('.json')}: config lacks {key!r}.")
        return self.config[key]

    def size(self, key: str) -> Any:
        """Return an argument of the official constructor."""
        if key not in self.sizes:
            raise BadInputError(f"{self.path.with_suffix('.json')}: config.model_params lacks {key!r}.")
        return self.sizes[key]

    def require(self, key: str, value: object) -> None:
        """Refuse a variant of the official constructor that no published model uses and ours does not have."""
        found = self.sizes.get(key, value)
        if found != value:
            raise BadInputError(
                f"{self.path.with_suffix('.json')}: {key} is {found!r}; ours is {value!r}, as published."
            )


def read_fixture(path: Path | str) -> Fixture:
    """Read a fixture from either of its two files.

    Raises
    ------
    BadInputError
        If one of the files is missing or cannot be read.
    """
    path = Path(path)
    tensors, meta = path.with_suffix(".safetensors"), path.with_suffix(".json")
    for file in (tensors, meta):
        if not file.is_file():
            raise BadInputError(f"{file}: no such file; a fixture is a pair NAME.safetensors and NAME.json.")
    try:
        return Fixture(tensors, json.loads(meta.read_text()), load_file(tensors))
    except Exception as error:  # whatever a damaged file makes the two readers raise
        raise BadInputError(f"{path}: cannot be read as a fixture: {str(error).splitlines()[0]}.") from None


@dataclass
class Checks:
    """What has been compared so far.

    Attributes
    ----------
    errors
        Largest relative error of each floating-point comparison.
    identical
        Whether integers (tours, flags, decisions) agree, per comparison.
    failed
        Names of the comparisons that are out of tolerance.
    """

    errors: dict[str, float] = field(default_factory=dict)
    parameter_errors: dict[str, float] = field(default_factory=dict)
    identical: dict[str, bool] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def close(
        self, name: str, ours: Tensor, expected: Tensor | None, tolerance: float = LOGIT_TOLERANCE
    ) -> None:
        """Compare floats: the same shape, the same infinite entries, finite ones within the tolerance.

        Nothing is compared where nothing is expected; so in `same`.
        """
        if expected is None:
            return
        ours, expected = ours.detach().double(), expected.double()
        error = float("inf")
        if ours.shape == expected.shape:
            finite = expected.isfinite()
            if torch.equal(finite, ours.isfinite()) and torch.equal(ours[~finite], expected[~finite]):
                difference = (ours - expected)[finite].abs() / (1 + expected[finite].abs())
                error = float(difference.max()) if difference.numel() else 0.0
        self.errors[name] = error
        if not error <= tolerance:
            self.failed.append(name)

    def parameter(self, name: str, error: float) -> None:
        """Note the absolute error of a parameter after training steps."""
        self.parameter_errors[name] = error
        if not error <= PARAMETER_TOLERANCE:
            self.failed.append(name)

    def same(self, name: str, ours: Tensor, expected: Tensor | None) -> None:
        """Compare integers exactly."""
        if expected is None:
            return
        agree = ours.shape == expected.shape and bool((ours.long() == expected.long()).all())
        self.identical[name] = agree
        if not agree:
            self.failed.append(name)


@dataclass(frozen=True)
class ParityResult:
    """The outcome for one fixture.

    Attributes
    ----------
    fixture, model, problem
        File name without ending; our name of the model; ``tsp`` or ``cvrp``.
    max_relative_error
        Largest |ours - expected| / (1 + |expected|) over all logits, probabilities, lengths and losses.
    tours_identical
        Whether all tours, flags and decisions agree.
    ok
        Whether everything is within its tolerance.
    details
        Per comparison: the relative error, or whether integers agree; ``failed`` lists what is out of tolerance.
    not_compared
        Tensors that the fixture expects and no comparison read.
    """

    fixture: str
    model: str
    problem: str
    max_relative_error: float
    tours_identical: bool
    ok: bool
    details: dict[str, Any]
    not_compared: tuple[str, ...] = ()


def result(fixture: Fixture, model: str, problem: str, checks: Checks) -> ParityResult:
    """Sum up the comparisons of a fixture."""
    details: dict[str, Any] = {**checks.errors, **checks.parameter_errors, **checks.identical}
    return ParityResult(
        fixture=fixture.name,
        model=model,
        problem=problem,
        max_relative_error=max(checks.errors.values(), default=0.0),
        tours_identical=all(checks.identical.values()),
        ok=not checks.failed and bool(checks.errors or checks.identical),
        details={**details, "failed": checks.failed},
        not_compared=fixture.not_read(),
    )
