"""Pictures of instances and solutions: TSP tours, CVRP routes, galleries of distributions; PNG, PDF or SVG.

Colours are those of Okabe and Ito (2008), which colour-blind readers can tell apart. Up to 100,000 nodes draw in
seconds: one line collection per colour, rasterised inside PDF and SVG when there are many nodes. Nothing here
touches pyplot or the global state of matplotlib.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Reference
from nco_bench.errors import BadInputError, MissingDependencyError
from nco_bench.files import READABLE, replacing
from nco_bench.problems import Instance, problem
from nco_bench.problems.cvrp import CVRPInstance, routes
from nco_bench.problems.tsp import TSPInstance
from nco_bench.runs.judge import gap_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

ROUTE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is too pale for lines on white."""

DEPOT_COLOUR = "#000000"
LETTERS_PER_INCH = 13
"""Of a caption of 9 points."""

NODE_COLOUR = "#333333"
FORMATS = (".png", ".pdf", ".svg")
RASTERISE_FROM = 5000
"""Nodes from which a vector file would be slower to open than its content is worth."""


def draw(
    instance: Instance,
    path: Path | str,
    solution: NDArray[np.integer] | None = None,
    *,
    title: str = "",
    author: str = "",
    reference: Reference | None = None,
    colour: str = "",
    size_inches: float = 6.0,
    dpi: int = 150,
) -> Path:
    """Draw an instance, and a solution of it, into a file.

    Parameters
    ----------
    instance
        TSP or CVRP with coordinates. GEO instances are drawn with north up.
    path
        ``.png``, ``.pdf`` or ``.svg``; replaced as a whole or not at all.
    solution
        Tour or node sequence. An infeasible one is drawn too, and its title says so.
    title
        Above the picture; by default the instance's name and n, with a solution's author, cost and gap.
    author
        Who found the solution.
    reference
        What the gap is to.
    colour
        Of a tour; routes have turning colours.
    size_inches, dpi
        Width of the picture and resolution of what is rasterised.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    BadInputError
        For an instance without coordinates or of another problem, a solution that is no sequence of the
        instance's nodes, another file type, or a place that cannot be written.
    MissingDependencyError
        Without matplotlib.
    """
    target = _target(path)
    figure = _figure(size_inches, size_inches)
    text = title or _caption(instance, solution, author, reference)
    letters = max(24, int(LETTERS_PER_INCH * size_inches))
    text = "\n".join(textwrap.fill(line, letters, break_on_hyphens=False) for line in text.splitlines())
    top = 0.98 - 0.2 * (text.count("\n") + 1) / size_inches
    axes = figure.add_axes((0.02, 0.02, 0.96, top - 0.02))
    _draw_on(axes, instance, solution, size_inches, colour or ROUTE_COLOURS[0])
    axes.set_title(text, fontsize=9)
    return _save(figure, target, dpi)


def _target(path: Path | str) -> Path:
    target = Path(path)
    if target.suffix.lower() not in FORMATS:
        raise BadInputError(
            f"{target}: pictures are written as {', '.join(FORMATS)}; give the file one of these endings."
        )
    return target


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("pictures need matplotlib: pip install 'nco-bench[plots]'") from error
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _draw_on(
    axes: Axes, instance: Instance, solution: NDArray[np.integer] | None, inches: float, colour: str = ""
) -> None:
    coords = display_coordinates(instance)
    order = None if solution is None else _drawable(instance, solution, len(coords))
    many = len(coords) >= RASTERISE_FROM
    # Thin enough that neighbouring edges of a tour stay apart: their distance falls as 1 / sqrt(n).
    width = float(np.clip(5.0 * inches / np.sqrt(len(coords)), 0.2, 1.2))
    if order is not None and isinstance(instance, CVRPInstance):
        _draw_routes(axes, coords, order, width, many)
    elif order is not None:
        _draw_tour(axes, coords[np.append(order, order[0])], width, many, colour)
    _draw_nodes(axes, instance, coords, inches, many, solved=order is not None)
    axes.set_aspect("equal")
    axes.margins(0.02)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("#BBBBBB")


def display_coordinates(instance: Instance) -> FloatArray:
    """Return ``(nodes, 2)`` coordinates to draw at, the depot first; raises `BadInputError` where there are none."""
    if isinstance(instance, TSPInstance):
        coords = instance.coords
    elif isinstance(instance, CVRPInstance):
        both = instance.depot is not None and instance.customers is not None
        coords = np.vstack([instance.depot, instance.customers]) if both else None  # type: ignore[list-item]
    else:
        raise BadInputError(
            f"{instance.name}: only TSP and CVRP instances can be drawn, not {instance.problem}."
        )
    if coords is None:
        raise BadInputError(
            f"{instance.name}: it is given by distances alone, without coordinates to draw at."
        )
    # TSPLIB's GEO lists latitude first.
    return coords[:, ::-1] if instance.convention == "geo" else coords


