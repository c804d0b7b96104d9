"""Tables: ranks, marks, rows that must be told apart, awkward input."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import UnknownNameError
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.render import csv as render_csv
from nco_bench.reports.render import json as render_json
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.render import markdown as render_markdown
from nco_bench.reports.render import terminal as render_terminal
from nco_bench.reports.tables.presets import cost_decimals, gap_decimals
from nco_bench.reports.tables.table import (
    DASH,
    Number,
    Row,
    Table,
    Text,
    Value,
    build_table,
    rank_values,
    significant_decimals,
)


def table_of(results: Results, *cells: tuple[str, list[Any]], name: str = "main", **facts: Any) -> Table:
    """Cells by method name with costs; all references are 10."""
    parts = []
    for index, (solver, costs) in enumerate(cells):
        cell = make_cell(index, solver, "tsp100", **facts)
        parts.append((cell, make_records(cell, costs, [10.0] * len(costs))))
    results.run("r1", *parts)
    return build_table(name, load_frame(results.folder))


def row(table: Table, name: str) -> dict[str, Value]:
    [found] = [r for r in table.rows if r.cells[0] == Text(name)]
    return {c.key: cell for c, cell in zip(table.columns, found.cells, strict=True)}


def rank(value: Value) -> int:
    assert isinstance(value, Number)
    return value.rank


def test_best_and_second_per_column(results: Results) -> None:
    table = table_of(results, ("a", [11.0]), ("b", [12.0]), ("c", [13.0]))
    assert [rank(row(table, s)["tsp100/gap"]) for s in "abc"] == [1, 2, 0]


def test_higher_is_better_for_scores(results: Results) -> None:
    table = table_of(results, ("a", [8.0]), ("b", [9.0]), objective="max", problem="bpp3d")
    assert [rank(row(table, s)["tsp100/cost"]) for s in "ab"] == [2, 1]
    assert [rank(row(table, s)["tsp100/gap"]) for s in "ab"] == [2, 1]


def test_a_tie_as_printed_shares_the_rank_and_after_two_firsts_comes_a_third() -> None:
    """As in sports: 1, 1, 3; a third is not underlined. Two seconds are both underlined."""
    tie = [Number(1.0001, 3), Number(1.0002, 3), Number(2.0, 3), Number(3.0, 3)]
    assert [rank(c) for c in rank_values(tie, "min")] == [1, 1, 0, 0]
    seconds = [Number(3.0, 1), Number(2.0, 1), Number(2.04, 1), Number(1.0, 1)]
    assert [rank(c) for c in rank_values(seconds, "min")] == [0, 2, 2, 1]


def test_a_mean_over_some_repeats_of_an_instance_cannot_win_its_row(results: Results) -> None:
    partial, whole = make_cell(0, "a", "tsp100"), make_cell(1, "b", "tsp100")
    kept = [*make_records(partial, [10.0], [10.0]), *make_records(partial, ["infeasible"], [10.0], repeat=1)]
    results.run("r1", (partial, kept), (whole, make_records(whole, [11.0], [10.0])))
    table = build_table("instances", load_frame(results.folder))
    cost, gap = table.rows[0].cells[3:5]
    assert (rank(cost), rank(gap)) == (0, 0)


def test_a_time_limit_in_processor_time_is_said_under_the_table(results: Results) -> None:
    cell = make_cell(0, "hgs", "cvrp100", notes=["the time limit of 2 s counts processor time"])
    results.run("r1", (cell, make_records(cell, [11.0], [10.0])))
    notes = [note.text for note in build_table("main", load_frame(results.folder)).notes]
    assert "hgs: the time limit of 2 s counts processor time" in notes


def test_a_single_row_has_no_winner(results: Results) -> None:
    assert rank(row(table_of(results, ("a", [11.0])), "a")["tsp100/gap"]) == 0


def test_a_cell_with_failures_is_marked_and_cannot_win(results: Results) -> None:
    table = table_of(results, ("a", [10.0, "infeasible"]), ("b", [11.0, 11.0]), ("c", [12.0, 12.0]))
    cell = row(table, "a")["tsp100/gap"]
    assert isinstance(cell, Number)
    assert (cell.rank, cell.marks) == (0, ("†",))
    assert rank(row(table, "b")["tsp100/gap"]) == 1
    assert table.notes[0].text.startswith("1 of 2 instances failed (1 infeasible)")


@pytest.mark.parametrize(
    ("statuses", "word"),
    [(["oom", "oom"], "OOM"), (["timeout", "timeout"], "timeout"), (["oom", "failed"], "failed")],
)
def test_nothing_solved_prints_the_reason(results: Results, statuses: list[Any], word: str) -> None:
    table = table_of(results, ("a", statuses), ("b", [11.0, 12.0]))
    assert row(table, "a")["tsp100/gap"] == Text(word)


def test_fewer_instances_than_others_are_marked_and_cannot_win(results: Results) -> None:
    table = table_of(results, ("a", [10.0]), ("b", [11.0, 11.0]), ("c", [12.0, 12.0]))
    cell = row(table, "a")["tsp100/gap"]
    assert isinstance(cell, Number)
    assert cell.rank == 0
    assert cell.marks
    assert "1 of 2 instances run" in table.notes[0].text


def test_a_run_that_was_stopped_cannot_win(results: Results) -> None:
    """It has the instances that all have, the first two, but was asked for three."""
    cells = [make_cell(i, solver, "tsp100", asked=(0, 3 - i)) for i, solver in enumerate("ab")]
    parts = zip(cells, ([10.0, 10.0], [11.0, 11.0]), strict=True)
    results.run("r1", *((cell, make_records(cell, costs, [10.0] * 2)) for cell, costs in parts))
    cell = row(build_table("main", load_frame(results.folder)), "a")["tsp100/gap"]
    assert (rank(cell), cell.marks) == (0, ("†",))


@pytest.mark.parametrize(("name", "column"), [("main", "tsp100/time"), ("times", "tsp100/total")])
def test_the_time_of_fewer_instances_than_the_header_says_is_marked(
    results: Results, name: str, column: str
) -> None:
    table = table_of(results, ("a", [10.0]), ("b", [11.0, 11.0]), name=name)
    assert row(table, "a")[column].marks == (table.notes[0].mark,)
    assert "1 of 2 instances run" in table.notes[0].text
    assert row(table, "b")[column].marks == ()


def test_a_missing_run_is_a_dash(results: Results) -> None:
    a, b = make_cell(0, "a", "tsp100"), make_cell(1, "b", "tsp1000")
    results.run("r1", (a, make_records(a, [8.0], [8.0])), (b, make_records(b, [8.0], [8.0])))
    table = build_table("main", load_frame(results.folder))
    assert row(table, "a")["tsp1000/gap"] == Text("–")
    assert [c.group for c in table.columns[1::3]] == ["tsp100 (1)", "tsp1000 (1)"]


def test_two_seeds_of_one_solver_are_two_rows(results: Results) -> None:
    one, two = make_cell(0, "a", "tsp100", seed=1), make_cell(1, "a", "tsp100", seed=2)
    results.run("r1", (one, make_records(one, [8.0], [8.0])), (two, make_records(two, [9.0], [8.0])))
    table = build_table("main", load_frame(results.folder))
    assert [r.cells[0] for r in table.rows] == [Text("a (seed 1)"), Text("a (seed 2)")]


def test_weights_per_problem_share_a_row(results: Results) -> None:
    tsp = make_cell(0, "am", "tsp100", config_sha256="x", weights={"name": "am-tsp", "sha256": "1"})
    cvrp = make_cell(
        1, "am", "cvrp100", config_sha256="y", problem="cvrp", weights={"name": "am-cvrp", "sha256": "2"}
    )
    results.run("r1", (tsp, make_records(tsp, [8.0], [8.0])), (cvrp, make_records(cvrp, [9.0], [8.0])))
    table = build_table("main", load_frame(results.folder))
    assert [r.cells[0] for r in table.rows] == [Text("am")]


def test_other_data_under_the_same_name_get_their_own_column(results: Results) -> None:
    one, two = (
        make_cell(0, "a", "tsp100", dataset_sha256="1" * 64),
        make_cell(1, "b", "tsp100", dataset_sha256="2" * 64),
    )
    results.run("r1", (one, make_records(one, [8.0], [8.0])), (two, make_records(two, [9.0], [8.0])))
    groups = {c.group for c in build_table("main", load_frame(results.folder)).columns}
    assert groups == {"", "tsp100 [11111111] (1)", "tsp100 [22222222] (1)"}


def test_records_of_another_scorer_get_their_own_column(results: Results) -> None:
    one, two = (make_cell(i, "a", "tsp100", problem_version=str(i + 1)) for i in range(2))
    results.run("r1", (one, make_records(one, [8.0], [8.0])), (two, make_records(two, [9.0], [8.0])))
    table = build_table("main", load_frame(results.folder))
    assert {c.group for c in table.columns} == {"", "tsp100 [scorer 1] (1)", "tsp100 [scorer 2] (1)"}


def test_caption_names_convention_gap_reference_hardware_seed(results: Results) -> None:
    caption = table_of(results, ("a", [11.0])).caption
    for fact in ("euclidean", "mean over instances", "lkh3", "Test CPU @ 2.0 GHz, 2 cores", "Seed: 1234"):
        assert fact in caption


def test_weights_short_of_the_papers_training_are_named(results: Results) -> None:
    table = table_of(results, ("net", [11.0]), weights={"name": "w", "share_of_paper": 0.0123})
    assert [n.text for n in table.notes] == [
        "net: the weights w have seen 1.23 % of the training samples of the paper."
    ]


def test_gap_of_means_on_request(results: Results) -> None:
    cell = make_cell(0, "a", "tsp100")
    results.run("r1", (cell, make_records(cell, [11.0, 3.0], [10.0, 2.0])))
    table = build_table("main", load_frame(results.folder), gap="gap-of-means")
    value = row(table, "a")["tsp100/gap"]
    assert isinstance(value, Number)
    assert value.value == pytest.approx(100 * 2 / 12)
    assert "100 (mean cost − mean reference) / mean reference" in table.caption


def test_the_interval_stands_beside_its_mean_low_before_high(results: Results) -> None:
    """Gaps of 10 and 30 %: Student's t of one degree of freedom is 12.7062, the standard error is 10."""
    cells = row(table_of(results, ("a", [11.0, 13.0]), name="gaps"), "a")
    values = [cells[f"tsp100/{key}"].value for key in ("gap", "low", "high", "std", "ratio")]  # type: ignore[union-attr]
    assert values == pytest.approx([20.0, 20 - 127.062, 20 + 127.062, 200**0.5, 20.0], rel=1e-5)


