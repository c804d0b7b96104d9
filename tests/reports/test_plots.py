"""Plots: what is drawn is right, files are the same every time, bad input is named."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.cli import app
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.reports.figures import plots, training_curves
from nco_bench.reports.figures.anytime import Curve
from nco_bench.reports.figures.style import (
    SOLVER_COLOURS,
    decade_ticks,
    figure,
    gap_scale,
    legend,
    size_ticks,
    solver_look,
    solver_looks,
)
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.html.plots import MARKERS as HTML_MARKERS

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure


def two_sizes(results: Results) -> None:
    parts = []
    for index, (solver, n, cost) in enumerate(
        [("lkh3", 100, 10.0), ("lkh3", 200, 20.0), ("net_a", 100, 11.0), ("net_a", 200, 23.0)]
    ):
        cell = make_cell(index, solver, f"tsp{n}")
        parts.append((cell, make_records(cell, [cost, cost], [n / 10] * 2, n=n)))
    results.run("r1", *parts)


def test_pareto_front_holds_what_nothing_beats() -> None:
    points = [(1.0, 5.0), (2.0, 6.0), (3.0, 2.0), (0.5, 9.0), (3.0, 1.0)]
    assert plots.pareto_front(points) == [(0.5, 9.0), (1.0, 5.0), (3.0, 1.0)]


def test_pareto_says_who_solved_only_a_part_and_joins_no_line_to_it(results: Results, tmp_path: Path) -> None:
    """The partial run is the fastest and the best of all, so a front over all points would be that point alone."""
    whole, partial = make_cell(0, "lkh3", "tsp100"), make_cell(1, "net_a", "tsp100")
    results.run(
        "r1",
        (whole, make_records(whole, [11.0, 11.0, 11.0], [10.0] * 3, seconds=1.0)),
        (partial, make_records(partial, [10.1], [10.0], seconds=0.1)),
    )
    text = plots.pareto(load_frame(results.folder), tmp_path / "p.svg").read_text()
    assert ">net_a (1 of 3 instances)<" in text
    assert ">lkh3<" in text
    assert "#ffffff" in text  # hollow


def test_moving_mean_by_hand() -> None:
    """Windows of three inside, one at the ends."""
    assert training_curves.smoothed(np.array([1.0, 2.0, 6.0, 4.0]), share=0.5).tolist() == [
        1.0,
        3.0,
        4.0,
        4.0,
    ]


def test_ticks_of_a_short_and_a_long_range() -> None:
    assert decade_ticks(0.3, 4.0) == pytest.approx([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50])
    assert decade_ticks(0.01, 10.0) == pytest.approx([0.01, 0.1, 1.0, 10.0])


@pytest.mark.parametrize("kind", ["pareto", "scaling"])
def test_svg_names_every_solver_as_text_and_is_the_same_every_time(
    results: Results, tmp_path: Path, kind: str
) -> None:
    two_sizes(results)
    frame = load_frame(results.folder)
    first, second = (getattr(plots, kind)(frame, tmp_path / f"{i}.svg").read_bytes() for i in range(2))
    assert first == second
    assert b">net_a<" in first
    assert b">lkh3<" in first


def test_scatter_names_who_is_better_and_on_how_many(results: Results, tmp_path: Path) -> None:
    """Whichever is named first; and where higher is better, as load rates are, the higher one wins."""
    packed = {"problem": "bpp3d", "objective": "max", "reference_solver": None}
    parts = []
    for index, (solver, costs) in enumerate([("one", [70.0, 60.0, 50.0]), ("two", [60.0, 50.0, 50.0])]):
        cells = (make_cell(index, solver, "tsp100"), make_cell(index + 2, solver, "boxes", **packed))
        parts += [(cells[0], make_records(cells[0], costs, [40.0] * 3))]
        parts += [(cells[1], make_records(cells[1], costs, [None] * 3))]
    results.run("r1", *parts)
    frame = load_frame(results.folder)
    for first, second in (("one", "two"), ("two", "one")):
        tours = plots.scatter(frame, first, second, "tsp100", tmp_path / "s.svg").read_text()
        boxes = plots.scatter(frame, first, second, "boxes", tmp_path / "s.svg").read_text()
        assert all(f">{words}<" in tours for words in ("two better: 2", "one better: 0", "neither better: 1"))
        assert all(f">{words}<" in boxes for words in ("one better: 2", "two better: 0", "neither better: 1"))
    assert "tsp100, 3 instances" in tours
    assert ">two, score<" in boxes


def test_a_solver_has_one_colour_in_every_plot_whatever_is_selected(results: Results, tmp_path: Path) -> None:
    """Of three solvers, net_b is drawn alone, with others, against time and against size."""
    parts = []
    for index, (solver, decoding) in enumerate(
        [("lkh3", ""), ("net_a", ""), ("net_b", "greedy"), ("net_b", "x8")]
    ):
        for n in (100, 200):
            cell = make_cell(len(parts), solver, f"tsp{n}", decoding=decoding)
            parts.append((cell, make_records(cell, [11.0 + index] * 2, [10.0] * 2, n=n, seconds=1.0 + index)))
    results.run("r1", *parts)
    frame = load_frame(results.folder)
    colours = {
        name: look.colour for name, look in plots.looks_of(frame, plots.arrange(summarise(frame))[0]).items()
    }
    assert colours["net_b greedy"] == colours["net_b x8"]
    assert len(set(colours.values())) == 3
    own = colours.pop("net_b greedy")
    others = {colours["lkh3"], colours["net_a"]}
    alone = frame.select(solvers=["net_b"])
    for drawn in (
        plots.pareto(alone, tmp_path / "1.svg"),
        plots.pareto(alone.select(datasets=["tsp200"]), tmp_path / "2.svg"),
        plots.scaling(alone, tmp_path / "3.svg"),
        plots.anytime({"curve": Curve("net_b", [1.0], [2.0])}, tmp_path / "4.svg", frame.solvers),
    ):
        text = drawn.read_text()
        assert own.lower() in text
        assert not any(colour.lower() in text for colour in others)


def test_seventy_lines_of_twenty_solvers_differ_in_colour_or_marker() -> None:
    lines = {f"solver{i % 20} decoding{i}": f"solver{i % 20}" for i in range(70)}
    looks = [solver_look(*number) for number in solver_looks(lines, sorted(set(lines.values()))).values()]
    assert len({(look.colour, look.marker) for look in looks}) == 70


def test_twelve_decodings_of_one_solver_differ_in_marker_or_dash() -> None:
    """There are ten markers: the eleventh line had marker and dash of the first."""
    lines = {f"solver decoding{i}": "solver" for i in range(12)}
    looks = [solver_look(*number) for number in solver_looks(lines, ["solver"]).values()]
    assert len({(look.marker, str(look.dash)) for look in looks}) == 12
    assert len({(look.marker, look.fill) for look in looks}) == 12  # where no line shows its dash
    assert len({name for name, _ in HTML_MARKERS} | {letter for _, letter in HTML_MARKERS}) == 30


def test_pareto_tells_more_settings_of_a_solver_apart_than_there_are_markers(
    results: Results, tmp_path: Path
) -> None:
    """The eleventh point looked like the first."""
    parts = []
    for k in range(12):
        cell = make_cell(k, "net", "tsp100", decoding=f"rrc:{k}")
        parts.append((cell, make_records(cell, [11.0 + k] * 2, [10.0] * 2, seconds=1.0 + k)))
    results.run("r1", *parts)
    drawn = plots.pareto(load_frame(results.folder), tmp_path / "p.svg").read_text()
    colour = SOLVER_COLOURS[0].lower()
    points = [
        re.findall(r'href="#(m\w+)"[^>]*fill: ([^;"]+)', part) for part in drawn.split('<g id="line2d_')
    ]
    assert len({tuple(point) for point in points if colour in [fill for _, fill in point]}) == 12


def axis_of(gaps: list[float]) -> Any:
    axis = Figure().add_subplot()
    gap_scale(axis, gaps)
    return axis


def test_noise_of_exact_solvers_does_not_fill_an_axis() -> None:
    """Gaps of +-0.005 % are a line near zero on an axis up to 1 %, and no decade is spent on them beside a gap of 5 %."""
    low, high = axis_of([0.005, -0.005, 2e-14]).get_ylim()
    assert high - low >= 1.0
    axis = axis_of([5.0, 2e-14, -0.005])
    zero, noise, effect = (axis.transData.transform((0, y))[1] for y in (0.0, 0.005, 5.0))
    assert noise - zero < 0.01 * (effect - zero)


def test_an_axis_of_gaps_makes_no_mountain_of_a_small_difference() -> None:
    """13.0 and 13.5 % lie 4 % apart, which is a small part of an axis whose ends are a factor of four apart."""
    low, high = axis_of([13.0, 13.5]).get_ylim()
    assert high / low == pytest.approx(4.0)
    assert low < 13.0 < 13.5 < high


def test_scaling_draws_what_has_two_sizes_and_names_what_has_not(results: Results, tmp_path: Path) -> None:
    two_sizes(results)
    lone = make_cell(0, "net_lone", "tsp100")
    results.run("r2", (lone, make_records(lone, [12.0, 12.0], [10.0, 10.0], n=100)))
    frame = load_frame(results.folder)
    text = plots.scaling(frame, tmp_path / "s.svg").read_text()
    assert ">not drawn, of one size only: net_lone<" in text
    assert ">net_lone<" not in text
    with pytest.raises(
        ResultsError, match=r"two sizes of one distribution \(there is TSP uniform with n = 100\)"
    ):
        plots.scaling(frame.select(solvers=["net_lone"]), tmp_path / "s.svg")


def test_scaling_marks_means_over_a_part(results: Results, tmp_path: Path) -> None:
    two_sizes(results)
    assert "hollow" not in plots.scaling(load_frame(results.folder), tmp_path / "s.svg").read_text()
    part = make_cell(0, "net_part", "tsp100")
    other = make_cell(1, "net_part", "tsp200")
    results.run(
        "r2",
        (part, make_records(part, [12.0], [10.0], n=100)),
        (other, make_records(other, [24.0, 24.0], [20.0, 20.0], n=200)),
    )
    assert (
        "hollow: not all instances"
        in plots.scaling(load_frame(results.folder), tmp_path / "s.svg").read_text()
    )


def test_sets_of_other_demands_are_no_line_with_the_usual_ones(results: Results) -> None:
    origin = {"generator": "nco-bench", "version": "1", "distribution": "uniform", "seed": 1}
    usual = {"capacity": "50", "demand": "integer", "range": "0..1"}
    parts = []
    for index, params in enumerate(
        [usual, {**usual, "demand": "unit", "capacity": "10"}, {**usual, "range": "-1..1"}]
    ):
        cell = make_cell(index, "hgs", f"set{index}", problem="cvrp", origin={**origin, "params": params})
        parts.append((cell, make_records(cell, [11.0], [10.0])))
    results.run("r1", *parts)
    titles = sorted(plots.panel_title(s) for s in summarise(load_frame(results.folder)))
    assert titles == ["CVRP uniform", "CVRP uniform in -1..1", "CVRP uniform unit demand, capacity 10"]


def test_every_size_on_an_axis_has_its_number(tmp_path: Path) -> None:
    """1,000 had none beside 500, and a reader took its tick for 5,000."""
    sizes = [100, 200, 500, 1000, 10_000]
    with figure(2, tmp_path / "a.png") as (fig, axes):
        size_ticks(axes[0], sizes)
        size_ticks(axes[1], [51, 574])
    fig.draw_without_rendering()
    one, other = axes[0].get_xticklabels(), axes[1].get_xticklabels()
    assert [label.get_text() for label in one] == [f"{size:,}" for size in sizes]
    assert {label.get_rotation() for label in other} == {0.0}
    height = one[0].get_fontsize() / 72 * fig.dpi
    ends = [label.get_window_extent().x1 for label in one]
    assert all(b - a > height * 2**0.5 for a, b in pairwise(ends))


def test_sizes_on_an_axis_do_not_touch_and_both_ends_are_named() -> None:
    axis = Figure(figsize=(3, 2)).add_subplot()
    size_ticks(axis, [100, 110, 120, 200, 500, 10_000])
    names = [label.get_text() for label in axis.get_xticklabels()]
    assert names[0] == "100"
    assert names[-1] == "10,000"
    assert names[1] == names[2] == ""


def test_a_long_name_of_a_dataset_stays_above_its_panel(tmp_path: Path) -> None:
    """Three in a row: the titles ran into each other, and the last one out of the picture."""
    pytest.importorskip("matplotlib")
    title = "cvrp1600:capacity=10:demand=unit:range=-1..1 (8)"
    with figure(3, tmp_path / "a.png") as (fig, axes):
        for axis in axes:
            axis.set(title=title, ylabel="gap (%)")
    fig.draw_without_rendering()
    drawn = [axis.title.get_window_extent() for axis in axes]
    assert all(axis.get_title().replace("\n", "").replace(" ", "") == title.replace(" ", "") for axis in axes)
    assert all(a.x1 < b.x0 for a, b in pairwise(drawn))
    assert drawn[-1].x1 < fig.bbox.x1


def test_a_long_legend_covers_no_panel(tmp_path: Path) -> None:
    with figure(1, tmp_path / "long.png") as (fig, axes):
        for i in range(25):
            axes[0].plot([1, 2], [i, i], label=f"a solver with a name of some length, number {i}")
        legend(fig, axes)
        fig.canvas.draw()
        box, panel = fig.legends[0].get_window_extent(), axes[0].get_tightbbox()
        assert panel is not None
        assert box.y1 <= panel.y0
        assert panel.height > 0.25 * fig.bbox.height


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_suffix_decides_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = plots.anytime({"lkh3": Curve("lkh3", [0.1, 1.0], [2.0, 0.5])}, tmp_path / f"plot{suffix}")
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["plot.jpg", "plot", "plot.svg.gz"])
def test_other_suffixes_are_refused_before_any_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match=r"\.png, \.pdf or \.svg"):
        plots.anytime({}, tmp_path / name)


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file/plot.png: cannot be written"):
        plots.anytime({"a": Curve("a", [1.0], [1.0])}, tmp_path / "file" / "plot.png")


def test_no_gaps_at_all_is_an_error(results: Results, tmp_path: Path) -> None:
    cell = make_cell(0, "a", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0], [None])))
    with pytest.raises(ResultsError, match="references"):
        plots.pareto(load_frame(results.folder), tmp_path / "p.png")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no rows"),
        ("step,loss\n1,2\n", "log.csv:1: column validation_gap is missing"),
        ("step,loss,validation_gap\n1,2,\n2,x,\n", "log.csv:3: loss is 'x'"),
    ],
)
def test_a_bad_training_log_names_file_and_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(BadInputError, match=message):
        training_curves.training([tmp_path / "log.csv"], tmp_path / "t.png")


def test_a_training_log_of_another_measure_is_drawn_under_its_name(tmp_path: Path) -> None:
    tasks, costs, old = (tmp_path / f"{name}.csv" for name in ("tasks", "costs", "old"))
    tasks.write_text("step,loss,validation_f1\n1,0.5,\n2,0.4,87.5\n")
    costs.write_text("step,loss,greedy_cost\n1,0.5,\n2,0.4,4.25\n")
    old.write_text("step,loss,validation_gap,validation_f1\n1,0.5,,\n2,0.4,,87.5\n")  # as logs once were
    assert "validation F1 (%)" in training_curves.training([tasks, old], tmp_path / "t.svg").read_text()
    assert "greedy cost" in training_curves.training([costs], tmp_path / "c.svg").read_text()
    with pytest.raises(BadInputError, match=r"validation_f1: \S+tasks\.csv; greedy_cost: \S+costs\.csv\."):
        training_curves.training([tasks, costs], tmp_path / "t.svg")


def test_runs_of_one_file_are_lines_of_their_own(tmp_path: Path) -> None:
    """The project's own files of several runs were refused: "recipe is 'lr=3e-3'; expected a number"."""
    several, one = tmp_path / "rates.csv", tmp_path / "one.csv"
    several.write_text(
        "recipe,step,loss,validation_gap\nlr=1,1,2.5,7.5\nlr=2,1,2.0,8.5\nlr=1,2,1.5,6.5\nlr=2,2,1.0,\n"
    )
    one.write_text("step,loss,validation_gap\n1,2.5,7.5\n")
    logs = training_curves.read_training_logs(several)
    assert logs["lr=1"]["validation_gap"].tolist() == [7.5, 6.5]
    assert logs["lr=2"]["loss"].tolist() == [2.0, 1.0]
    assert ">lr=2<" in training_curves.training([several], tmp_path / "t.svg").read_text()
    beside = training_curves.training([several, one], tmp_path / "t.svg").read_text()
    assert ">rates: lr=2<" in beside
    assert ">one<" in beside


