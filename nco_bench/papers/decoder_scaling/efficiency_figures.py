"""Figures 3, 4 and 6 of decoder scaling: gap against training samples, compute and time, printed and our own.

The paper gives the points of Figure 4 in Table 18 (gaps by beam) and Table 17 (compute), and a few of Figure 6 in Tables 4
and 12. Of Figure 3 it gives three exponents only, so those are drawn as slopes through the final gaps of Table 12.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nco_bench.errors import BadInputError
from nco_bench.papers.decoder_scaling.flops import gigaflops
from nco_bench.papers.decoder_scaling.scaling_laws import Fit, power_law, shifted_law
from nco_bench.papers.published import load_table
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.result_frame import OK, ResultFrame
from nco_bench.reports.frame.rows import settings_by_group

PAPER = "decoder-scaling"
Lines = dict[str, tuple[Sequence[float], Sequence[float], Fit | None]]
Curves = dict[str, tuple[Sequence[float], Sequence[float]]]

PRINTED_EXPONENTS = {(6, 128): 0.47, (6, 512): 0.55, (42, 128): 0.71}
"""Of samples (Section 4.2 and the caption of Figure 3), by depth and width."""
SAMPLES = (3.0, 61.44)
"""Millions of training samples: from where Figure 3 begins to 60,000 steps of 1,024."""
PRINTED_INSTANCES = 10_000
TIMED = ((6, 128), (6, 512), (24, 128), (42, 128))
"""The models of Table 4."""
FEWEST = 4
"""Instances that all beams must have solved to be drawn."""


@dataclass(frozen=True)
class Sweep:
    """A model at several beam widths: gaps in percent, seconds per instance, over the same instances."""

    depth: int
    width: int
    beams: tuple[int, ...]
    gaps: tuple[float, ...]
    seconds: tuple[float, ...] = ()
    instances: int = PRINTED_INSTANCES
    settings: str = ""

    @property
    def name(self) -> str:
        """Depth, width and what was set, as lines are labelled."""
        return f"D={self.depth}, W={self.width}{', ' if self.settings else ''}{self.settings}"


def published_sweeps() -> list[Sweep]:
    """The twelve models of Table 18; gaps printed as 0.0000 % are left out, no law fits them."""
    found: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for cell in load_table(PAPER, 18).cells:
        shape, beam = re.search(r"D=(\d+), W=(\d+)", cell.row), re.search(r"beam=(\d+)", cell.column)
        if shape is not None and cell.number:
            found.setdefault((int(shape[1]), int(shape[2])), []).append(
                (int(beam[1]) if beam else 1, cell.number)
            )
    return [Sweep(*shape, *map(tuple, zip(*points, strict=True))) for shape, points in found.items()]  # type: ignore[arg-type]


def measured_sweeps(frame: ResultFrame) -> list[Sweep]:
    """Our decoders on uniform TSP100 by setting and beam width, over the instances that all beams of a setting solved."""
    records = frame.records
    told = settings_by_group(summarise(frame, intervals=False))
    found: dict[tuple[int, int, str], dict[int, dict[int, tuple[float, float]]]] = {}
    for code, group in enumerate(frame.groups):
        cell = group.cell
        shape = re.fullmatch(r"decoder-(\d+)x(\d+)", cell.label)
        beam = re.fullmatch(r"greedy|beam:(\d+)", cell.decoding)
        part = records[(records["group"] == code) & (records["status"] == OK)]
        uniform = cell.origin.get("distribution") == "uniform" and set(part["n"]) == {100}
        if shape is None or beam is None or not uniform:
            continue
        gaps = {
            int(i): (float(gap), float(seconds))
            for i, gap, seconds in zip(part["instance"], part["gap_percent"], part["seconds"], strict=True)
            if not np.isnan(gap)
        }
        if len(gaps) >= FEWEST:
            key = (int(shape[1]), int(shape[2]), told[id(group)])
            found.setdefault(key, {})[int(beam[1] or 1)] = gaps
    return [sweep for key, beams in found.items() if (sweep := _common(*key, beams)) is not None]


def _common(
    depth: int, width: int, settings: str, beams: dict[int, dict[int, tuple[float, float]]]
) -> Sweep | None:
    shared = sorted(set.intersection(*map(set, beams.values())))
    if len(beams) < 2 or len(shared) < FEWEST:
        return None
    means = {b: np.mean([beams[b][i] for i in shared], axis=0) for b in sorted(beams)}
    return Sweep(
        depth,
        width,
        tuple(means),
        tuple(float(m[0]) for m in means.values()),
        tuple(float(m[1]) for m in means.values()),
        len(shared),
        settings,
    )


def compute_lines(sweeps: Sequence[Sweep], own: str = "") -> Lines:
    """Gap against GFLOPs (Figure 4): a beam of B is taken to cost B times greedy, with fits of Equation 4.

    The fits are least squares on logarithms: over four decades of gaps that comes nearest to the printed exponents.
    """
    lines: Lines = {}
    for sweep in sweeps:
        points = [(b, g) for b, g in zip(sweep.beams, sweep.gaps, strict=True) if g > 0]
        x = [b * gigaflops(sweep.depth, sweep.width) for b, _ in points]
        gaps = [g for _, g in points]
        fit = power_law(x, gaps, symbol="C", space="log") if len(points) > 2 else None
        exponent = f" (exponent {fit.parameters['alpha']:.2f})" if fit else ""
        lines[f"{own}{sweep.name}{exponent}"] = (x, gaps, fit)
    return lines


def time_lines(sweeps: Sequence[Sweep]) -> Lines:
    """Our gaps against minutes for 10,000 instances (Figure 6), with a fit of Equation 7 where there are points enough."""
    lines: Lines = {}
    for s in sweeps:
        minutes = [seconds * PRINTED_INSTANCES / 60 for seconds in s.seconds]
        fit = shifted_law(minutes, s.gaps) if len(s.gaps) > 3 and min(s.gaps) > 0 else None
        lines[f"ours, {s.name}"] = (minutes, s.gaps, fit)
    return lines


def published_times() -> Lines:
    """Gaps and minutes that the paper prints: greedy in Table 12, two beams each in Table 4."""
    greedy = {(c.row, c.column): c.number for c in load_table(PAPER, 12).cells}
    beams = {(c.row, c.column): c for c in load_table(PAPER, 4).cells}
    lines: Lines = {}
    for depth, width in TIMED:
        row = f"D={depth}, W={width}"
        points = [(greedy[f"{row} greedy", "TSP100 | Time"], greedy[f"{row} greedy", "TSP100 | Gap"])]
        for budget in ("Limited", "Sufficient"):
            seconds = beams[row, f"{budget} budget | Time"].seconds
            points.append(
                (None if seconds is None else seconds / 60, beams[row, f"{budget} budget | Gap"].number)
            )
        known = [(t, g) for t, g in points if t is not None and g is not None]
        lines[f"paper, {row}"] = ([t for t, _ in known], [g for _, g in known], None)
    return lines


def sample_lines(logs: Sequence[Path]) -> Lines:
    """Validation gaps of training logs against millions of samples (Figure 3), with fits of Equation 3."""
    lines: Lines = {}
    for path in logs:
        samples, gaps = read_sample_gaps(path)
        fit = power_law(samples, gaps, symbol="S") if len(samples) > 2 else None
        exponent = f" (exponent {fit.parameters['alpha']:.2f})" if fit else ""
        lines[f"ours, {path.stem}{exponent}"] = (samples, gaps, fit)
    return lines


def printed_slopes() -> Curves:
    """The exponents of samples that the paper prints, as lines that end in the final gaps of Table 12."""
    gaps = {c.row: c.number for c in load_table(PAPER, 12).cells if c.column == "TSP100 | Gap"}
    curves: Curves = {}
    for (depth, width), exponent in PRINTED_EXPONENTS.items():
        final = gaps[f"D={depth}, W={width} greedy"]
        assert final is not None
        ys = [final * (SAMPLES[1] / samples) ** exponent for samples in SAMPLES]
        curves[f"paper, D={depth}, W={width}: exponent {exponent:.2f}"] = (SAMPLES, ys)
    return curves


def read_sample_gaps(path: Path) -> tuple[list[float], list[float]]:
    """Read millions of samples and validation gaps in percent of a training log, where it has both.

    Raises
    ------
    BadInputError
        When the log cannot be read or holds none.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [
                (float(row["samples"]) / 1e6, float(row["validation_gap"]))
                for row in csv.DictReader(file)
                if row["validation_gap"]
            ]
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read ({error.strerror}).") from error
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise BadInputError(
            f"{path}: no log with columns samples and validation_gap ({type(error).__name__}: {error})."
        ) from error
    points = dict(rows)  # a resumed training repeats its last line
    if not points:
        raise BadInputError(f"{path}: has no validation gap yet; train longer, or plot another log.")
    return list(points), list(points.values())
