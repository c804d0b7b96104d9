"""Figures of power laws: the published numbers are read and give the published fits."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import UnknownNameError
from nco_bench.papers.decoder_scaling import law_figures
from nco_bench.papers.decoder_scaling.law_figures import (
    FIGURES,
    draw_laws,
    law_lines,
    measured_models,
    published_models,
)
from nco_bench.reports.frame.load import load_frame
from nco_bench.stored import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REPOSITORY = Path(__file__).resolve().parents[2]


def test_printed_gaps_give_the_r2_that_figure_2_prints() -> None:
    """0.794 for one law, 0.989 on average per depth, 0.988 per width."""
    models = published_models()
    means = {}
    for figure in ("2a", "2b", "2c"):
        means[figure] = np.mean(
            [fit.r2 for _, _, fit in law_lines(figure, models).values() if fit is not None]
        )
    assert (means["2a"], means["2b"], means["2c"]) == pytest.approx((0.794, 0.989, 0.988), abs=5e-4)


def test_lines_of_figure_5_hold_each_model_once_with_its_fitted_gap() -> None:
    """Section 5.1: exponent 0.5 of N; so four times the parameters at one ratio halve the gap."""
    lines = law_lines("5", published_models())
    assert sum(len(x) for x, _, _ in lines.values()) == 12
    (x, _, fit) = lines["A = 0.047"]  # 6x128, 12x256, 24x512
    assert fit is not None
    assert len(x) == 3
    assert fit.fitted[0] / fit.fitted[1] == pytest.approx((x[1] / x[0]) ** 0.5, rel=0.03)


def test_the_plot_of_figure_5_shows_the_exponents_beside_the_printed_ones(tmp_path: Path) -> None:
    """Section 5.1 prints 0.5 and 0.4; on logarithms the twelve models give 0.495 and 0.395."""
    pytest.importorskip("matplotlib")
    drawn = draw_laws("5", tmp_path / "5.svg").read_text()
    assert "exponents 0.50 of N and 0.40 of A" in drawn
    assert "of D and 0.59 of W" in drawn


@pytest.mark.parametrize("figure", FIGURES)
def test_printed_and_measured_numbers_are_told_apart(tmp_path: Path, figure: str) -> None:
    """Every label says whose number it is, and a note which tables are meant; without records nothing is ours."""
    pytest.importorskip("matplotlib")
    printed = texts(draw_laws(figure, tmp_path / "p.svg"))
    labels = {text for text in printed if text.startswith(("paper,", "ours,"))}
    assert labels
    assert all(label.startswith("paper,") for label in labels)
    assert any(re.search("Tables? 1[28]", text) for text in printed)
    if figure not in ("3", "4b"):  # samples are of training logs; our beams are of a model that 4a shows
        both = texts(draw_laws(figure, tmp_path / "o.svg", load_frame(REPOSITORY / "results" / "neural")))
        assert labels < {text for text in both if text.startswith(("paper,", "ours,"))}


def texts(svg: Path) -> list[str]:
    """All texts of a plot; formulas are in pieces."""
    elements = ElementTree.parse(svg).getroot().iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()).strip() for element in elements]


def test_our_decoders_are_found_in_the_records_that_ship() -> None:
    ours = measured_models(load_frame(REPOSITORY / "results" / "neural"), {(6, 128): 1.32})
    assert list(ours) == [""]  # nothing was set
    assert [(m.depth, m.width, m.parameters) for m in ours[""]] == [(6, 128, 1.32)]
    stored = records(results=REPOSITORY / "results" / "neural")
    greedy = stored[(stored.solver == "decoder-6x128") & (stored.decoding == "greedy")]
    assert len(greedy) == 1000
    assert ours[""][0].gap == pytest.approx(100 * (greedy.cost / greedy.reference - 1).mean(), abs=0.01)


def test_a_scaled_decoder_is_no_point_of_the_plain_one(results: Results) -> None:
    cells = [
        make_cell(i, "decoder-6x128", "tsp100", decoding="greedy", options=options, config_sha256=str(i))
        for i, options in enumerate([{"logit_scale": None}, {"logit_scale": "ssmax"}])
    ]
    for cell, cost in zip(cells, (11.0, 12.0), strict=True):
        results.run(f"r{cell.cell}", (cell, make_records(cell, [cost], [10.0])))
    ours = measured_models(load_frame(results.folder), {(6, 128): 1.32})
    assert {name: [m.gap for m in models] for name, models in ours.items()} == {
        "": [pytest.approx(10.0)],
        "logit scale ssmax": [pytest.approx(20.0)],
    }


def test_the_legend_shows_markers_with_the_dashes_of_their_lines(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every depth has its law beside its points, our two settings are points alone, and no two stars look alike."""
    pytest.importorskip("matplotlib")
    cells = [
        make_cell(i, "decoder-6x128", "tsp100", decoding="greedy", options=options, config_sha256=str(i))
        for i, options in enumerate([{"logit_scale": None}, {"logit_scale": "ssmax"}])
    ]
    results.run("r1", *((cell, make_records(cell, [11.0], [10.0])) for cell in cells))
    panels: list[Axes] = []
    monkeypatch.setattr(law_figures, "legend", lambda fig, axes: panels.extend(axes))
    draw_laws("2b", tmp_path / "2b.png", load_frame(results.folder))
    entries = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    lines = {label: handle for label, handle in entries.items() if label.startswith("paper,")}
    stars = {label: handle for label, handle in entries.items() if label.startswith("ours,")}
    assert (len(lines), len(stars)) == (4, 2)
    assert all(h.get_marker() != "None" and h.get_linestyle() != "None" for h in lines.values())
    assert {h.get_linestyle() for h in stars.values()} == {"None"}
    assert len({h.get_fillstyle() for h in stars.values()}) == 2


def test_every_figure_is_drawn_and_another_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for figure in FIGURES:
        assert draw_laws(figure, tmp_path / f"{figure}.svg").read_text().count("<svg") == 1
    with pytest.raises(UnknownNameError, match="2a, 2b, 2c, 3, 4a"):
        draw_laws("7", tmp_path / "7.svg")
