"""Labels for training: many instances with references, in shards that are made one after the other and never twice.

Shard k holds instances of seed + k. A shard is made in parallel, instance by instance, and resumes where it was; one that is
complete is left alone. How good the labels are is measured on the first shard against a better solver, and kept beside
the shards in ``labels.quality.json``, from where training takes it into the manifest of its weights.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.places import Places
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import BadInputError
from nco_bench.files import write
from nco_bench.problems import problem as problem_module
from nco_bench.runs.display import Display
from nco_bench.runs.generating import GenerateRequest, generate_dataset
from nco_bench.runs.judge import gap_percent
from nco_bench.runs.references import ReferenceRun, compute_references

QUALITY = "labels.quality.json"
JUDGED = 100
"""Instances that a better solver solves to judge the labels."""


@dataclass(frozen=True)
class Shards:
    """A folder of labelled shards: their files, those made now, and the gap of the labels in percent where measured."""

    files: tuple[Path, ...]
    made: int
    gap_percent: float | None
    measured: str

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**dataclasses.asdict(self), "files": [str(file) for file in self.files]}

    def describe(self) -> str:
        """Say it in a line."""
        quality = (
            "" if self.gap_percent is None else f", labels {self.gap_percent:.4f} % above {self.measured}"
        )
        return f"{self.files[0].parent}: {len(self.files)} shards, {self.made} made now{quality}"


def generate_shards(
    request: GenerateRequest,
    shards: int,
    places: Places,
    display: Display,
    check: str | None = None,
) -> Shards:
    """Make the shards that are missing.

    Parameters
    ----------
    request
        As for one dataset; `count` is over all shards, `out` the folder, and `reference` must name a solver.
    shards
        How many files.
    check
        A better solver, which judges the labels on `JUDGED` instances; None does not judge.

    Raises
    ------
    BadInputError
        Without a solver, a folder or enough instances; as `generate_dataset`.
    """
    if request.reference is None or request.out is None:
        raise BadInputError("--shards makes labels: name a solver with --reference and a folder with --out.")
    if shards < 1 or request.count is None or request.count < shards:
        raise BadInputError(
            f"--shards {shards}: expected 1 or more, and --count with at least one instance each."
        )
    files, made = [], 0
    for number in range(shards):
        count = request.count // shards + (number < request.count % shards)
        seed = request.seed + number
        file = request.out / f"{request.problem}{request.n}-seed{seed}.npz"
        files.append(file)
        one = dataclasses.replace(request, count=count, seed=seed, out=file)
        if _complete(file, one):
            continue
        generate_dataset(one, places, display, to_ledger=False)
        made += 1
    gap, measured = _quality(files[0], check, request, places, display)
    return Shards(tuple(files), made, gap, measured)


def _complete(file: Path, request: GenerateRequest) -> bool:
    """Tell whether the shard holds what is asked for; raise for a file of that name with other instances."""
    if not file.exists():
        return False
    dataset = load_saved(file)
    asked = request.spec()
    if dataset.name != asked.name:
        raise BadInputError(
            f"{file}: holds {dataset.name}, not {asked.name}; choose another folder with --out, or move it away."
        )
    return all(r is not None and r.solution is not None for r in dataset.references)


def _quality(
    file: Path, check: str | None, request: GenerateRequest, places: Places, display: Display
) -> tuple[float | None, str]:
    """Measure the labels, or return what was measured before."""
    path = file.parent / QUALITY
    if check is None:
        if not path.exists():
            return None, ""
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            return float(known["gap_percent"]), str(known["measured"])
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                f"{path}: damaged ({error}); delete it, and measure again with --check."
            ) from error
    dataset = load_saved(file)
    part = dataset.slice(0, min(JUDGED, len(dataset)))
    bare = Dataset(
        f"{dataset.name}-check", part.problem, list(part.instances), [None] * len(part), part.origin
    )
    source = save_dataset(bare, file.parent / "check" / f"{file.stem}.npz")
    how = ReferenceRun(check, request.jobs, request.seed, request.time_limit, request.command)
    found = compute_references(bare, str(source), how, places, display)
    objective = problem_module(part.problem).OBJECTIVE
    pairs = [
        gap_percent(label.cost, better.cost, objective)
        for label, better in zip(part.references, found, strict=True)
        if label is not None and better is not None
    ]
    gaps = [one for one in pairs if one is not None]
    gap, measured = float(np.mean(gaps)), f"{check} on {len(gaps)} instances of {file.name}"
    write(path, json.dumps({"gap_percent": gap, "measured": measured}) + "\n", BadInputError)
    return gap, measured
