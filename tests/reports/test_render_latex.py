"""LaTeX: byte-stable, escaped, and it compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.render import latex as render_latex
from nco_bench.reports.tables.table import DASH, PRESETS, Column, Note, Number, Row, Table, Text, build_table

GOLDEN = Path(__file__).parent / "golden" / "main.tex"


def awkward(results: Results) -> None:
    """Failures, OOM, a missing run, a tie for best, names that LaTeX would choke on."""
    references, large = [7.5, 8.0, 7.8, 7.9], [23.0, 23.5]
    weights = {"name": "w", "sha256": "ab" * 32, "training_size": 100, "training_distribution": "uniform"}
    neural = {"kind": "neural", "weights": weights}
    cells = [
        (make_cell(0, "lkh3", "tsp100"), references, references, 100),
        (make_cell(1, "tie_for_best", "tsp100"), references, references, 100),
        (
            make_cell(2, "my_solver#1 & 50%", "tsp100", decoding="{x}^2~$"),
            [8.1, 8.5, 8.4, 8.6],
            references,
            100,
        ),
        (
            make_cell(3, "net", "tsp100", decoding="greedy", **neural),
            [7.6, 8.2, "infeasible", 8.0],
            references,
            100,
        ),
        (make_cell(4, "lkh3", "tsp1000"), large, large, 1000),
        (make_cell(5, "net", "tsp1000", decoding="greedy", **neural), ["oom", "oom"], large, 1000),
    ]
    results.run("r1", *((c, make_records(c, costs, refs, n=n)) for c, costs, refs, n in cells))


def answered(results: Results) -> None:
    """A task whose answers were counted, for a baseline and for a network of two seeds; a second one with numbers."""
    facts = {"problem": "algorithmic", "objective": "max", "convention": "accuracy", "reference_solver": None}
    trained = {"steps": 10, "training_size": 8, "training_distribution": "id"}
    seeds = [
        {"label": f"tropical:weights={w}", "kind": "neural", "weights": {"name": w, "sha256": w, **trained}}
        for w in ("a", "b")
    ]
    for run, more in zip("pqr", ({}, *seeds), strict=True):
        name = "tropical" if more else "all_positive"
        cell = make_cell(0, name, "knapsack:length-ood:n=16", config_sha256=run, **facts, **more)
        records = make_records(cell, [0.5, 0.75], [None, None], n=16)
        for index, record in enumerate(records):
            record.counts = {"tp": 4 + index, "fp": 4, "fn": ord(run) - ord("p"), "tn": 4}
        other = make_cell(
            1, name, "floyd-warshall:n=8", config_sha256=run, **{**facts, **more, "objective": "min"}
        )
        squares = make_records(other, [0.01, 0.02], [None, None], n=8)
        for record in squares:
            record.counts = {"squared_error": 0.25, "tokens": 64}
        results.run(f"tasks-{run}", (cell, records), (other, squares))


def test_stable_output_for_stable_input(results: Results) -> None:
    awkward(results)
    text = render_latex.render(build_table("main", load_frame(results.folder)))
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("raw", "escaped"),
    [
        ("a_b", r"a\_b"),
        ("50 % & more #1", r"50 \% \& more \#1"),
        (r"\input{x}", r"\textbackslash{}input\{x\}"),
        ("cost − reference", "cost $-$ reference"),
        ("Große Tour", "Große Tour"),
        ("旅行", "??"),
        ("λ=0.5", r"$\lambda$=0.5"),  # a question mark would make it π=0.5's row
        ("line\nbreak", "line break"),
    ],
)
def test_special_characters_are_escaped(raw: str, escaped: str) -> None:
    assert render_latex.escape(raw) == escaped


def test_negative_numbers_get_a_minus_sign() -> None:
    table = Table("t", "c", (Column("a", "A"), Column("b", "B")), (Row((Text("x"), Number(-1.5, 1))),))
    assert "x & $-$1.5 \\\\" in render_latex.render(table)


@pytest.mark.parametrize("name", ["[1] ours", "*ours"])
def test_a_name_is_no_option_of_what_ends_the_line_before(name: str) -> None:
    rows = (Row((Text("x"), Number(1.0, 1))), Row((Text(name), Number(2.0, 1))))
    lines = render_latex.render(Table("t", "c", (Column("a", "A"), Column("b", "B")), rows)).splitlines()
    assert lines[lines.index("x & 1.0 \\\\") + 1] == f"{{}}{name} & 2.0 \\\\"


def test_a_unit_of_letters_stands_apart_from_its_number() -> None:
    row = Row((Text("x"), Number(9.65, 2, " MB"), Number(12.5, 1, "%")))
    table = Table("t", "c", (Column("a", "A"), Column("b", "B"), Column("c", "C")), (row,))
    assert r"x & 9.65\,MB & 12.5\% \\" in render_latex.render(table)


def test_columns_of_words_are_left_aligned_and_numbers_right() -> None:
    columns = (
        Column("a", "A"),
        Column("b", "B"),
        Column("c", "Words"),
        Column("d", "D", "group"),
        Column("e", "E"),
    )
    rows = (Row((Text("x"), Number(1, 0), Text("differs"), Text("OOM"), DASH)),)
    assert r"\begin{tabular}{lrlrr}" in render_latex.render(Table("t", "c", columns, rows))


def compiled(text: str, folder: Path) -> str:
    """Return what pdflatex prints of a document, which it must take; skip where there is no pdflatex."""
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex; apt-get install texlive-latex-base texlive-latex-recommended")
    (folder / "table.tex").write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", PRESETS)
def test_document_compiles_without_overfull_lines(results: Results, tmp_path: Path, name: str) -> None:
    awkward(results)
    answered(results)
    table = build_table(name, load_frame(results.folder))
    printed = compiled(render_latex.render(table, document=True), tmp_path)
    assert "Overfull" not in printed
    assert (tmp_path / "table.pdf").stat().st_size > 1000


def test_a_long_table_breaks_between_pages(tmp_path: Path) -> None:
    columns = (Column("a", "Instance"), Column("b", "Gap", "lkh3", "%"))
    rows = tuple(Row((Text(f"instance_{i}"), Number(i / 10, 3))) for i in range(150))
    text = render_latex.render(Table("instances", "Long.", columns, rows, (Note("†", "n"),)), document=True)
    printed = compiled(text, tmp_path)
    assert "Overfull" not in printed
    assert "(3 pages" in printed


def test_every_escaped_character_compiles(tmp_path: Path) -> None:
    everything = " ".join(render_latex.ESCAPES) + " ÀÿñŁőŠ旅"
    table = Table(
        "all_chars",
        everything,
        (Column("a", everything),),
        (Row((Text(everything),)),),
        (Note("†", everything),),
    )
    compiled(render_latex.render(table, document=True), tmp_path)
    assert "Missing character" not in (tmp_path / "table.log").read_text(encoding="utf-8", errors="replace")


def test_table_of_many_columns_is_cut_between_groups_and_keeps_every_cell() -> None:
    """Eight groups of three and a name: 25 columns become strips of at most 18 beside the name, none cut within a group."""
    columns = (
        Column("name", "Method"),
        *(Column(f"{g}{i}", f"h{i}", group=f"g{g}") for g in range(8) for i in range(3)),
    )
    cells = tuple(Text(f"c{i}") for i in range(24))
    text = render_latex.render(Table("t", "c", columns, (Row((Text("ours"), *cells)),)))
    assert text.count(r"\begin{tabular}") == 2
    assert text.count("ours & ") == 2
    first, second = text.split(r"\end{tabular}")[:2]
    assert [f"c{i} " in first for i in (0, 17, 18)] == [True, True, False]
    assert [f"c{i} " in second for i in (17, 18, 23)] == [False, True, True]
    assert text.count(r"\multicolumn{3}{c}") == 8


def test_a_row_stands_in_the_strips_that_have_numbers_of_it_and_an_empty_one_in_the_first() -> None:
    columns = (
        Column("name", "Method"),
        *(Column(f"{g}{i}", f"h{i}", group=f"g{g}") for g in range(8) for i in range(3)),
    )
    late = Row((Text("late"), *[DASH] * 23, Number(1.0, 3)))
    nowhere = Row((Text("nowhere"), *[DASH] * 24))
    ours = Row((Text("ours"), *(Number(float(i), 3) for i in range(24))))
    text = render_latex.render(Table("t", "c", columns, (late, nowhere, ours)))
    first, second = text.split(r"\end{tabular}")[:2]
    assert [name in first for name in ("late &", "nowhere &", "ours &")] == [False, True, True]
    assert [name in second for name in ("late &", "nowhere &", "ours &")] == [True, False, True]


def test_strips_that_fit_no_page_are_floats_of_their_own(tmp_path: Path) -> None:
    """45 columns and 24 rows: three strips in one float ran 530 pt off the page, notes and all."""
    columns = (
        Column("name", "Method"),
        *(Column(f"{g}{i}", f"h{i}", group=f"g{g}") for g in range(15) for i in range(3)),
    )
    rows = tuple(Row((Text(f"solver {k}"), *(Number(k + i / 10, 3) for i in range(45)))) for k in range(24))
    text = render_latex.render(Table("t", "c " * 600, columns, rows, (Note("†", "last"),)), document=True)
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == text.count(r"\begin{tabular}") == 3
    assert text.count(r"\caption{(continued)}") == 2
    assert text.count(r"\label{") == 1
    printed = compiled(text, tmp_path)
    assert "Float too large" not in printed


def test_many_notes_stand_behind_the_table_where_they_break_between_pages() -> None:
    """Within the float those of a reproduced table ran off the page."""
    table = Table("t", "c", (Column("a", "A"),), (Row((Text("x"),)),), (Note("a", "of the table"),) * 21)
    inside, behind = render_latex.render(table).split(r"\end{table}")
    assert "of the table" not in inside
    assert behind.count("of the table") == 21
    assert r"Notes to Table~\ref{tab:t}:" in behind
