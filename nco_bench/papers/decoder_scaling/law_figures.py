"""Power laws of decoder scaling from the paper's own printed numbers, and our models beside them (Figures 1 to 6)."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nco_bench.errors import UnknownNameError
from nco_bench.papers.decoder_scaling.efficiency_figures import (
    compute_lines,
    measured_sweeps,
    printed_slopes,
    published_sweeps,
    published_times,
    sample_lines,
    time_lines,
)
from nco_bench.papers.decoder_scaling.scaling_laws import (
    Fit,
    bivariate_law,
    power_law,
    power_laws_by,
    shape_law,
)
from nco_bench.papers.published import load_table
from nco_bench.reports.figures.style import (
    DASHES,
    Look,
    checked_target,
    figure,
    gap_scale,
    legend,
    look,
    wide_log_scale,
)
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.frame.rows import settings_by_group
from nco_bench.reports.frame.summary import hardware as hardware_of

FIGURES = ("2a", "2b", "2c", "3", "4a", "4b", "5", "6")
"""One law for all (also Figure 1's points), a law per depth, a law per width; samples; compute by width and by depth; gap
by parameters and shape; time."""
OF_PARAMETERS = ("2a", "2b", "2c", "5")

Lines = dict[str, tuple[Sequence[float], Sequence[float], Fit | None]]
SHAPE = re.compile(r"D=(\d+), W=(\d+)")
PAPER = "decoder-scaling"
PRINTED, OURS = "paper, ", "ours, "
"""How labels of numbers begin that the paper prints, and that were measured here."""
OWN_FILLS = ("full", "none", "left", "bottom", "right", "top")


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
        For another figure than those of `OF_PARAMETERS`.
    """
    if figure not in OF_PARAMETERS:
        raise UnknownNameError("figure of decoder scaling by parameters", figure, OF_PARAMETERS)
    counts, gaps = [m.parameters for m in models], [m.gap for m in models]
    if figure == "2a":
        fit = power_law(counts, gaps)
        return {f"all models (exponent {fit.parameters['alpha']:.2f})": (counts, gaps, fit)}
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
    fit = _shape_fit(models)
    lines: Lines = {}
    for ratio in sorted(set(ratios)):
        inside = [r == ratio for r in ratios]
        fitted = tuple(float(v) for v in np.asarray(fit.fitted)[inside])
        lines[f"A = {ratio:.3f}"] = (*_where(ratios, ratio, counts, gaps), replace(fit, fitted=fitted))
    return lines


def _shape_fit(models: Sequence[Model]) -> Fit:
    return shape_law(
        [m.parameters for m in models], [m.depth / m.width for m in models], [m.gap for m in models]
    )


def shape_exponents(models: Sequence[Model]) -> str:
    """Say the exponents of Equations 6 and 5, fitted alike, beside those that the paper prints."""
    shape = _shape_fit(models).parameters
    both = bivariate_law(
        [m.depth for m in models], [m.width for m in models], [m.gap for m in models]
    ).parameters
    return (
        f"Equation 6: exponents {shape['beta_n']:.2f} of N and {shape['beta_a']:.2f} of A (the paper prints 0.5 and 0.4); "
        f"Equation 5: {both['beta_d']:.2f} of D and {both['beta_w']:.2f} of W. Least squares on logarithms."
    )


def _where(
    keys: Sequence[float], key: float, x: Sequence[float], y: Sequence[float]
) -> tuple[list[float], list[float]]:
    return [a for k, a in zip(keys, x, strict=True) if k == key], [
        b for k, b in zip(keys, y, strict=True) if k == key
    ]


def measured_models(
    frame: ResultFrame, parameters: Mapping[tuple[int, int], float]
) -> dict[str, list[Model]]:
    """Our decoders on uniform instances of 100 cities, greedy, by what was set; several sets give several points."""
    found: dict[str, list[Model]] = {}
    summaries = summarise(frame, intervals=False)
    told = settings_by_group(summaries)
    for summary in summaries:
        cell = summary.group.cell
        shape = re.fullmatch(r"decoder-(\d+)x(\d+)", cell.solver)
        uniform = cell.origin.get("distribution") == "uniform" and summary.sizes == (100, 100)
        if shape is None or not uniform or cell.decoding != "greedy" or summary.mean_gap_percent is None:
            continue
        key = (int(shape[1]), int(shape[2]))
        if key in parameters:
            models = found.setdefault(told[id(summary.group)], [])
            models.append(Model(*key, parameters[key], summary.mean_gap_percent))
    return found


def draw_laws(figure: str, out: Path, frame: ResultFrame | None = None, logs: Sequence[Path] = ()) -> Path:
    """Draw a figure from the printed numbers, with our own measurements as further points where there are any.

    Parameters
    ----------
    figure
        One of `FIGURES`.
    out
        File; its suffix says the format.
    frame
        Records of our decoders, for all figures but 3.
    logs
        Training logs, for Figure 3.

    Raises
    ------
    UnknownNameError
        For another figure.
    """
    if figure not in FIGURES:
        raise UnknownNameError("figure of decoder scaling", figure, FIGURES)
    if figure == "3":
        return _draw_samples(out, logs)
    if figure in ("4a", "4b"):
        return _draw_compute(figure, out, frame)
    if figure == "6":
        return _draw_times(out, frame)
    models = published_models()
    lines = {f"{PRINTED}{name}": line for name, line in law_lines(figure, models).items()}
    note = "Points: gaps and parameters that the paper prints (Tables 12 and 1); lines: our fits to them."
    if figure == "5":
        note += f" {shape_exponents(models)}"
    if frame is not None:
        ours = measured_models(frame, {(m.depth, m.width): m.parameters for m in models})
        for settings, found in ours.items():
            name = f"{OURS}as far as trained{', ' if settings else ''}{settings}"
            lines[name] = ([m.parameters for m in found], [m.gap for m in found], None)
        if ours:
            note += " Stars: measured here."
    return power_laws(lines, out, xlabel="parameters (millions)", note=note)


def power_laws(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float], Fit | None]],
    out: Path | str,
    *,
    xlabel: str,
    note: str = "",
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    joined: bool = False,
) -> Path:
    """Draw measured gaps with their fitted laws, both axes logarithmic (Figures 1 to 6 of decoder scaling).

    Parameters
    ----------
    lines
        By label: x values, gaps in percent, and the fit at these x, or None.
    out
        File; its suffix says the format.
    xlabel
        What x is, with unit.
    note
        A sentence above the plot: where the numbers are from.
    curves
        By label: x and gaps of lines without points.
    joined
        Whether points without a fit are joined by a thin line.
    """
    target = checked_target(out)
    qualities = [
        f"R² = {f.r2:.3f}, error {f.error_percent:.2f} %" for *_, f in lines.values() if f is not None
    ]
    shared = len(qualities) > 1 and len(set(qualities)) == 1  # one law, drawn as several lines
    curves = curves or {}
    with figure(1, target) as (fig, axes):
        if shared or note:
            title = [*(qualities[:1] if shared else ()), *([textwrap.fill(note, 95)] if note else ())]
            axes[0].set_title("\n".join(title), fontsize=7 if note else None)
        remaining = iter(qualities)
        looks = _law_looks([*lines, *curves])
        for name, (x, gaps, fit) in lines.items():
            style = looks[name]
            quality = "" if fit is None else next(remaining)
            label = name if fit is None or shared else f"{name}: {quality}"
            line = style.dash if joined and fit is None else "none"
            points: dict[str, Any] = dict(
                marker=style.marker, fillstyle=style.fill, markersize=9 if name.startswith(OURS) else None
            )
            axes[0].plot(x, gaps, color=style.colour, linestyle=line, linewidth=0.7, **points)
            if fit is not None:
                order = np.argsort(x)
                fitted = np.asarray(fit.fitted)[order]
                axes[0].plot(np.asarray(x)[order], fitted, color=style.colour, linestyle=style.dash)
                line = style.dash if len(x) > 1 else "none"
            axes[0].plot(
                [], [], color=style.colour, linestyle=line, label=label, **points
            )  # for the legend: both
        for name, (x, gaps) in curves.items():
            axes[0].plot(x, gaps, color=looks[name].colour, linestyle=looks[name].dash, label=name)
        drawn = [*((x, gaps) for x, gaps, _ in lines.values()), *curves.values()]
        wide_log_scale(axes[0], [float(v) for x, _ in drawn for v in x])
        gap_scale(axes[0], [g for _, gaps in drawn for g in gaps], least=0.0)
        axes[0].set(xlabel=xlabel, ylabel="gap (%)")
        legend(fig, axes)
    return target


