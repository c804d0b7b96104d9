"""Scoring one solution file against one instance file, for ``nco-bench score``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from nco_bench.datasets import catalog
from nco_bench.datasets.dataset import content_sha256
from nco_bench.datasets.formats import read_solution
from nco_bench.datasets.load import load_path
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance
from nco_bench.problems import problem as problem_module
from nco_bench.runs.judge import gap_percent


@dataclass(frozen=True)
class Scored:
    """What ``nco-bench score`` prints."""

    cost: float | None
    feasible: bool
    violations: tuple[str, ...]
    convention: str
    reference: float | None
    gap_percent: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)

    def describe(self) -> str:
        """Return one line for people."""
        if not self.feasible:
            return "infeasible: " + "; ".join(self.violations)
        gap = (
            ""
            if self.gap_percent is None
            else f", {self.gap_percent:.4f} % above the reference {self.reference:.10g}"
        )
        return f"cost {self.cost:.10g} ({self.convention}){gap}"


def score_file(instance_file: Path, solution_file: Path, convention: str | None) -> Scored:
    """Score a solution.

    Parameters
    ----------
    instance_file
        A file with one instance.
    solution_file
        ``.tour``, ``.sol``, or a JSON list of node indices from 0.
    convention
        Another distance convention than the file's own, or None; the reference then no longer applies.

    Raises
    ------
    BadInputError
        For unreadable files, or a file with several instances.
    """
    dataset = load_path(instance_file)
    if len(dataset) != 1:
        raise BadInputError(f"{instance_file}: holds {len(dataset)} instances; score takes a file with one.")
    instance = dataset.instances[0]
    solution = read_solution(solution_file, instance)
    stored = dataset.references[0]
    known = published_value(instance) if stored is None else stored.cost
    if convention is not None and convention != instance.convention:
        instance = replace(instance, convention=convention)  # type: ignore[type-var]
        known = None
    module = problem_module(dataset.problem)
    wrong = module.violations(instance, solution)
    cost = None if wrong else module.score(instance, solution)
    gap = None if cost is None or known is None else gap_percent(cost, known, module.OBJECTIVE)
    return Scored(cost, not wrong, wrong, instance.convention, known, gap)


def published_value(instance: Instance) -> float | None:
    """Return the published value of a library instance, recognised by its content, or None."""
    found = content_sha256(instance.problem, [instance])
    entries = catalog.tsplib() if instance.problem == "tsp" else catalog.cvrplib()
    return next((entry.value for entry in entries if entry.content_sha256 == found), None)