@pytest.mark.parametrize(
    ("rule", "values", "decimals"),
    [
        (cost_decimals, [7.76, -99.9], 3),
        (cost_decimals, [7.76, 100.0], 2),
        (cost_decimals, [9999.9], 2),
        (cost_decimals, [10_000.0], 1),
        (gap_decimals, [1.5, 0.0], 3),
        (gap_decimals, [1.5, 5e-4], 4),
        (gap_decimals, [1.5, -5e-4], 4),
        (gap_decimals, [1.5, 1e-6], 3),
    ],
)
def test_decimals_of_a_column_tell_its_numbers_apart(rule: Any, values: list[float], decimals: int) -> None:
    assert rule(values) == decimals


def test_both_gaps_carry_the_daggers_and_what_belongs_to_the_mean_does_not(results: Results) -> None:
    cells = row(table_of(results, ("few", [11.0]), ("all", [10.0, 10.5]), name="gaps"), "few")
    marked = [key for key, value in cells.items() if isinstance(value, Number | Text) and value.marks]
    assert marked == ["tsp100/gap", "tsp100/ratio"]


def test_instances_table_has_a_row_per_instance(results: Results) -> None:
    table = table_of(results, ("a", [11.0, "oom"]), ("b", [10.0, 10.5]), name="instances")
    first = row(table, "tsp100-0")
    assert [c.text for c in first.values()] == ["tsp100-0", "100", "10", "11", "10.000", "10.000", "0.000"]
    assert rank(first["b/gap"]) == 1
    assert row(table, "tsp100-1")["a/cost"] == Text("OOM")


