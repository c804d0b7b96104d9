"""The paper's layout of a reproduced table: its rows and columns, ours beside, the rest left out and said."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nco_bench.datasets.load import Places
from nco_bench.errors import UnknownNameError
from nco_bench.papers.entries import Reproduction
from nco_bench.papers.judging import STATUSES, Verdict
from nco_bench.papers.layout import LAYOUTS, STATUS_MARKS, laid_out, readable
from nco_bench.papers.published import load_table
from nco_bench.papers.reproducing import reproduce, tables_of
from nco_bench.papers.running import Runner
from nco_bench.papers.tables import printed_number
from nco_bench.papers.writing import render
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.render import markdown as render_markdown
from nco_bench.reports.render import terminal as render_terminal
from nco_bench.reports.tables.table import Number, Text
from nco_bench.runs.display import QuietDisplay

REPOSITORY = Path(__file__).resolve().parents[2]


def reproduced(paper: str, number: str, results: Path, limit: int) -> Reproduction:
    runner = Runner(results, Places(REPOSITORY / "instances"), QuietDisplay(), limit)
    (done,) = reproduce(tables_of(paper, number), "smoke", runner)
    return done


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layout") / "runs"


@pytest.fixture(scope="module")
def insertion(runs: Path) -> Reproduction:
    """SIT's first table with what runs in a second: random insertion, two instances of each size, and HGS on one."""
    pytest.importorskip("random_insertion")
    done = reproduced("sit", "1", runs, 2)
    assert sum(e.value is not None for e in done.entries) >= 8
    return done


def test_only_rows_and_columns_with_a_number_of_ours_are_shown_and_the_rest_is_counted(
    insertion: Reproduction,
) -> None:
    table = laid_out(insertion, "paper")
    assert "Random Insertion" in [row.cells[0].text for row in table.rows]
    assert "POMO" not in " ".join(row.cells[0].text for row in table.rows)
    assert {c.group for c in table.columns} >= {"TSP1K Obj.", "TSP5K Obj."}
    assert "TSP100K Obj." not in {c.group for c in table.columns}
    shown, total = len(table.rows), len({e.cell.row for e in insertion.entries})
    assert f"{total - shown} of {total} rows" in table.caption  # another reading of a row counts as one


def test_a_printed_bound_stays_one() -> None:
    """SIT prints <1s, which stood as 1 s above ours."""
    cell = load_table("sit", 1).cell("Random Insertion", "TSP1K | Time")
    assert printed_number(cell) == Text("<1 s")


def test_a_cell_holds_the_printed_number_ours_with_its_letter_and_the_interval(
    insertion: Reproduction,
) -> None:
    entry = next(
        e for e in insertion.entries if (e.cell.row, e.cell.column) == ("Random Insertion", "TSP1K | Obj.")
    )
    text = render_markdown.render(laid_out(insertion, "paper"))
    (row,) = [line for line in text.splitlines() if line.startswith("| Random Insertion")]
    assert entry.value is not None
    assert entry.low is not None
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[2] == "26.11"  # SIT prints it
    assert cells[3].startswith(f"{entry.value:.2f}")
    assert cells[4].startswith(rf"\[{entry.low:.2f}, ")


def test_a_number_that_is_not_comparable_or_over_fewer_instances_is_never_bold(
    insertion: Reproduction,
) -> None:
    """Two instances by random insertion, one by HGS in the same column; all times are of other hardware."""
    table = laid_out(insertion, "paper")
    reasons = {note.mark: note.text for note in table.notes}
    ours = [cell for row in table.rows for cell in row.cells if isinstance(cell, Number) and cell.marks]
    assert any(reasons[cell.marks[0]].startswith("not comparable") for cell in ours)
    for cell in ours:
        if reasons[cell.marks[0]].startswith("not comparable"):
            assert not cell.compete
            assert cell.rank == 0