def _law_looks(names: Sequence[str]) -> dict[str, Look]:
    """Printed numbers in turning colours, ours as black stars, full, hollow or half: no one takes one for another."""
    printed = [name for name in names if not name.startswith(OURS)]
    own = [name for name in names if name.startswith(OURS)]
    return {name: look(i) for i, name in enumerate(printed)} | {
        name: Look("#000000", "*", DASHES[i % len(DASHES)], OWN_FILLS[i % len(OWN_FILLS)])
        for i, name in enumerate(own)
    }


def _draw_samples(out: Path, logs: Sequence[Path]) -> Path:
    note = "The paper prints no points of its Figure 3; its exponents are drawn through its final gaps (Table 12)."
    return power_laws(
        sample_lines(logs), out, xlabel="training samples (millions)", note=note, curves=printed_slopes()
    )


def _draw_compute(figure: str, out: Path, frame: ResultFrame | None) -> Path:
    published = [s for s in published_sweeps() if (s.depth == 6 if figure == "4a" else s.width == 128)]
    lines = compute_lines(published, PRINTED)
    note = (
        "Points: gaps that the paper prints (Table 18); beam B counted as B times greedy (100 tokens, 100 steps), "
        "fits on logarithms. The paper prints "
        "exponents of 0.82 (D=6, W=128), 1.34 (D=6, W=512) and 1.71 (D=42, W=128)."
    )
    own = [] if frame is None else measured_sweeps(frame)
    if own:
        lines |= compute_lines(own, OURS)
        note += f" Ours, as far as trained: {', '.join(str(s.instances) for s in own)} instances."
    return power_laws(lines, out, xlabel="compute per instance (GFLOPs)", note=note)


def _machines(frame: ResultFrame | None) -> str:
    """Name what our decoders ran on, and say where it had more to do than it has cores."""
    groups = [g for g in (frame.groups if frame is not None else ()) if g.cell.solver.startswith("decoder-")]
    names = dict.fromkeys(hardware_of(e, g.cell.device) for g in groups for e in g.environments)
    loads = [
        e["load_average"][0] / e["cpu_count"]
        for g in groups
        for e in g.environments
        if e.get("load_average") and e.get("cpu_count")
    ]
    busy = " beside other work, so upper bounds" if max(loads, default=0.0) > 1 else ""
    return f"{' / '.join(names)}{busy}"


def _draw_times(out: Path, frame: ResultFrame | None) -> Path:
    note = "Printed: Tables 12 (greedy) and 4, on an RTX 4090; three points fit no law of three constants."
    own = [] if frame is None else measured_sweeps(frame)
    if own:
        note += f" Ours, as far as trained: {_machines(frame)}, {own[0].instances} instances."
    return power_laws(
        published_times() | time_lines(own),
        out,
        xlabel="minutes for 10,000 instances",
        note=note,
        joined=True,
    )