def test_instances_of_several_datasets_say_which_dataset_they_are_of(results: Results) -> None:
    cells = [make_cell(i, "a", f"tsp{n}") for i, n in enumerate((50, 100))]
    results.run("r1", *((c, make_records(c, [11.0], [10.0], names=["0"])) for c in cells))
    table = build_table("instances", load_frame(results.folder))
    assert [c.header for c in table.columns[:2]] == ["Dataset", "Instance"]
    assert [(r.cells[0].text, r.cells[1].text) for r in table.rows] == [("tsp50", "0"), ("tsp100", "0")]


def test_unknown_table_suggests_a_name(results: Results) -> None:
    cell = make_cell(0, "a", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0], [8.0])))
    with pytest.raises(UnknownNameError, match="'main'"):
        build_table("mian", load_frame(results.folder))


@pytest.mark.parametrize(
    ("value", "decimals"),
    [(0.0, 0), (123.4, 0), (99.96, 0), (12.34, 1), (9.996, 1), (1.234, 2), (0.01234, 4), (1e-9, 6)],
)
def test_three_significant_digits(value: float, decimals: int) -> None:
    assert significant_decimals(value) == decimals


def test_rounding_to_zero_prints_no_minus_sign() -> None:
    assert Number(-0.0001, 3).text == "0.000"


