"""Which sets a pattern means, and what an alias may call them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import BadInputError, MissingRecordsError, ResultsError
from nco_bench.reports.frame.aliases import with_aliases
from nco_bench.reports.frame.compare import of_dataset
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.render.json import render as render_json
from nco_bench.reports.tables.table import build_table

SOLVERS = {"pens-a": "greedy", "pens-r": "beam:16", "lkh3": ""}
DATASETS = ("tsp100:count=3", "tsp1000:count=3", "cvrp100:capacity=50:count=3", "tsplib/berlin52")


@pytest.fixture
def frame(tmp_path: Path) -> ResultFrame:
    cells = [
        make_cell(
            i, solver, data, decoding=decoding, problem="cvrp" if data.startswith("cvrp") else "tsp",
            origin={"generator": "tsplib" if "/" in data else "nco-bench", "version": "1"},
        )
        for i, (data, (solver, decoding)) in enumerate((d, s) for d in DATASETS for s in SOLVERS.items())
    ]  # fmt: skip
    parts = [(cell, make_records(cell, [1.0 + cell.cell, 2.0, 3.0], [1.0, 1.0, 1.0])) for cell in cells]
    Results(tmp_path).run("one", *parts)
    return load_frame(tmp_path)


def kept(frame: ResultFrame) -> set[tuple[str, str]]:
    codes = frame.records["group"].unique()
    return {(frame.groups[code].cell.solver, frame.groups[code].cell.dataset) for code in codes}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["tsp*"], {"tsp100:count=3", "tsp1000:count=3", "tsplib/berlin52"}),
        (["tsp100*"], {"tsp100:count=3", "tsp1000:count=3"}),
        (["tsplib/*", "cvrp*"], {"tsplib/berlin52", "cvrp100:capacity=50:count=3"}),
        (["?vrp100*", "tsp100:count=3"], {"cvrp100:capacity=50:count=3", "tsp100:count=3"}),
    ],
)
def test_a_pattern_means_all_sets_that_fit_it(
    frame: ResultFrame, patterns: list[str], expected: set[str]
) -> None:
    assert kept(frame.select(datasets=patterns)) == {(s, d) for s in SOLVERS for d in expected}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["pens-*"], {"pens-a", "pens-r"}),
        (["*beam*", "lkh3"], {"pens-r", "lkh3"}),
        (["pens-a greedy"], {"pens-a"}),
        (["pens"], set()),
    ],
)
def test_a_pattern_means_all_solvers_that_fit_it(
    frame: ResultFrame, patterns: list[str], expected: set[str]
) -> None:
    if not expected:
        with pytest.raises(ResultsError, match="No records of pens on any dataset"):
            frame.select(solvers=patterns)
        return
    assert kept(frame.select(solvers=patterns)) == {(s, d) for s in expected for d in DATASETS}


def test_a_pattern_that_fits_nothing_is_an_error_that_says_what_there_is(frame: ResultFrame) -> None:
    with pytest.raises(ResultsError, match=r"on bpp\*; there are: lkh3 on cvrp100"):
        frame.select(datasets=["bpp*"])


def test_an_alias_stands_in_the_headers_and_a_note_says_for_what(frame: ResultFrame) -> None:
    short = with_aliases(
        frame.select(datasets=["tsp1*"]), {"tsp100:count=3": "T100", "tsp1000:count=3": "T1K"}
    )
    table = build_table("main", short)
    assert {column.group for column in table.columns} == {"", "T100 (3)", "T1K (3)"}
    assert "T100 is tsp100:count=3, T1K is tsp1000:count=3." in [note.text for note in table.notes]
    (printed,) = json.loads(render_json(table))["tables"]
    assert {cell["dataset"] for cell in printed["cells"]} == {"T100", "T1K"}
    plain = build_table("main", frame.select(datasets=["tsp1*"]))
    assert [row.cells for row in plain.rows] == [row.cells for row in table.rows]


def test_a_dataset_without_records_is_not_called_unknown(frame: ResultFrame) -> None:
    with pytest.raises(MissingRecordsError, match=r"no records of dataset 'tsp50'; there are of .*tsp100"):
        of_dataset(frame, "tsp50")


def test_an_alias_that_would_mislead_is_refused(frame: ResultFrame) -> None:
    with pytest.raises(
        MissingRecordsError, match=r"--alias tsp50=: the table has no records of it; .*tsp100"
    ):
        with_aliases(frame, {"tsp50": "T"})
    solver = frame.groups[0].cell.solver
    with pytest.raises(BadInputError, match=f"--alias {solver}=: is a solver; only datasets have .*tsp100"):
        with_aliases(frame, {solver: "T"})
    with pytest.raises(MissingRecordsError, match="there are of cvrp"):
        with_aliases(frame.select(datasets=["cvrp*"]), {"tsp100:count=3": "T"})
    with pytest.raises(BadInputError, match="'T' would stand for two datasets"):
        with_aliases(frame, {"tsp100:count=3": "T", "tsp1000:count=3": "T"})
    with pytest.raises(BadInputError, match="would stand for two datasets"):
        with_aliases(frame, {"tsp100:count=3": "tsp1000:count=3"})
    with pytest.raises(BadInputError, match="expected a short name"):
        with_aliases(frame, {"tsp100:count=3": " "})
