"""Plots: what is drawn is right, files are the same every time, bad input is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import BadInputError, ResultsError
from nco_bench.reports import plots
from nco_bench.reports.figures import decade_ticks
from nco_bench.reports.load import load_frame

pytest.importorskip("matplotlib")


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
    assert plots.smoothed(np.array([1.0, 2.0, 6.0, 4.0]), share=0.5).tolist() == [1.0, 3.0, 4.0, 4.0]


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


def test_scatter_counts_wins_in_its_title(results: Results, tmp_path: Path) -> None:
    two_sizes(results)
    text = plots.scatter(
        load_frame(results.folder), "lkh3", "net_a", "tsp100", tmp_path / "s.svg"
    ).read_text()
    assert "tsp100: 2 wins, 0 ties, 0 losses" in text


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_suffix_decides_the_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = plots.anytime({"lkh3": ([0.1, 1.0], [2.0, 0.5])}, tmp_path / f"plot{suffix}")
    assert path.read_bytes().startswith(start)


@pytest.mark.parametrize("name", ["plot.jpg", "plot", "plot.svg.gz"])
def test_other_suffixes_are_refused_before_any_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match=r"\.png, \.pdf or \.svg"):
        plots.anytime({}, tmp_path / name)


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match=r"file/plot.png: cannot be written"):
        plots.anytime({"a": ([1.0], [1.0])}, tmp_path / "file" / "plot.png")


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
        plots.training([tmp_path / "log.csv"], tmp_path / "t.png")


def test_a_training_log_of_another_measure_is_drawn_under_its_name(tmp_path: Path) -> None:
    tasks, costs, old = (tmp_path / f"{name}.csv" for name in ("tasks", "costs", "old"))
    tasks.write_text("step,loss,validation_f1\n1,0.5,\n2,0.4,87.5\n")
    costs.write_text("step,loss,greedy_cost\n1,0.5,\n2,0.4,4.25\n")
    old.write_text("step,loss,validation_gap,validation_f1\n1,0.5,,\n2,0.4,,87.5\n")  # as logs once were
    assert "validation F1 (%)" in plots.training([tasks, old], tmp_path / "t.svg").read_text()
    assert "greedy cost" in plots.training([costs], tmp_path / "c.svg").read_text()
    with pytest.raises(
        BadInputError, match=r"costs\.csv: measures greedy_cost, .*tasks\.csv measures validation_f1"
    ):
        plots.training([tasks, costs], tmp_path / "t.svg")


def test_training_log_with_other_columns_and_gaps_now_and_then(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("step,lr,loss,validation_gap\n1,1e-4,2.5,\n2,1e-4,2.0,7.5\n")
    log = plots.read_training_log(tmp_path / "log.csv")
    assert log["loss"].tolist() == [2.5, 2.0]
    assert np.isnan(log["validation_gap"][0])
    assert log["validation_gap"][1] == 7.5