def test_what_is_no_training_log_is_left_out_beside_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log, scores, out = tmp_path / "log.csv", tmp_path / "scores.csv", tmp_path / "t.svg"
    log.write_text("step,loss,validation_gap\n1,2.5,7.5\n2,1.5,6.5\n")
    scores.write_text("network,score\na,1.5\n")
    said = f"{scores}:1: column step is missing; expected step, loss and a measure."
    assert app.run(["plot", "training", str(scores), str(log), "--out", str(out)]) == 0
    assert f"skipped {said}" in capfd.readouterr().err
    out.unlink()
    assert app.run(["plot", "training", str(scores), "--out", str(out)]) == 2
    assert capfd.readouterr().err.strip() == f"error: {said}"
    assert not out.exists()
    broken = tmp_path / "broken.csv"
    broken.write_text("step,loss,validation_gap\n1,2.5,7.5\n2,oops,6.5\n")
    assert app.run(["plot", "training", str(broken), str(log), "--out", str(out)]) == 2


def test_training_log_with_other_columns_and_gaps_now_and_then(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,lr,loss,validation_gap\n1,1e-4,2.5,\n2,1e-4,2.0,7.5\n")
    log = training_curves.read_training_logs(tmp_path / "log.csv")[""]
    assert log["loss"].tolist() == [2.5, 2.0]
    assert np.isnan(log["validation_gap"][0])
    assert log["validation_gap"][1] == 7.5


def test_a_paper_s_value_is_a_line_in_a_training_curve(tmp_path: Path) -> None:
    """The axis reaches down to the line, and the legend says its value."""
    log = tmp_path / "log.csv"
    log.write_text("step,loss,validation_gap\n1,2.5,7.5\n2,2.0,6.5\n")
    drawn = training_curves.training([log], tmp_path / "t.svg", {"paper": 0.34}).read_text()
    assert "paper: 0.34" in drawn
    without = training_curves.training([log], tmp_path / "w.svg").read_text()
    assert "paper" not in without
    assert ">0.5<" in drawn
    assert ">0.5<" not in without