def _drawable(instance: Instance, solution: NDArray[np.integer], nodes: int) -> NDArray[np.int64]:
    order = np.asarray(solution)
    flat = order.ndim == 1 and len(order) > 0 and np.issubdtype(order.dtype, np.integer)
    if not flat or order.min() < 0 or order.max() >= nodes:
        reasons = problem(instance.problem).violations(instance, order)
        raise BadInputError(
            f"{instance.name}: the solution cannot be drawn: {reasons[0] if reasons else 'it is empty'}."
        )
    return order.astype(np.int64)


def _draw_tour(axes: Axes, closed: FloatArray, width: float, many: bool, colour: str) -> None:
    """Draw one line; edge by edge where there are many, for Agg is slow at one path that crosses itself often."""
    from matplotlib.collections import LineCollection

    pieces = np.stack([closed[:-1], closed[1:]], axis=1) if many else closed[None]
    axes.add_collection(
        LineCollection(list(pieces), colors=colour, linewidths=width, rasterized=many, zorder=1)
    )


def _draw_routes(axes: Axes, coords: FloatArray, order: NDArray[np.int64], width: float, many: bool) -> None:
    """Draw routes in turning colours, ordered by direction so that neighbours differ; depot legs are pale."""
    from matplotlib.collections import LineCollection

    found = routes(order)
    directions = [np.arctan2(*(coords[route].mean(axis=0) - coords[0])[::-1]) for route in found]
    paths: list[list[FloatArray]] = [[] for _ in ROUTE_COLOURS]
    legs: list[list[FloatArray]] = [[] for _ in ROUTE_COLOURS]
    for rank, index in enumerate(np.argsort(directions, kind="stable")):
        route = found[index]
        colour = rank % len(ROUTE_COLOURS)
        paths[colour].append(coords[route])
        legs[colour] += [coords[[0, route[0]]], coords[[route[-1], 0]]]
    for name, path, leg in zip(ROUTE_COLOURS, paths, legs, strict=True):
        axes.add_collection(
            LineCollection(leg, colors=name, linewidths=0.6 * width, alpha=0.3, rasterized=many, zorder=1)
        )
        axes.add_collection(LineCollection(path, colors=name, linewidths=width, rasterized=many, zorder=2))


def _draw_nodes(
    axes: Axes, instance: Instance, coords: FloatArray, inches: float, many: bool, solved: bool
) -> None:
    spacing_points = 72.0 * inches / np.sqrt(len(coords))
    area = float(np.clip(((0.2 if solved else 0.3) * spacing_points) ** 2, 0.05, 14.0))
    is_cvrp = isinstance(instance, CVRPInstance)
    sizes: Any = area
    if isinstance(instance, CVRPInstance) and instance.demand.max() > 0:
        sizes = area * (0.4 + 1.2 * instance.demand / instance.demand.max())
    nodes = coords[1:] if is_cvrp else coords
    axes.scatter(
        nodes[:, 0], nodes[:, 1], s=sizes, color=NODE_COLOUR, linewidths=0, rasterized=many, zorder=3
    )
    if is_cvrp:
        axes.scatter(
            coords[:1, 0], coords[:1, 1], s=45, marker="s", color=DEPOT_COLOUR, edgecolors="white", zorder=4
        )


def _caption(
    instance: Instance, solution: NDArray[np.integer] | None, author: str, reference: Reference | None
) -> str:
    text = f"{author} on {instance.name}" if author else instance.name
    text += f", n = {instance.n}"
    if isinstance(instance, CVRPInstance):
        text += f", C = {instance.capacity:g}"
    if solution is None:
        return text
    judge = problem(instance.problem)
    found = judge.violations(instance, solution)
    if found:
        return f"{text}, infeasible: {found[0]}"
    cost = judge.score(instance, solution)
    gap = None if reference is None else gap_percent(cost, reference.cost, "min")
    told = "" if gap is None or reference is None else f", gap {gap:z.3f} % to {reference.solver}"
    between = "\n" if author else " "
    return f"{text},{between}cost {cost:.6g} ({instance.convention}){told}"


def _save(figure: Figure, target: Path, dpi: int) -> Path:
    """Write beside the target and rename, without dates, so that equal pictures are equal files."""
    from matplotlib import rc_context

    suffix = target.suffix.lower()
    metadata: dict[str, Any] = {".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[suffix]
    with (
        replacing(target, BadInputError, sync=False, mode=READABLE) as temporary,
        rc_context({"svg.hashsalt": "nco-bench"}),
    ):
        figure.savefig(temporary, dpi=dpi, format=suffix[1:], metadata=metadata)
    return target
