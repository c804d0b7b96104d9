"""The referee: what is solved, what is feasible, what it costs. NumPy only, and no code shared with solvers.

`problem(name)` returns the module of a problem, which has `NAME`, `VERSION`, `OBJECTIVE` ("min" or "max"),
`from_arrays(name, convention, arrays) -> instance`, `violations(instance, solution) -> tuple[str, ...]` and
`score(instance, solution) -> float`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import UnknownNameError

PROBLEMS: dict[str, str] = {
    "tsp": "nco_bench.problems.tsp",
    "cvrp": "nco_bench.problems.cvrp",
    "bpp3d": "nco_bench.problems.bpp3d",
    "algorithmic": "nco_bench.problems.algorithmic",
    "algorithmic-regression": "nco_bench.problems.algorithmic_regression",
    "lra": "nco_bench.problems.lra",
}
"""Problem name to module; modules are imported when first asked for."""


class Instance(Protocol):
    """What every instance has, whatever its problem."""

    @property
    def name(self) -> str:
        """Unique name within its dataset."""

    @property
    def n(self) -> int:
        """Size: nodes (TSP), customers (CVRP), boxes, tokens."""

    @property
    def convention(self) -> str:
        """Name of the scoring rule."""

    @property
    def problem(self) -> str:
        """Name of the problem."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that define the instance."""


class Problem(Protocol):
    """The module of a problem."""

    NAME: str
    VERSION: str
    OBJECTIVE: str

    def from_arrays(self, name: str, convention: str, arrays: Mapping[str, NDArray[Any]]) -> Instance:
        """Build an instance from its arrays; undoes `Instance.arrays`."""

    def violations(self, instance: Any, solution: NDArray[np.integer]) -> tuple[str, ...]:
        """Say what is wrong with a solution; empty for a feasible one."""

    def score(self, instance: Any, solution: NDArray[np.integer]) -> float:
        """Cost of a feasible solution, float64."""


def problem(name: str) -> Problem:
    """Return the module of the problem called `name`; raises `UnknownNameError`."""
    if name not in PROBLEMS:
        raise UnknownNameError("problem", name, PROBLEMS)
    return import_module(PROBLEMS[name])  # type: ignore[return-value]