def test_csv_holds_unrounded_numbers_and_the_notes(results: Results) -> None:
    table = table_of(results, ("a", [11.0, "oom"]), ("b,c", [10.0, 10.1234567]))
    rows = {r["Method"]: r for r in csv.DictReader(io.StringIO(render_csv.render(table)))}
    assert float(rows["b,c"]["tsp100 (2) Length"]) == 10.06172835
    assert "1 of 2 instances failed" in rows["a"]["Notes"]


def test_json_holds_unrounded_numbers_words_and_null(results: Results) -> None:
    table = table_of(results, ("a", ["oom"]), ("b", [10.1234567]))
    [entry] = render_json.document([table])["tables"]
    by_name = {r["method"]: r for r in entry["rows"]}
    assert by_name["b"]["tsp100/cost"] == 10.1234567
    assert by_name["a"]["tsp100/gap"] == "OOM"
    assert by_name["a"]["tsp100/time"] is None
    assert entry["cells"][1]["mean_cost"] == 10.1234567


def test_markdown_escapes_names_and_marks_ranks(results: Results) -> None:
    text = render_markdown.render(table_of(results, ("my_*solver*|x", [11.0]), ("b", [12.0])))
    assert r"| my\_\*solver\*\|x | **11.000** | **10.000%** |" in text
    assert "<u>20.000%</u>" in text


def test_a_label_says_of_what_a_table_is(results: Results) -> None:
    """It was tab:main of all tables, twice in a paper with two."""
    cells = [make_cell(i, "a", name) for i, name in enumerate(("tsp100:count=16", "sets/my_set.npz"))]
    results.run("r1", *((c, make_records(c, [8.0], [8.0])) for c in cells))
    frame = load_frame(results.folder)

    def label(name: str, frame: ResultFrame) -> str:
        return render_latex.render(build_table(name, frame)).partition(r"\label{")[2].partition("}")[0]

    assert label("main", frame.select(datasets=["tsp100*"])) == "tab:main-tsp100-count-16"
    assert label("gaps", frame) == "tab:gaps-my-set-npz-tsp100-count-16"
    many = [make_cell(i, "a", f"tsp{i}", problem="tsp") for i in range(2, 6)]
    results.run("r2", *((c, make_records(c, [8.0], [8.0])) for c in many))
    assert label("times", load_frame(results.folder)) == "tab:times-tsp"


def test_instances_without_a_solution_are_not_said_to_have_crashed(results: Results) -> None:
    """A solver that refuses an instance answers, too."""
    text = table_of(results, ("a", [11.0, "failed", "oom"]), ("b", [12.0] * 3)).notes[0].text
    assert text.startswith("2 of 3 instances failed (1 without a solution, 1 out of memory)")


def test_terminal_table_too_wide_is_cut_between_datasets(results: Results) -> None:
    cells = [make_cell(i, "a", f"tsp{100 * (i + 1)}") for i in range(4)]
    results.run("r1", *((c, make_records(c, [8.0], [8.0])) for c in cells))
    text = render_terminal.render(build_table("main", load_frame(results.folder)), width=80)
    assert max(map(len, text.splitlines())) <= 80
    for i in range(4):
        assert f"tsp{100 * (i + 1)} (1)" in text


def scored(results: Results) -> None:
    """Load rates in percent, where higher is better: 75 against 80 is a gap of 6.25 % and not of -6.25 %."""
    facts = {"problem": "bpp3d", "objective": "max", "convention": "load-rate"}
    cells = [
        (make_cell(i, s, "bpp3d20", **facts), [cost])
        for i, (s, cost) in enumerate([("a", 75.0), ("b", 79.0)])
    ]
    results.run("packings", *((c, make_records(c, costs, [80.0], n=20)) for c, costs in cells))


