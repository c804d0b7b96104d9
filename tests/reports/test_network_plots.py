"""Plots of what networks look at: files that are the same every time and say what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.reports.figures import networks as network_plots
from nco_bench.reports.figures import training_curves
from nco_bench.reports.figures.networks import AttentionPanel, Features, ScaleCurve, Sightedness

pytest.importorskip("matplotlib")

CURVE = ScaleCurve(1000, (0.8, 1.0, 1.2, 1.4, 1.6), (24.2, 23.9, 23.8, 23.9, 24.2), 1.2, True, (1.0, 1.4))


def test_coordinate_scales_name_size_and_vertex(tmp_path: Path) -> None:
    text = network_plots.coordinate_scales("pens-a", [CURVE], tmp_path / "c.svg").read_text()
    assert "TSP1000: vertex 1.20" in text
    assert network_plots.coordinate_scales("pens-a", [CURVE], tmp_path / "d.svg").read_text() == text


def test_without_calibration_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="nco-bench calibrate pens-a"):
        network_plots.coordinate_scales("pens-a", [], tmp_path / "c.svg")


def test_sightedness_leaves_out_ranks_without_cases(tmp_path: Path) -> None:
    line = Sightedness("net", (9, 3, 0), (10, 4, 0))
    assert line.rates[:2] == [90.0, 75.0]
    assert np.isnan(line.rates[2])
    text = network_plots.long_sightedness([line], tmp_path / "s.svg").read_text()
    assert ">≥3<" in text
    assert ">net (14 choices)<" in text


def test_pictures_of_some_instances_say_which(tmp_path: Path) -> None:
    line = Sightedness("net", (9, 3, 0), (10, 4, 0))
    text = network_plots.long_sightedness([line], tmp_path / "s.svg", "tsp50, 8 instances").read_text()
    assert ">tsp50, 8 instances<" in text
    points = [network_plots.RepeatsGap(5, (0.0, 2.0))]
    assert ">set, 2<" in network_plots.gaps_by_repeats(points, tmp_path / "r.svg", "set, 2").read_text()


def test_the_interval_of_few_gaps_is_students() -> None:
    """Of 0 and 2 the mean's standard error is 1; the t distribution of one degree of freedom has 12.706 at 97.5 %."""
    assert network_plots.RepeatsGap(5, (0.0, 2.0)).half_width == pytest.approx(12.7062, abs=1e-4)
    assert network_plots.RepeatsGap(5, (1.0,)).half_width == 0.0


def test_intervals_of_two_networks_do_not_cover_each_other(tmp_path: Path) -> None:
    """Four upright bars, of two networks at two ranks, stand at four places."""
    line = Sightedness("net", (9, 3, 0), (10, 4, 0))
    text = network_plots.long_sightedness([line, line], tmp_path / "s.svg").read_text()
    upright = re.findall(
        r'd="M ([\d.]+) ([\d.]+) \nL ([\d.]+) ([\d.]+) \n"[^>]*clip-path[^>]*stroke-width: 0.8"', text
    )
    bars = {x0 for x0, y0, x1, y1 in upright if x0 == x1 and y0 != y1}
    assert len(bars) == 4


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_titles_of_similarities_stay_within_the_picture(panels: int, tmp_path: Path) -> None:
    """Those of two squares beside each other touched the upper edge."""
    from PIL import Image

    values = np.random.default_rng(0).normal(size=(12, 5))
    some, title = (
        [Features("decoder-6x128", values, 0)] * panels,
        "tsp1000:count=128, instance 128, 500 nodes passed",
    )
    for draw in (network_plots.cosine_maps, network_plots.feature_pca):
        ink = np.asarray(Image.open(draw(some, tmp_path / "f.png", title)).convert("L")) < 200
        assert ink[4:-4, 4:-4].sum() == ink.sum()


def test_wrong_choices_are_marked(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(12, 5))
    right, wrong = Features("a", values, 0), Features("b", values, 4)
    text = network_plots.feature_pca([right, wrong], tmp_path / "f.svg", "tsp20, instance 1").read_text()
    assert ">tsp20, instance 1<" in text
    assert "a: right choice" in text
    assert "b: wrong choice" in text
    assert ">picked<" in text
    assert ">cosine similarity<" in network_plots.cosine_maps([right], tmp_path / "g.svg").read_text()


def test_attention_panels_name_their_scale(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    panels = [
        AttentionPanel("pens-a", s, generator.random((30, 2)), generator.random(30)) for s in (1.0, 1.5)
    ]
    text = network_plots.attention_maps(panels, tmp_path / "a.svg").read_text()
    assert "pens-a, scale 1.5" in text
    assert text.count(">mean logit<") == 1
    assert ">destination<" in text


def test_training_logs_with_rows_that_have_no_loss_keep_their_smooth_line(tmp_path: Path) -> None:
    """Validation rows have no loss; they used to end the smoothed line at the first of them."""
    log = tmp_path / "log.csv"
    rows = [f"{s},{1 / s:.4f}," for s in range(1, 200)]
    with_validation = [*rows[:100], "100,,5.0", *rows[100:], "199,,4.0"]
    drawn = []
    for lines in ([*rows[:-1], "199,0.005,4.0"], with_validation):
        log.write_text("\n".join(["step,loss,validation_gap", *lines]) + "\n")
        drawn.append(training_curves.training([log], tmp_path / "t.svg").read_text())
    # The two longest paths are the loss and its smoothed line.
    plain, mixed = (sorted(map(len, re.findall(r'<path d="([^"]*)"', text)))[-2:] for text in drawn)
    assert [m >= 0.8 * p for m, p in zip(mixed, plain, strict=True)] == [True, True]
