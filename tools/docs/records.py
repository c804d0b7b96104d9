"""What is stored of every solver: the numbers on its page, and the solutions that its picture shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SETS = ("tsp100", "tsp50", "tsp20", "cvrp100", "cvrp20", "bpp3d20", "bpp3d100")
"""Sets whose first instance makes a picture, the best first."""

LEFT_OUT = ("smoke", "ablation")
"""Folders of a handful of instances each, and of networks that were trained for a comparison only."""

COUNT = re.compile(r":count=\d+")

SHOWN = 12
"""Lines of a solver's table; the rest is counted."""


@dataclass(frozen=True)
class Stored:
    """A solver's stored results on a dataset.

    Attributes
    ----------
    solver, label, decoding, dataset
        As records name them.
    instances
        How many were solved.
    cost
        Mean, under the dataset's convention.
    gap, low, high
        Mean gap in percent with its interval, None where nothing is known to compare with.
    seconds
        Of an instance, in the batches of that run.
    hardware
        That it ran on.
    results
        Folder that it was read from.
    """

    solver: str
    label: str
    decoding: str
    dataset: str
    instances: int
    cost: float | None
    gap: float | None
    low: float | None
    high: float | None
    seconds: float | None
    hardware: str
    results: Path


def stored(results: Path) -> dict[str, list[Stored]]:
    """Return what the folders of a results folder hold, by solver; those with most instances first.

    A cell that lies in several folders counts once. `LEFT_OUT` says which folders do not count.
    """
    from nco_bench.errors import NcoBenchError
    from nco_bench.reports.frame.aggregate import summarise
    from nco_bench.reports.frame.load import load_frame

    found: dict[tuple[str, ...], Stored] = {}
    for folder in sorted(one for one in results.iterdir() if one.is_dir() and one.name not in LEFT_OUT):
        try:
            summaries = summarise(load_frame(folder))
        except NcoBenchError:
            continue  # a folder without records, such as tables
        for summary in summaries:
            one = _of(summary.as_dict(), folder)
            key = (one.solver, one.label, one.decoding, one.dataset)
            if key not in found or found[key].instances < one.instances:
                found[key] = one
    by_solver: dict[str, list[Stored]] = {}
    told: set[tuple[object, ...]] = set()
    for one in sorted(found.values(), key=lambda one: (-one.instances, len(one.dataset))):
        # The first 1,000 of tsp100 are tsp100:count=1000: records of the one are records of the other.
        same = (one.label, one.decoding, COUNT.sub("", one.dataset), one.instances, one.cost)
        if same not in told:
            told.add(same)
            by_solver.setdefault(one.solver, []).append(one)
    return by_solver


def _of(known: dict[str, object], folder: Path) -> Stored:
    wanted = {name: known.get(source) for name, source in COLUMNS.items()}
    return Stored(**wanted, results=folder)  # type: ignore[arg-type]


COLUMNS = {
    "solver": "solver", "label": "label", "decoding": "decoding", "dataset": "dataset", "instances": "instances",
    "cost": "mean_cost", "gap": "mean_gap_percent", "low": "gap_low_percent", "high": "gap_high_percent",
    "seconds": "seconds_per_instance", "hardware": "hardware",
}  # fmt: skip
"""Attributes of `Stored` to keys of a summary."""
