"""Sets that begin alike share a column; sets that only share a name do not; several folders are read as one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.datasets.generate import generate
from nco_bench.errors import ResultsError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.tables.table import build_table
from nco_bench.runs.finding import find_runs
from nco_bench.runs.store import done

ABLATION = Path(__file__).resolve().parents[2] / "results" / "ablation"


def columns(frame: ResultFrame) -> list[str]:
    return [column.group for column in build_table("main", frame).columns[1::3]]


def few_and_many(results: Results) -> ResultFrame:
    """a was run on the first two of tsp100, b on the first three."""
    few, many = make_cell(0, "a", "tsp100:count=2"), make_cell(1, "b", "tsp100")
    results.run(
        "r1", (few, make_records(few, [11.0, 12.0], [10.0] * 2)), (many, make_records(many, [12.0, 12.0, 9.0], [10.0] * 3))
    )  # fmt: skip
    return load_frame(results.folder)


def test_a_set_and_its_beginning_share_a_column(results: Results) -> None:
    assert columns(few_and_many(results)) == ["tsp100 (3)"]


def test_a_name_selects_its_instances_whatever_was_run(results: Results) -> None:
    two = few_and_many(results).select(datasets=["tsp100:count=2"])
    assert columns(two) == ["tsp100:count=2 (2)"]
    assert [s.mean_gap_percent for s in summarise(two)] == pytest.approx([15.0, 20.0])


def test_two_names_of_one_set_are_two_columns(results: Results) -> None:
    both = few_and_many(results).select(datasets=["tsp100:count=1", "tsp100:seed=1234"])
    assert columns(both) == ["tsp100 (3)", "tsp100:count=1 (1)"]
    assert [s.instances for s in summarise(both)] == [1, 1, 2, 3]


def test_the_same_configuration_under_two_names_is_one_row(results: Results) -> None:
    few, many = make_cell(0, "a", "tsp100:count=2"), make_cell(0, "a", "tsp100")
    results.run("r1", (few, make_records(few, [11.0, 12.0], [10.0] * 2)))
    results.run("r2", (many, make_records(many, [11.0, 13.0, 14.0], [10.0] * 3)))
    frame = load_frame(results.folder)
    [summary] = summarise(frame)
    assert (summary.instances, summary.mean_gap_percent) == (3, pytest.approx(80 / 3))
    notes = [note.text for note in build_table("main", frame).notes]
    assert any("2 records were computed more than once" in note for note in notes)


def test_other_content_under_one_name_tears_its_stream(results: Results) -> None:
    """Two machines made tsp100; which of the two tsp100:count=2 belongs to cannot be known."""
    sets = [("tsp100", "1" * 64), ("tsp100", "2" * 64), ("tsp100:count=2", "3" * 64)]
    cells = [make_cell(i, "a", name, dataset_sha256=sha) for i, (name, sha) in enumerate(sets)]
    results.run("r1", *((cell, make_records(cell, [11.0], [10.0])) for cell in cells))
    assert columns(load_frame(results.folder)) == [
        "tsp100 [11111111] (1)", "tsp100 [22222222] (1)", "tsp100:count=2 (1)",
    ]  # fmt: skip


def test_the_same_content_under_a_file_name_is_the_same_set(results: Results) -> None:
    named = make_cell(0, "a", "tsp100:count=2")
    filed = make_cell(
        1,
        "b",
        "mine",
        dataset_sha256=named.dataset_sha256,
        origin={"generator": "file"},
        source="data/mine.pkl",
    )
    results.run("r1", *((cell, make_records(cell, [11.0], [10.0])) for cell in (named, filed)))
    frame = load_frame(results.folder)
    assert columns(frame) == ["tsp100:count=2 (1)"]
    for name in ("mine", "data/mine.pkl", "tsp100"):
        assert len(summarise(frame.select(datasets=[name]))) == 2


def test_a_file_that_bears_the_name_of_a_generated_set_is_no_part_of_it(results: Results) -> None:
    named = make_cell(0, "a", "tsp100:count=2")
    filed = make_cell(1, "b", "tsp100", origin={"generator": "file"})
    results.run("r1", *((cell, make_records(cell, [11.0], [10.0])) for cell in (named, filed)))
    assert columns(load_frame(results.folder)) == ["tsp100 (1)", "tsp100:count=2 (1)"]


def test_records_of_one_instance_with_two_contents_are_refused(results: Results) -> None:
    few, many = make_cell(0, "a", "tsp100:count=2"), make_cell(1, "b", "tsp100")
    records = [make_records(cell, [11.0], [10.0]) for cell in (few, many)]
    records[0][0].instance_sha256, records[1][0].instance_sha256 = "0" * 15 + "1", "0" * 15 + "2"
    results.run("r1", (few, records[0]), (many, records[1]))
    with pytest.raises(ResultsError, match="instance 0 has two different contents"):
        load_frame(results.folder)


def test_several_folders_are_read_as_one_and_a_copied_run_counts_once(
    results: Results, tmp_path: Path
) -> None:
    one, two = make_cell(0, "a", "tsp100"), make_cell(0, "b", "tsp100")
    results.run("r1", (one, make_records(one, [11.0], [10.0])))
    other = Results(tmp_path / "other")
    other.run("r2", (two, make_records(two, [12.0], [10.0])))
    shutil.copytree(results.folder / "r1", other.folder / "r1")
    frame = load_frame([results.folder, other.folder])
    assert [s.method for s in summarise(frame)] == ["a", "b"]
    assert [group.repeated for group in frame.groups] == [0, 0]


def test_records_of_before_are_records_of_every_set_that_begins_as_theirs() -> None:
    """The three runs of results/ablation are of schema 1: 256 instances of TSP-50 with seed 77 each."""
    cell = next(c for run in find_runs(ABLATION) for c in run.cells() if c.dataset.startswith("tsp50:"))
    for name_count, expected in ((16, 16), (256, 256), (300, 256)):
        dataset = generate("tsp", 50, name_count, "uniform", 77)
        stored = done(ABLATION, cell.config_sha256, cell.seed, dataset)
        assert stored.keys() == {(0, i) for i in range(expected)}
    assert not done(ABLATION, cell.config_sha256, cell.seed, generate("tsp", 50, 16, "uniform", 78))
