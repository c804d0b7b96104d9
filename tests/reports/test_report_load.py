"""Reading run folders: what is refused, what is merged."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.tables.table import build_table


def test_empty_folder_says_which_command_fills_it(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="nco-bench run"):
        load_frame(tmp_path / "nothing")


def test_run_without_records_counts_as_empty(results: Results) -> None:
    results.run("r1", (make_cell(0, "lkh3", "tsp100"), []))
    with pytest.raises(ResultsError, match="nco-bench run"):
        load_frame(results.folder)


def test_other_schema_is_refused_with_the_way_out(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0], [8.0])), schema=99)
    with pytest.raises(ResultsError, match=r"r1.*schema 99.*install"):
        load_frame(results.folder)


def test_record_of_a_cell_that_the_run_does_not_name(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    stray = make_records(make_cell(7, "lkh3", "tsp100"), [8.0], [8.0])
    results.run("r1", (cell, stray))
    with pytest.raises(ResultsError, match=r"records.jsonl: a record does not fit"):
        load_frame(results.folder)


def test_torn_last_line_is_left_out(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    folder = results.run("r1", (cell, make_records(cell, [8.0, 9.0], [8.0, 8.0])))
    with (folder / "records.jsonl").open("ab") as file:
        file.write(b'{"key": "torn')
    assert len(load_frame(results.folder).records) == 2


def test_same_key_twice_counts_once_and_the_latest_holds(results: Results) -> None:
    """Two processes, or --fresh: the same instances again, now with other times."""
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0, 8.5], [8.0, 8.0], seconds=1.0)))
    results.run("r2", (cell, make_records(cell, [8.0], [8.0], seconds=3.0)))
    frame = load_frame(results.folder)
    [summary] = summarise(frame)
    assert summary.instances == 2
    assert summary.seconds_total == 4.0
    assert summary.group.repeated == 1
    notes = [note.text for note in build_table("main", frame).notes]
    assert notes == ["1 record was computed more than once; the latest counts."]


def test_a_report_on_one_dataset_does_not_speak_of_another_ones_repeated_records(results: Results) -> None:
    one, other = make_cell(0, "lkh3", "tsp100"), make_cell(1, "lkh3", "tsp50")
    results.run("r1", (one, make_records(one, [8.0], [8.0])), (other, make_records(other, [5.0], [5.0])))
    results.run("r2", (other, make_records(other, [5.0], [5.0])))
    frame = load_frame(results.folder)
    assert build_table("main", frame.select(datasets=["tsp100"])).notes == ()
    assert len(build_table("main", frame.select(datasets=["tsp50"])).notes) == 1


def test_memory_is_what_the_solver_took_beyond_what_others_had_loaded(results: Results) -> None:
    """500 MB of torch are loaded when insertion starts; old records cannot say so, and their row says that."""
    new = make_cell(0, "random-insertion", "tsp100", peak_memory_mb=512.0, memory_before_mb=500.0)
    old = make_cell(1, "lkh3", "tsp100", peak_memory_mb=140.0)
    results.run("r1", (new, make_records(new, [8.0], [8.0])), (old, make_records(old, [8.0], [8.0])))
    table = build_table("times", load_frame(results.folder))
    memory = {row.cells[0].text: row.cells[4].text for row in table.rows}
    assert memory == {"random-insertion": "12", "lkh3": "140"}
    assert any(note.text.startswith("Memory of lkh3: of the whole process") for note in table.notes)


def test_memory_of_a_whole_process_does_not_count_beside_what_the_solver_took(results: Results) -> None:
    old = make_cell(0, "sit", "cvrp1000", peak_memory_mb=322.0)
    new = make_cell(0, "sit", "cvrp1000", peak_memory_mb=404.1, memory_before_mb=327.9)
    results.run("r1", (old, make_records(old, [40.0], [36.0])))
    results.run("r2", (new, make_records(new, [40.0], [36.0], first=1)))
    [summary] = summarise(load_frame(results.folder))
    assert summary.group.peak_memory_mb == pytest.approx(76.2)


def test_a_run_that_was_resumed_is_one_cell(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100", peak_memory_mb=50.0, latency_seconds=0.2)
    later = make_cell(0, "lkh3", "tsp100", peak_memory_mb=20.0, latency_seconds=None)
    results.run("r1", (cell, make_records(cell, [8.0], [8.0])))
    results.run("r2", (later, make_records(later, [8.8], [8.0], first=1)))
    [summary] = summarise(load_frame(results.folder))
    assert summary.mean_gap_percent == pytest.approx(5.0)
    assert summary.group.runs == ("r1", "r2")
    assert summary.group.peak_memory_mb == 50.0
    assert summary.group.latency_seconds == 0.2


def test_all_gaps_are_to_the_best_reference_that_any_run_knew(results: Results) -> None:
    """Run 1 saw 10, run 2 saw 8: against 8, costs 10 and 9 have gaps of 25 and 12.5 %."""
    first, second = make_cell(0, "two-opt", "tsp100"), make_cell(0, "lkh3", "tsp100")
    results.run("r1", (first, make_records(first, [10.0], [10.0])))
    results.run("r2", (second, make_records(second, [9.0], [8.0])))
    frame = load_frame(results.folder)
    assert [s.mean_gap_percent for s in summarise(frame)] == pytest.approx([25.0, 12.5])
    assert "references of 1 instance changed" in frame.notes[0]


def test_the_best_reference_is_the_highest_where_higher_is_better(results: Results) -> None:
    """Run 1 saw a load rate of 75, run 2 one of 80: against 80, rates 60 and 72 have gaps of 25 and 10 %."""
    facts = {"problem": "bpp3d", "objective": "max", "convention": "load-rate"}
    first, second = (make_cell(0, solver, "bpp3d20", **facts) for solver in ("a", "b"))
    results.run("r1", (first, make_records(first, [60.0], [75.0])))
    results.run("r2", (second, make_records(second, [72.0], [80.0])))
    found = summarise(load_frame(results.folder))
    assert [s.mean_gap_percent for s in found] == pytest.approx([25.0, 10.0])
    assert [s.gap_of_means_percent for s in found] == pytest.approx([25.0, 10.0])


def test_a_repeat_that_was_computed_again_leaves_the_other_repeats(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100", repeats=2, latency_seconds=0.2)
    later = make_cell(0, "lkh3", "tsp100", repeats=2, latency_seconds=0.3)
    both = make_records(cell, [11.0], [10.0]) + make_records(cell, [12.0], [10.0], repeat=1)
    results.run("r1", (cell, both))
    results.run("r2", (later, make_records(later, [13.0], [10.0])))
    [summary] = summarise(load_frame(results.folder))
    assert (summary.solves, summary.mean_cost, summary.group.repeated) == (2, 12.5, 1)
    assert summary.group.latency_seconds == 0.3


def test_mixed_conventions_in_one_column_are_refused_with_both_runs(results: Results) -> None:
    one = make_cell(0, "lkh3", "tsplib/berlin52", convention="tsplib-nint", dataset_sha256="aa")
    two = make_cell(0, "pomo", "tsplib/berlin52", convention="euclidean", dataset_sha256="bb")
    results.run("r1", (one, make_records(one, [7542.0], [7542.0])))
    results.run("r2", (two, make_records(two, [7544.4], [7542.0])))
    with pytest.raises(ResultsError, match=r"tsplib-nint in run r1 and euclidean in run r2"):
        summarise(load_frame(results.folder))


def test_runs_of_parts_of_a_set_share_its_column_whatever_their_instances_are_scored_by(
    results: Results,
) -> None:
    """Of SIT's TSPLIB one instance alone is ``ceil``, the set is mixed."""
    whole = make_cell(0, "lkh3", "tsplib:sit", convention="mixed")
    part = make_cell(0, "pomo", "tsplib:sit", convention="ceil")
    every, alone = make_records(whole, [7542.0, 90.0], [7542.0, 90.0]), make_records(part, [7600.0], [7542.0])
    for record, convention in zip((*every, *alone), ("ceil", "tsplib-nint", "ceil"), strict=True):
        record.convention = convention
    results.run("r1", (part, alone))
    results.run("r2", (whole, every))
    found = summarise(load_frame(results.folder))
    assert [(s.instances, s.group.cell.convention) for s in found] == [(1, "mixed"), (2, "mixed")]


