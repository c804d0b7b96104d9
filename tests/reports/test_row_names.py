"""What rows of a table are called: settings that were chosen, and configurations that must be told apart."""

from __future__ import annotations

from typing import Any

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.tables.table import build_table
from nco_bench.runs.records import Cell


def names_of(results: Results, *cells: Cell) -> list[str]:
    """Rows of the main table of cells with a record each."""
    results.run("r1", *((c, make_records(c, [11.0], [10.0])) for c in cells))
    return [row.cells[0].text for row in build_table("main", load_frame(results.folder)).rows]


def chosen(**options: Any) -> dict[str, Any]:
    """Options as records keep them, with a hash of their own."""
    return {"options": {"decoding": "greedy", **options}, "decoding": "greedy", "config_sha256": f"{options}"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"logit_scale": "ssmax"}, "logit scale ssmax"),
        ({"coordinate_scale": "1.35"}, "coordinate scale 1.35"),
        ({"params": {"precision": "bf16", "k": "5"}}, "k=5, precision=bf16"),
        ({"time_limit": 2.0}, "time limit 2 s"),
        ({"logit_scale": "ssmax", "time_limit": 0.5, "params": {}}, "logit scale ssmax, time limit 0.5 s"),
    ],
)
def test_a_row_says_what_was_set_though_nothing_else_ran(
    results: Results, options: dict[str, Any], said: str
) -> None:
    assert names_of(results, make_cell(0, "sit", "tsp20", **chosen(**options))) == [f"sit greedy ({said})"]


def test_default_settings_are_not_said(results: Results) -> None:
    plain = {"weights": None, "logit_scale": None, "coordinate_scale": None, "params": {}, "time_limit": None}
    assert names_of(results, make_cell(0, "sit", "tsp20", **chosen(**plain))) == ["sit greedy"]


def test_a_setting_of_the_label_is_said_once(results: Results) -> None:
    facts = {
        **chosen(params={"order": "sit", "k": "5"}),
        "label": "random-insertion:order=sit",
        "decoding": "",
    }
    assert names_of(results, make_cell(0, "random-insertion", "tsp20", **facts)) == [
        "random-insertion:order=sit (k=5)"
    ]


def test_settings_are_said_in_latex(results: Results) -> None:
    cell = make_cell(0, "sit", "tsp20", **chosen(logit_scale="eie:at=encoder"))
    results.run("r1", (cell, make_records(cell, [11.0], [10.0])))
    text = render_latex.render(build_table("main", load_frame(results.folder)))
    assert "sit greedy (logit scale eie:at=encoder) &" in text


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        ({"options": {"logit_scale": "ssmax"}}, {}, ["sit", "sit (logit scale ssmax)"]),
        ({"seed": 1}, {"seed": 2}, ["sit (seed 1)", "sit (seed 2)"]),
        ({"device": "cuda:0"}, {}, ["sit (device cpu)", "sit (device cuda)"]),
        ({"solver_version": "2"}, {}, ["sit (version 1)", "sit (version 2)"]),
        (
            {"weights": {"name": "sit", "sha256": "a" * 64}},
            {"weights": {"name": "sit", "sha256": "b" * 64}},
            ["sit (weights sha aaaaaaaa)", "sit (weights sha bbbbbbbb)"],
        ),
    ],
)
def test_two_configurations_share_no_row_on_other_datasets_either(
    results: Results, one: dict[str, Any], other: dict[str, Any], names: list[str]
) -> None:
    cells = [make_cell(0, "sit", "tsp20", **one), make_cell(1, "sit", "tsp30", **other)]
    assert names_of(results, *cells) == names


def test_two_calibrations_of_one_weights_file_share_no_row(results: Results) -> None:
    weights = {"name": "pens-a", "sha256": "a" * 64}
    cells = [
        make_cell(i, "pens-a", f"tsp{n}", weights={**weights, "calibration": {"100": factor}})
        for i, (n, factor) in enumerate([(100, 1.2), (101, 1.4)])
    ]
    names = names_of(results, *cells)
    assert len(names) == 2
    assert all(name.startswith("pens-a (calibration ") for name in names)