def test_a_load_rate_has_its_name_and_unit_and_the_highest_is_best(results: Results) -> None:
    scored(results)
    table = build_table("main", load_frame(results.folder))
    assert [c.title for c in table.columns[1:3]] == ["Load rate (%)", "Gap"]
    first, second = (row.cells for row in table.rows)
    rates = [cells[1] for cells in (first, second)]
    assert [rate.rank for rate in rates if isinstance(rate, Number)] == [2, 1]
    assert (first[2].text, second[2].text) == ("6.250", "1.250")
    assert (
        "Gap: mean over instances of 100 (reference − score) / reference (higher is better" in table.caption
    )
    assert "(cost − reference)" not in table.caption


def test_a_caption_of_both_objectives_says_where_higher_is_better(results: Results) -> None:
    scored(results)
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("tours", (cell, make_records(cell, [8.0], [7.5])))
    frame = load_frame(results.folder)
    caption = build_table("main", frame).caption
    assert "100 (cost − reference) / reference; where higher is better (bpp3d20)" in caption
    assert "100 (reference − score) / reference, so that a positive gap is worse everywhere" in caption
    ratio = build_table("main", frame, gap="gap-of-means").caption
    assert "where higher is better (bpp3d20) 100 (mean reference − mean score) / mean reference" in ratio
    assert (
        "A positive gap is worse than the reference, also where higher" in build_table("gaps", frame).caption
    )
    assert "Cost or score" in {c.header for c in build_table("instances", frame).columns}


def test_a_cut_table_leaves_out_rows_that_are_empty_on_a_page(results: Results) -> None:
    for name, solvers in (("tsp100", ("a", "lkh3")), ("tsp200", ("b", "lkh3"))):
        cells = [make_cell(index, solver, name) for index, solver in enumerate(solvers)]
        results.run(name, *((cell, make_records(cell, [8.0], [7.5])) for cell in cells))
    table = build_table("main", load_frame(results.folder))
    first, second = render_terminal.render(table, 40).split("\n\n")[:2]
    assert [line.split()[0] for line in first.splitlines()[-2:]] == ["a", "lkh3"]
    assert [line.split()[0] for line in second.splitlines()[-2:]] == ["b", "lkh3"]
    whole = render_terminal.render(table, 120).split("\n\n")[0]
    assert [line.split()[0] for line in whole.splitlines()[-3:]] == ["a", "b", "lkh3"]
    empty = replace(
        table, rows=(*table.rows, Row((Text("c"), *[DASH] * (len(table.columns) - 1)), "classical"))
    )
    first, second = render_terminal.render(empty, 40).split("\n\n")[:2]
    assert "\nc " in first
    assert "\nc " not in second  # it stood on every page


def test_classical_rows_stand_above_neural_ones_under_named_rules(results: Results) -> None:
    """LKH3 is a metaheuristic, random insertion a heuristic, Concorde exact: all classical, the proof first."""
    kinds = {"net": "neural", "lkh3": "metaheuristic", "random-insertion": "heuristic", "concorde": "exact"}
    cells = [make_cell(index, name, "tsp100", kind=kind) for index, (name, kind) in enumerate(kinds.items())]
    results.run("r", *((cell, make_records(cell, [8.0], [7.0])) for cell in cells))
    table = build_table("main", load_frame(results.folder))
    names = [row.cells[0].text for row in table.rows]
    assert names == ["concorde", "lkh3", "random-insertion", "net"]
    text = render_terminal.render(table)
    assert (
        text.index("── classical ─") < text.index("concorde") < text.index("── neural ─") < text.index("net")
    )


def test_a_mark_stands_in_brackets_apart_from_its_number(results: Results) -> None:
    cell = make_cell(0, "net", "tsp100")
    table = table_of(results, ("net", [8.0, "failed"]))
    text = render_terminal.render(table)
    assert "8.000 [†]" in text
    assert "\n[†] 1 of 2 instances failed" in text
    assert cell.label in text


def test_a_column_of_times_has_one_precision(results: Results) -> None:
    """The smallest number shows a digit, the largest three."""
    parts = []
    for index, seconds in enumerate((3.14159, 0.00118, 12.0)):
        cell = make_cell(index, f"s{index}", "tsp100")
        parts.append((cell, make_records(cell, [8.0], [7.0], seconds=seconds)))
    results.run("r", *parts)
    table = build_table("main", load_frame(results.folder))
    assert [row.cells[-1].text for row in table.rows] == ["3.142", "0.001", "12.000"]
