"""Sets that share no methods stand in tables of their own where people read them, in one where programs do."""

from __future__ import annotations

import csv
import io

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.html.tables import notebook_html, table_html
from nco_bench.reports.render import csv as render_csv
from nco_bench.reports.render import markdown, terminal
from nco_bench.reports.tables.parts import parts_of
from nco_bench.reports.tables.table import Column, Number, Row, Table, Text, build_table

PROBLEMS = {"tsp20": "tsp", "tsp50": "tsp", "cvrp20": "cvrp", "sort": "sort", "max": "max"}


def table_of(results: Results, **methods: str) -> Table:
    """A main table of sets, each with its methods, a letter each."""
    runs = [(name, solver) for name, solvers in methods.items() for solver in solvers]
    parts = []
    for index, (name, solver) in enumerate(runs):
        cell = make_cell(index, solver, name, problem=PROBLEMS[name])
        parts.append((cell, make_records(cell, [11.0 + index], [10.0])))
    results.run("r1", *parts)
    return build_table("main", load_frame(results.folder))


def sets_of(part: Table) -> tuple[str, ...]:
    return tuple(dict.fromkeys(column.group.split()[0] for column in part.columns if column.group))


@pytest.mark.parametrize(
    ("methods", "expected"),
    [
        ({"tsp20": "ab", "tsp50": "ab"}, [("tsp20", "tsp50")]),
        ({"tsp20": "ab", "tsp50": "bc"}, [("tsp20", "tsp50")]),  # b stands in both
        ({"tsp20": "ab", "tsp50": "cd"}, [("tsp20",), ("tsp50",)]),
        ({"tsp20": "ab", "cvrp20": "bc"}, [("cvrp20",), ("tsp20",)]),
        (
            {"tsp20": "ab", "cvrp20": "ab"},
            [("cvrp20", "tsp20")],
        ),  # as papers print one model on both problems
        ({"sort": "ab", "max": "a", "tsp20": "c"}, [("max", "sort"), ("tsp20",)]),  # tasks are one family
    ],
)
def test_what_shares_methods_stays_together(
    results: Results, methods: dict[str, str], expected: list[tuple[str, ...]]
) -> None:
    assert [sets_of(part) for part in parts_of(table_of(results, **methods))] == expected


def test_a_part_has_the_rows_that_say_something_and_all_cells_are_in_one(results: Results) -> None:
    table = table_of(results, tsp20="ab", cvrp20="bc")
    parts = parts_of(table)
    assert [[row.cells[0].text for row in part.rows] for part in parts] == [["b", "c"], ["a", "b"]]
    found = {(c.key, row.cells[0].text): cell for part in parts for row in part.rows
             for c, cell in zip(part.columns, row.cells, strict=True)}  # fmt: skip
    whole = {(c.key, row.cells[0].text): cell for row in table.rows
             for c, cell in zip(table.columns, row.cells, strict=True)}  # fmt: skip
    assert {key: cell for key, cell in whole.items() if cell.text != "–"} == found


def test_sets_without_references_show_nobody_elses_methods(results: Results) -> None:
    sets = {"tsp20": ("a", None), "cvrp20": ("b", None), "sort": ("c", 10.0), "max": ("c", 10.0)}
    runs = []
    for index, (name, (solver, reference)) in enumerate(sets.items()):
        cell = make_cell(index, solver, name, problem=PROBLEMS[name])
        runs.append((cell, make_records(cell, [11.0 + index], [reference])))
    results.run("r1", *runs)
    table = build_table("gaps", load_frame(results.folder))
    (whole,) = parts_of(table)
    assert [row.cells[0].text for row in whole.rows] == ["a", "b", "c"]
    page = terminal.render(table, width=80).split("\n\n")[0].splitlines()  # of cvrp20 alone, or with tsp20
    assert [line[0] for line in page if line[:1] in ("a", "b", "c")] == ["a", "b", "c"]


def test_readers_get_the_parts_and_programs_the_whole(results: Results) -> None:
    table = table_of(results, tsp20="ab", cvrp20="bc")
    text = terminal.render(table, width=200)
    assert text.count("Method") == 2
    assert "–" not in text
    page = table_html(table)
    assert [f'id="{one}"' in page for one in ("table-main", "table-main-2", "caption-main")] == [True] * 3
    assert page.count(table.caption) == 1
    assert (notebook_html(table).count("<table"), notebook_html(table).count(table.caption)) == (2, 1)
    header, *rows = csv.reader(io.StringIO(render_csv.render(table)))
    assert (len(header), len(rows)) == (1 + 2 * 3 + 1, 3)


def test_markdown_has_a_table_for_each_part_and_of_many_columns_several_with_the_names_of_rows(
    results: Results,
) -> None:
    text = markdown.render(table_of(results, tsp20="ab", cvrp20="bc"))
    assert [block.count("\n| ") for block in text.split("\n\n")[:2]] == [3, 3]
    columns = (
        Column("name", "Method"),
        *(Column(f"{g}{i}", f"h{i}", group=f"g{g}") for g in range(8) for i in range(3)),
    )
    cells = (Text("ours"), *(Number(float(i), 1) for i in range(24)))
    first, second, rest = markdown.render(Table("t", "c", columns, (Row(cells),))).split("\n\n", 2)
    assert [line.count(" |") for line in first.splitlines()] == [19, 19, 19]
    assert second.splitlines()[0].startswith("| Method | g6 h0 |")
    assert second.splitlines()[2] == "| ours | 18.0 | 19.0 | 20.0 | 21.0 | 22.0 | 23.0 |"
    assert rest == "\n*c*\n"
