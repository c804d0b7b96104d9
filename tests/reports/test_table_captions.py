"""What stands below a table: the short caption, and what it says where gaps or references lack."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from run_folders import Results, make_cell, make_records

from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.render import terminal as render_terminal
from nco_bench.reports.tables.table import build_table


def test_the_terminal_has_a_short_caption_and_the_whole_one_on_request(results: Results) -> None:
    parts = [(make_cell(index, name, "tsp100"), cost) for index, name, cost in ((0, "a", 8.0), (1, "b", 9.0))]
    results.run("r1", *((cell, make_records(cell, [cost], [10.0])) for cell, cost in parts))
    table = build_table("main", load_frame(results.folder))
    assert "Hardware" in table.caption
    assert "Hardware" not in table.brief
    assert "to lkh3" in table.brief
    assert len(table.brief) < 120

    def printed(*, notes: bool, terminal: bool) -> str:
        console = Console(
            width=200,
            file=io.StringIO(),
            force_terminal=terminal,
            color_system="standard" if terminal else None,
        )
        render_terminal.show(table, console, notes=notes)
        return console.file.getvalue()  # type: ignore[attr-defined]

    assert table.brief in printed(notes=False, terminal=True)
    for terminal in (True, False):
        assert "Hardware: Test CPU" in printed(notes=True, terminal=terminal)
        # Without styles nothing is bold.
        assert all(("Best in bold" in printed(notes=n, terminal=terminal)) == terminal for n in (True, False))


@pytest.mark.parametrize(
    ("name", "timed"), [("main", True), ("times", True), ("gaps", False), ("instances", False)]
)
def test_only_a_table_with_times_says_what_they_are_of(results: Results, name: str, timed: bool) -> None:
    cell = make_cell(0, "a", "tsp100")
    results.run("r", (cell, make_records(cell, [8.0], [7.0])))
    table = build_table(name, load_frame(results.folder))
    assert ("Time in seconds" in table.caption) == timed
    assert ("Time:" in (table.brief or "Time:" * timed)) == timed


def test_a_set_without_references_is_told_what_makes_them(results: Results) -> None:
    """A column of dashes names the command that fills it; a set with a reference needs none."""
    bare, known = make_cell(0, "a", "tsp20"), make_cell(1, "a", "tsp100")
    results.run("r", (bare, make_records(bare, [8.0], [None])), (known, make_records(known, [8.0], [7.0])))
    frame = load_frame(results.folder)
    command = "nco-bench reference tsp20 --solver lkh3"
    assert command in build_table("main", frame).brief
    assert "reference tsp100 " not in build_table("main", frame).brief
    assert command not in build_table("main", frame.select(datasets=["tsp100"])).brief


def test_a_set_that_no_solver_solved_is_not_said_to_lack_references(results: Results) -> None:
    broken, bare = make_cell(0, "a", "tsp20"), make_cell(1, "a", "tsp50")
    parts = [(broken, make_records(broken, ["failed", "timeout"], [7.0, 7.0]))]
    results.run("r", *parts, (bare, make_records(bare, [8.0, "failed"], [None, None])))
    frame = load_frame(results.folder)
    both = build_table("main", frame).brief
    assert "Gap: tsp50 has no references" in both
    assert "Gap: every solve on tsp20 failed." in both
    assert "reference" not in build_table("main", frame.select(datasets=["tsp20"])).brief


def test_references_of_some_instances_are_not_none(results: Results) -> None:
    cell = make_cell(0, "a", "tsp20")
    results.run("r", (cell, make_records(cell, ["failed", 8.0], [7.0, None])))
    assert (
        "tsp20 has no references for what was solved; "
        in build_table("main", load_frame(results.folder)).brief
    )


@pytest.mark.parametrize(
    ("dataset", "source", "named"),
    [
        ("mine", "data/my set.tsp", "'data/my set.tsp'"),  # a set is called after its file
        ("T20", "tsp20", "tsp20"),  # an alias
        ("tsp20:count=2", "tsp20", "tsp20:count=2"),  # a part of what was run
        ("tsp-A", "a.npz", "a.npz"),
    ],
)
def test_what_makes_references_is_told_the_name_that_commands_take(
    results: Results, dataset: str, source: str, named: str
) -> None:
    cell = make_cell(0, "a", dataset, source=source)
    results.run("r", (cell, make_records(cell, [8.0], [None])))
    command = f"Gap: {dataset} has no references; nco-bench reference {named} --solver lkh3 makes them."
    assert command in build_table("main", load_frame(results.folder)).brief


@pytest.mark.parametrize(
    ("dataset", "asked", "told"),
    [
        ("tsp20", (2, 5), "tsp20 --limit 3-5"),
        ("tsp20", (0, 5), "tsp20 --limit 5"),
        ("tsp20", (0, 10_000), "tsp20"),
        ("tsp20:count=5", (0, 5), "tsp20:count=5"),
        ("mine", (0, 5), "mine.npz --limit 5"),  # how many a file holds, the record does not say
    ],
)
def test_what_makes_references_solves_no_more_than_was_run(
    results: Results, dataset: str, asked: tuple[int, int], told: str
) -> None:
    cell = make_cell(0, "a", dataset, source="mine.npz", asked=asked)
    results.run("r", (cell, make_records(cell, [8.0], [None], first=asked[0])))
    assert (
        f"; nco-bench reference {told} --solver lkh3 makes them."
        in build_table("main", load_frame(results.folder)).brief
    )


def test_a_file_of_one_instance_needs_no_limit(results: Results) -> None:
    origin = {"generator": "file", "params": {"format": "cvrplib"}}
    cell = make_cell(0, "a", "mine", source="mine.vrp", asked=(0, 1), origin=origin)
    results.run("r", (cell, make_records(cell, [8.0], [None])))
    told = build_table("main", load_frame(results.folder)).brief
    assert "nco-bench reference mine.vrp --solver lkh3 makes them." in told
