"""Making a dataset file: generate, store, and fill in references by an ordinary run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate_spec
from nco_bench.datasets.load import Places, stored_path
from nco_bench.datasets.names import GenerationSpec, specify
from nco_bench.datasets.storage import load_saved, reference_summary, save_dataset
from nco_bench.errors import BadInputError, counted
from nco_bench.runs.display import Display
from nco_bench.runs.offering import offer
from nco_bench.runs.references import ReferenceRun, compute_references, merge
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose


@dataclass(frozen=True)
class GenerateRequest:
    """The arguments of ``nco-bench generate``; `capacity_option` tells ``--capacity`` from ``--param capacity=``."""

    problem: str
    n: int
    count: int | None
    distribution: str
    seed: int
    params: Mapping[str, str]
    reference: str | None
    time_limit: float | None
    jobs: int
    out: Path | None
    command: str
    capacity_option: bool = False

    def spec(self) -> GenerationSpec:
        """Check what is asked for and return the set's description; messages name the options."""
        options = {key: f"--{key}" for key in OWN_OPTIONS} | {key: f"--param {key}" for key in self.params}
        if self.capacity_option:
            options["capacity"] = "--capacity"
        return specify(
            self.problem, self.n, self.count, self.distribution, self.seed, self.params, options=options
        )


@dataclass(frozen=True)
class Made:
    """A dataset file that was written."""

    dataset: Dataset
    path: Path

    def as_dict(self) -> dict[str, Any]:
        """Return name, file, hash, count and reference summary."""
        return {
            "name": self.dataset.name,
            "path": str(self.path),
            "problem": self.dataset.problem,
            "count": len(self.dataset),
            "sha256": self.dataset.sha256,
            "references": reference_summary(self.dataset),
        }

    def describe(self) -> str:
        """Return one line for people."""
        summary = reference_summary(self.dataset)
        mean = f", mean reference {summary['mean_cost']:.6g}" if summary["count"] else ""
        held = f"{counted(len(self.dataset), 'instance')}, {counted(summary['count'], 'reference')}"
        return (
            f"{self.dataset.name}: {held}{mean}, "
            f"sha256 {self.dataset.sha256[:16]} -> {self.path}; name it with --data {self.dataset.name}"
        )


OWN_OPTIONS = {"problem", "n", "count", "distribution", "seed"}
"""What `generate` takes beside parameters of a problem or distribution, which ``--param`` cannot mean."""


def generate_dataset(
    request: GenerateRequest, places: Places, display: Display, *, to_ledger: bool = True
) -> Made:
    """Generate a dataset, store it, and compute its references if a solver is named.

    References that the file already holds are kept where the new ones are no better. The new ones also go to the ledger,
    where tables find them, unless that is not wanted.

    Raises
    ------
    BadInputError
        For values that make no sense, or a file in the way that holds something else.
    """
    for key in OWN_OPTIONS.intersection(request.params):
        own = f"--{key}" if key != "problem" else "the argument"
        raise BadInputError(f"--param {key}={request.params[key]}: {key} is given by {own}.")
    if request.reference is not None:
        _refuse_other_problem(request.reference, request.problem)
    dataset = generate_spec(request.spec())
    path = _target(request, dataset, places)
    if path.exists():
        dataset = _keep_known(dataset, path)
    save_dataset(dataset, path)
    if request.reference is not None:
        how = ReferenceRun(request.reference, request.jobs, request.seed, request.time_limit, request.command)
        found = compute_references(dataset, str(path), how, places, display)
        if to_ledger:
            offer(dataset, {p: r for p, r in enumerate(found) if r is not None}, places.instances)
        if path.exists():
            dataset = _keep_known(dataset, path)  # with what another has stored since
        dataset = dataset.with_references(merge(dataset.references, found, dataset.problem))
        save_dataset(dataset, path)
    return Made(dataset, path)


def _refuse_other_problem(reference: str, problem: str) -> None:
    """Refuse a solver that cannot make references, before a file without them is left."""
    problems = choose(reference, SolverOptions()).info.problems
    if problems and problem not in problems:
        raise BadInputError(f"--reference {reference}: solves {' and '.join(problems)}, not {problem}.")


def _target(request: GenerateRequest, dataset: Dataset, places: Places) -> Path:
    if request.out is None:
        return stored_path(dataset.name, places.instances)
    if request.out.suffix != ".npz":
        raise BadInputError(
            f"--out {request.out}: expected a name that ends in .npz; 'nco-bench convert' writes other formats."
        )
    return request.out


def _keep_known(dataset: Dataset, path: Path) -> Dataset:
    """Take over the references of a file with the same content."""
    try:
        stored = load_saved(path)
    except BadInputError as error:
        raise BadInputError(
            f"{path}: is in the way and cannot be read; move it away and start again ({error})."
        ) from error
    if stored.sha256 != dataset.sha256:
        raise BadInputError(
            f"{path}: holds another dataset ({stored.name}); choose another --out or move it away."
        )
    return dataset.with_references(stored.references)