def test_the_same_records_give_the_same_latex(insertion: Reproduction, runs: Path) -> None:
    assert render("latex", reproduced("sit", "1", runs, 2)) == render("latex", insertion)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
def test_it_compiles_without_overfull_lines(insertion: Reproduction, tmp_path: Path) -> None:
    (tmp_path / "t.tex").write_text(render_latex.render(laid_out(insertion, "paper"), document=True))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout


def test_a_table_without_any_number_of_ours_is_the_list_of_reasons(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = reproduced("sit", "10", tmp_path / "runs", 1)
    assert "weights missing" in render("latex", done)


def test_an_unknown_layout_names_the_known_ones(insertion: Reproduction) -> None:
    with pytest.raises(UnknownNameError, match="list, paper"):
        laid_out(insertion, "wide")


def test_compact_puts_the_printed_numbers_over_ours_and_sums_up_what_was_not_run(
    insertion: Reproduction,
) -> None:
    table = laid_out(insertion, "compact")
    names = [row.cells[0].text for row in table.rows]
    at = names.index("Random Insertion")
    column = [c.key for c in table.columns].index("TSP1K | Obj.")
    assert (table.columns[column].group, table.columns[column].header) == ("TSP1K", "Obj.")
    printed, ours = (table.rows[at + k].cells[column] for k in (0, 1))
    entry = next(
        e for e in insertion.entries if (e.cell.row, e.cell.column) == ("Random Insertion", "TSP1K | Obj.")
    )
    assert names[at + 1] == "  ours"
    assert isinstance(printed, Number)
    assert isinstance(ours, Number)
    assert (printed.text, ours.value) == ("26.11", entry.value)  # SIT prints 26.11
    assert ours.marks == (STATUS_MARKS[entry.verdict.status],)
    legend, missing = (note.text for note in table.notes)
    assert f"[{ours.marks[0]}] {entry.verdict.status}" in legend
    counted = sum(
        int(number) for number in re.findall(r"(\d+) (?:weights missing|not run|no result|no code)", missing)
    )
    assert counted == sum(e.value is None for e in insertion.entries)
    assert "POMO" in missing


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_bears_tables_of_settings(layout: str, tmp_path: Path) -> None:
    """EIE's printed settings are compared without any run; its statuses stand in no table of numbers."""
    done = reproduced("eie", "settings", tmp_path / "runs", 1)
    assert {e.verdict.status for e in done.entries} == {"setting matches", "setting differs"}
    text = render_markdown.render(laid_out(done, layout))
    assert "setting differs" in text
    assert readable(done) == "list"
    lines = render_terminal.render(laid_out(done, "list")).splitlines()
    assert not any(line.startswith("── ") for line in lines)  # the row says its own name


def test_what_has_a_number_of_ours_has_a_mark_in_the_compact_layout() -> None:
    assert set(STATUS_MARKS) == set(STATUSES) - {
        "weights missing",
        "not run",
        "no result",
        "no code",
        "too long",
    }


def test_ours_have_one_precision_a_column(insertion: Reproduction) -> None:
    table = laid_out(insertion, "compact")
    for index in range(1, len(table.columns)):
        ours = [row.cells[index] for row in table.rows if row.cells[0].text == "  ours"]
        assert len({cell.decimals for cell in ours if isinstance(cell, Number)}) <= 1


@pytest.mark.parametrize(("instances", "bold"), [(1, False), (2, True)])
def test_a_cell_of_one_instance_is_not_bold(insertion: Reproduction, instances: int, bold: bool) -> None:
    measured = [e for e in insertion.entries if e.measured is not None and e.preset.metric == "cost"]
    entries = tuple(
        replace(e, measured=replace(e.measured, instances=instances), verdict=Verdict("other weights", ""))
        for e in measured
        if e.measured is not None
    )
    table = laid_out(replace(insertion, entries=entries), "paper")
    numbers = [cell for row in table.rows for cell in row.cells[2::3] if isinstance(cell, Number)]
    assert {number.compete for number in numbers} == {bold}
