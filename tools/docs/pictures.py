"""Pictures of solutions for the pages of solvers: stored ones where there are, else those of a quick run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.docs.records import SETS, Stored

if TYPE_CHECKING:
    from nco_bench.cards import Card

QUICK = {"tsp": "tsp100:count=1", "cvrp": "cvrp100:count=1", "bpp3d": "bpp3d20:120x100:count=1"}
"""What is solved where nothing is stored."""

INCHES = 3.6
"""Width of a picture: beside the facts, text in it is as large as a caption."""

MOST = 3
"""Stored cells that are tried for a solver; one may belong to instances that are not drawn as they were."""


@dataclass(frozen=True)
class Picture:
    """A picture with what stands below it."""

    file: str
    caption: str


def draw_all(solvers: Iterable[Card], stored: Mapping[str, list[Stored]], folder: Path) -> dict[str, Picture]:
    """Draw a solution of every solver that has one.

    Parameters
    ----------
    solvers
        Their cards.
    stored
        Stored cells by solver.
    folder
        For the pictures.

    Returns
    -------
    dict
        By solver; without those that nothing is known of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    with tempfile.TemporaryDirectory() as instances:
        for known in solvers:
            cells = [one for one in stored.get(known.name, ()) if _set(one) in SETS]
            for cell in sorted(cells, key=_order)[:MOST]:
                picture = _stored(known.name, cell, Path(instances), folder)
                if picture is not None:
                    found[known.name] = picture
                    break
            else:
                if (quick := _run(known, Path(instances), folder)) is not None:
                    found[known.name] = quick
    return found


def _set(cell: Stored) -> str:
    return cell.dataset.partition(":")[0]


def _order(cell: Stored) -> tuple[int, int]:
    """Well-known sets first, and of these the names with the fewest settings."""
    return SETS.index(_set(cell)), cell.dataset.count(":") + cell.dataset.count("=")


def _stored(name: str, cell: Stored, instances: Path, folder: Path) -> Picture | None:
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.errors import NcoBenchError
    from nco_bench.reports.figures.solutions import draw_solution

    try:
        dataset = load_dataset(cell.dataset, Places.from_environment(instances))
        out = folder / f"{name}.png"
        draw_solution(dataset, 0, cell.label, cell.decoding, cell.results, out, size_inches=INCHES)
    except NcoBenchError:
        return None
    how = f", decoding `{cell.decoding}`" if cell.decoding else ""
    return Picture(
        f"{name}.png", f"`{cell.label}` on the first instance of `{cell.dataset}`{how}; a stored solution."
    )


def _run(known: Card, instances: Path, folder: Path) -> Picture | None:
    """Solve one instance with what ships; None where that lacks weights or a program."""
    import nco_bench
    from nco_bench.datasets.load import Places, load_dataset
    from nco_bench.errors import NcoBenchError
    from nco_bench.reports.figures.solutions import draw_solution
    from nco_bench.solvers.readiness import readiness

    problem = next((one for one in known.problems if one in QUICK), "")
    if not problem or not readiness(known).available:
        return None
    data, results = QUICK[problem], instances / "runs"
    try:
        limit = 1.0 if known.name in ("ortools", "pyvrp", "hgs") else None
        nco_bench.run(known.name, data, results=results, instances=instances, time_limit=limit, device="cpu")
        dataset = load_dataset(data, Places.from_environment(instances))
        draw_solution(dataset, 0, known.name, None, results, folder / f"{known.name}.png", size_inches=INCHES)
    except NcoBenchError:
        return None
    return Picture(f"{known.name}.png", f"`{known.name}` on `{data}`, solved when this page was made.")
