"""``plot attention``: which function draws the attention of which solver. One line here adds another family."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.reports.figures import networks as network_plots
from nco_bench.reports.figures.style import checked_target

PENS = "nco_bench.papers.attention:draw_pens"
TASKS = "nco_bench.papers.tropical.attention:draw"
DRAWN_BY: dict[str, str] = {
    **dict.fromkeys(("pens-a", "pens-r", "pens-ar", "coordns"), PENS),
    **dict.fromkeys(("tropical", "vanilla", "adaptive"), TASKS),
}
"""Solver to ``module:function``, called as ``function(solver, data=, instance=, scales=, places=, out=)``."""


def draw(
    solver: str, *, data: str | None, instance: int, scales: Sequence[float], places: Places, out: Path
) -> Path:
    """Draw the attention of a solver.

    Parameters
    ----------
    solver
        With options, such as ``pens-a:weights=random``.
    data
        Dataset; each family has its own default.
    instance
        Which instance, from 0.
    scales
        Coordinate scales, where the family has such.

    Raises
    ------
    UnknownNameError, BadInputError
        For a solver whose attention nobody draws, a scale that is no number, or an instance that is not there.
    """
    if not all(map(math.isfinite, scales)):
        raise BadInputError(
            f"--scale {', '.join(f'{scale:g}' for scale in scales)}: expected finite numbers."
        )
    name = solver.partition(":")[0]
    if name not in DRAWN_BY:
        raise UnknownNameError("solver with an attention plot", name, DRAWN_BY)
    module, _, function = DRAWN_BY[name].partition(":")
    drawer: Callable[..., Path] = getattr(importlib.import_module(module), function)
    return drawer(solver, data=data, instance=instance, scales=scales, places=places, out=out)


def draw_pens(
    solver: str, *, data: str | None, instance: int, scales: Sequence[float], places: Places, out: Path
) -> Path:
    """Draw PENS Figure 6: mean attention logits from the origin to all cities, a panel per coordinate scale.

    The paper's instance has 10,000 cities, whose attention takes a processor hours: 1,000 are drawn unless asked otherwise.
    """
    from nco_bench.papers.representations import attention_from_origin

    checked_target(out)
    dataset = load_dataset(data or "tsp1000:count=1", places)
    if dataset.problem != "tsp":
        raise BadInputError(f"{dataset.name}: PENS needs a TSP instance, and these are of {dataset.problem}.")
    dataset.refuse_beyond(instance)
    return network_plots.attention_maps(attention_from_origin(solver, dataset, instance, list(scales)), out)
