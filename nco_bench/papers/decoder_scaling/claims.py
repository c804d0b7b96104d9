"""Numbers that decoder scaling states in its text, computed from the tables that it prints."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nco_bench.papers.decoder_scaling.efficiency_figures import compute_lines, published_sweeps
from nco_bench.papers.decoder_scaling.law_figures import Model, law_lines, published_models
from nco_bench.papers.decoder_scaling.scaling_laws import shape_law
from nco_bench.papers.judging import Verdict, judge_computed
from nco_bench.papers.published import PublishedTable, load_table

PAPER = "decoder-scaling"
Claims = dict[tuple[str, str], tuple[float, str]]
"""Value and where it is from, by row and column."""


def claims_of_decoder_scaling(
    table: PublishedTable, scale: str
) -> dict[tuple[str, str], tuple[float, Verdict]]:
    """Compute the numbers of decoder scaling's text from the tables that the paper prints."""
    known = _better_than_larger() | _fits() | _improvements() | _gains()
    found = {}
    for cell in table.cells:
        value, source = known[cell.row, cell.column]
        verdict = judge_computed(cell, value)
        if verdict.status == "differs":
            source = f"{source}: {value:.4g}"
        found[cell.row, cell.column] = (value, replace(verdict, reason=source))
    return found


def _better_than_larger() -> Claims:
    models = published_models()
    better = [m for m in models if any(o.parameters > m.parameters and o.gap > m.gap for o in models)]
    row, source = "Models better than a larger one", "counted in the paper's Tables 1 and 12"
    return {(row, "Count"): (float(len(better)), source), (row, "of"): (float(len(models)), source)}


def _fits() -> Claims:
    """The power laws of Section 4 and Equation 6, fitted to Tables 1, 12 and 18."""
    models = published_models()
    source = "fitted to the paper's Tables 1 and 12 (least squares on gaps)"
    found: Claims = {}
    for figure in ("2a", "2b", "2c"):
        fits = [fit for _, _, fit in law_lines(figure, models).values() if fit is not None]
        exponents = [fit.parameters["alpha"] for fit in fits]
        error = "Figure 2a, error" if figure == "2a" else f"Figure {figure}"
        r2 = (float(np.mean([f.r2 for f in fits])), source)
        places = ("Figure 2a", "Figure 2a, caption") if figure == "2a" else (f"Figure {figure}",)
        found |= {(place, "R2"): r2 for place in places}
        found |= {
            (error, "Error"): (float(np.mean([f.error_percent for f in fits])), source),
            (f"Figure {figure}, exponents", "Least"): (min(exponents), source),
            (f"Figure {figure}, exponents", "Largest"): (max(exponents), source),
        }
    return found | _shape(models) | _compute_exponents()


def _shape(models: list[Model]) -> Claims:
    fit = shape_law(
        [m.parameters for m in models], [m.depth / m.width for m in models], [m.gap for m in models]
    )
    source = "fitted to the paper's Tables 1 and 12 (least squares on logarithms)"
    return {
        ("Equation 6, N", "Exponent"): (fit.parameters["beta_n"], source),
        ("Equation 6, A", "Exponent"): (fit.parameters["beta_a"], source),
    }


def _compute_exponents() -> Claims:
    source = (
        "fitted to the paper's Table 18 (least squares on logarithms; a beam of B counted as B times greedy)"
    )
    found: Claims = {}
    for sweep in published_sweeps():
        ((_, _, fit),) = compute_lines([sweep]).values()
        assert fit is not None
        for row in ("Figure 4a, exponents", "Figure 4b, exponents"):
            found[row, f"D={sweep.depth}, W={sweep.width}"] = (fit.parameters["alpha"], source)
    return found


BASELINE = "D=6, W=128"
LEHD = ("LEHD D=6, W=128", "LEHD D=24, W=64")
IMPROVEMENTS = (
    ("D=96, W=32 for D=6, W=128 (Table 2), TSP100", "Improvement", 2, BASELINE, "D=96, W=32", "TSP100 | Gap"),
    ("D=96, W=32 for D=6, W=128 (Table 2), TSP1000", "Improvement", 2, BASELINE, "D=96, W=32", "TSP1000 | Gap"),
    (
        "D=42, W=512 for D=6, W=128 (Table 5), TSP1000", "Improvement",
        5, "D=6, W=128 greedy", "D=42, W=512 greedy", "TSP1000 | Gap",
    ),
    ("LEHD deeper and narrower (Table 20), parameters", "Reduction", 20, *LEHD, "Parameters"),
    ("LEHD deeper and narrower (Table 20), TSP100", "Improvement", 20, *LEHD, "TSP100 | Gap"),
    ("LEHD deeper and narrower (Table 20), TSP1000", "Improvement", 20, *LEHD, "TSP1000 | Gap"),
    *(
        ("log(n) on TSP1000 (Table 8)", model, 8, f"w/o log(n) | {row}", f"w/ log(n) | {row}", "TSP1000 | Gap")
        for model, row in ((BASELINE, BASELINE), ("D=42, W=128", "D=42, W=128"), ("D=6, W=512", "D=6, W=256"))
    ),
)  # fmt: skip
"""Row and column of a claim, its table, the rows before and after there, and their column; Table 8 misnames its wide row."""


def _improvements() -> Claims:
    """By how many percent one printed number is below another."""
    return {
        (row, column): (100 * (1 - _printed(number, after, of) / _printed(number, before, of)), _of(number))
        for row, column, number, before, after, of in IMPROVEMENTS
    }


def _gains() -> Claims:
    """How many times smaller gaps are after 1,000 iterations of RRC."""
    found: Claims = {}
    for row, model in (
        ("baseline", BASELINE),
        ("wide and deep", "D=6, W=512"),
        ("wide and deep", "D=42, W=128"),
    ):
        greedy, improved = (_printed(19, model, f"TSP1000 {kind} | Gap") for kind in ("Greedy", "RRC 1000"))
        found[f"RRC 1000 over greedy on TSP1000 (Table 19), {row}", model] = (greedy / improved, _of(19))
    return found


def _printed(number: int, row: str, column: str) -> float:
    value = load_table(PAPER, number).cell(row, column).number
    assert value is not None
    return value


def _of(number: int) -> str:
    return f"from the paper's Table {number}"
