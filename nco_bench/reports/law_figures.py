"""Power laws of decoder scaling from the paper's own printed numbers (Figures 1, 2 and 5), and our models beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from nco_bench.errors import UnknownNameError
from nco_bench.reports.aggregate import summarise
from nco_bench.reports.load import ResultFrame
from nco_bench.reports.plots import power_laws
from nco_bench.reports.published import load_table
from nco_bench.reports.scaling_laws import Fit, power_law, power_laws_by, shape_law

FIGURES = ("2a", "2b", "2c", "5")
"""One law for all (also Figure 1's points), a law per depth, a law per width, and gap by parameters and shape."""

Lines = dict[str, tuple[Sequence[float], Sequence[float], Fit | None]]
SHAPE = re.compile(r"D=(\d+), W=(\d+)")
PAPER = "decoder-scaling"


@dataclass(frozen=True)
class Model:
    """Depth, width, parameters in millions, gap on TSP100 in percent."""

    depth: int
    width: int
    parameters: float
    gap: float


def published_models() -> list[Model]:
    """The twelve models of Tables 1 and 12."""
    parameters = {c.row: c.number for c in load_table(PAPER, 1).cells if c.column == "Parameters"}
    found = []
    for cell in load_table(PAPER, 12).cells:
        shape = SHAPE.match(cell.row)
        if shape is not None and cell.column == "TSP100 | Gap" and cell.number is not None:
            count = parameters[shape[0]]
            assert count is not None
            found.append(Model(int(shape[1]), int(shape[2]), count, cell.number))
    return found


def law_lines(figure: str, models: Sequence[Model]) -> Lines:
    """Points and fits of a figure.

    Raises
    ------
    UnknownNameError
        For another figure than those of `FIGURES`.
    """
    if figure not in FIGURES:
        raise UnknownNameError("figure of decoder scaling", figure, FIGURES)
    counts, gaps = [m.parameters for m in models], [m.gap for m in models]
    if figure == "2a":
        return {"all models": (counts, gaps, power_law(counts, gaps))}
    if figure == "5":
        return _by_shape(models)
    keys = [m.depth if figure == "2b" else m.width for m in models]
    fits = power_laws_by(keys, counts, gaps)
    word = "depth" if figure == "2b" else "width"
    return {
        f"{word} {key} (exponent {fit.parameters['alpha']:.2f})": (*_where(keys, key, counts, gaps), fit)
        for key, fit in fits.items()
    }


def _by_shape(models: Sequence[Model]) -> Lines:
    """One law for all, drawn apart for each ratio of depth to width."""
    ratios = [m.depth / m.width for m in models]
    counts, gaps = [m.parameters for m in models], [m.gap for m in models]
    fit = shape_law(counts, ratios, gaps)
    lines: Lines = {}
    for ratio in sorted(set(ratios)):
        inside = [r == ratio for r in ratios]
        fitted = tuple(float(v) for v in np.asarray(fit.fitted)[inside])
        lines[f"A = {ratio:.3f}"] = (*_where(ratios, ratio, counts, gaps), replace(fit, fitted=fitted))
    return lines


def _where(
    keys: Sequence[float], key: float, x: Sequence[float], y: Sequence[float]
) -> tuple[list[float], list[float]]:
    return [a for k, a in zip(keys, x, strict=True) if k == key], [
        b for k, b in zip(keys, y, strict=True) if k == key
    ]


def measured_models(frame: ResultFrame, parameters: Mapping[tuple[int, int], float]) -> list[Model]:
    """Our decoders on uniform instances of 100 cities, greedy; several sets of them give several points."""
    found = []
    for summary in summarise(frame, intervals=False):
        cell = summary.group.cell
        shape = re.fullmatch(r"decoder-(\d+)x(\d+)", cell.solver)
        uniform = cell.origin.get("distribution") == "uniform" and summary.sizes == (100, 100)
        if shape is None or not uniform or cell.decoding != "greedy" or summary.mean_gap_percent is None:
            continue
        key = (int(shape[1]), int(shape[2]))
        if key in parameters:
            found.append(Model(*key, parameters[key], summary.mean_gap_percent))
    return found


def draw_laws(figure: str, out: Path, frame: ResultFrame | None = None) -> Path:
    """Draw a figure from the printed numbers, with our own measurements as further points where there are records."""
    models = published_models()
    lines = law_lines(figure, models)
    if frame is not None:
        ours = measured_models(frame, {(m.depth, m.width): m.parameters for m in models})
        if ours:
            lines["ours, as far as trained"] = ([m.parameters for m in ours], [m.gap for m in ours], None)
    return power_laws(lines, out, xlabel="parameters (millions)")