def test_files_of_one_name_for_two_problems_have_columns_of_their_own(results: Results) -> None:
    """``a.tsp`` and ``a.vrp`` in one command made every later report fail."""
    one = make_cell(0, "two-opt", "a", problem="tsp", convention="tsplib-nint", dataset_sha256="aa")
    two = make_cell(1, "two-opt", "a", problem="cvrp", convention="cvrplib-nint", dataset_sha256="bb")
    results.run("r1", (one, make_records(one, [7.0], [7.0])), (two, make_records(two, [9.0], [8.0])))
    assert sorted(s.group.cell.problem for s in summarise(load_frame(results.folder))) == ["cvrp", "tsp"]


def test_one_instance_scored_by_two_rules_is_refused_with_both_runs(results: Results) -> None:
    one = make_cell(0, "lkh3", "tsplib", convention="mixed")
    two = make_cell(0, "pomo", "tsplib", convention="mixed")
    records = make_records(two, [100.0], [100.0])
    records[0].convention = "geo"
    results.run("r1", (one, make_records(one, [100.0], [100.0])))
    results.run("r2", (two, records))
    with pytest.raises(ResultsError, match=r"scored as mixed in run r1 and as geo in run r2"):
        summarise(load_frame(results.folder))


def test_selection_that_leaves_nothing_lists_what_there_is(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0], [8.0])))
    with pytest.raises(ResultsError, match=r"tsp200.*lkh3 on tsp100"):
        load_frame(results.folder).select(datasets=["tsp200"])
