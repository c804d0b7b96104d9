"""`reproduce --status` and `--fill`: what stored records answer, what the rest costs, and that a budget is kept."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nco_bench.cli import app
from nco_bench.datasets.load import Places
from nco_bench.papers import preset
from nco_bench.papers.costs import Costs, Seen
from nco_bench.papers.measuring import crowding
from nco_bench.papers.needs import calibration_needed, program_needed, weights_needed
from nco_bench.papers.reproducing import tables_of
from nco_bench.papers.running import Runner, weights_missing
from nco_bench.papers.standing import standings
from nco_bench.papers.stored import Stored, _current, _weights_fit, stored_in
from nco_bench.reports.frame.blocks import STATUS_CODES
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.finding import find_runs
from nco_bench.solvers.availability import Backend
from nco_bench.solvers.classical.lkh3 import LKH3
from nco_bench.training.campaign_file import read_campaign

REPOSITORY = Path(__file__).resolve().parents[2]


def nco(*arguments: str, results: Path) -> int:
    return app.run([*arguments, "--results", str(results), "--instances", str(results / "none")])


def status(results: Path, capfd: pytest.CaptureFixture[str]) -> dict[str, list[dict[str, Any]]]:
    capfd.readouterr()
    assert nco("reproduce", "tropical", "--table", "2", "--status", "--json", results=results) == 0
    found: dict[str, list[dict[str, Any]]] = json.loads(capfd.readouterr().out)
    return found


def test_an_open_cell_costs_what_the_nearest_record_says_and_a_budget_answers_it(
    small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = status(small, capfd)
    assert not small.exists()
    (open_cell,) = [one for one in before["open"] if one["needs"] == "a run"]
    assert open_cell["seconds"] is None  # nothing near is stored

    assert nco("run", "nearest-neighbor", "--data", "tsp30:count=2", results=small) == 0
    (open_cell,) = [one for one in status(small, capfd)["open"] if one["needs"] == "a run"]
    frame = load_frame(small)
    each = frame.records["seconds"].mean() / crowding(frame.groups[0].environments)
    assert open_cell["seconds"] == pytest.approx(16 * each * (20 / 30) ** 2, abs=1e-3)
    assert open_cell["status"] == "not run"

    assert nco("reproduce", "tropical", "--table", "2", "--fill", "--budget", "60s", results=small) == 0
    frame = load_frame(small).select(datasets=["tsp20"])
    assert len(frame.records) == 16
    after = status(small, capfd)
    assert not [one for one in after["open"] if one["needs"] == "a run"]
    assert {"paper": "tropical", "table": "2", "status": "not comparable", "cells": 1} in after["counts"]
    assert sum(one["cells"] for one in after["counts"]) == sum(one["cells"] for one in before["counts"])

    assert nco("reproduce", "tropical", "--table", "2", "--fill", "--budget", "60s", results=small) == 0
    assert "0 cells answered" in capfd.readouterr().err


def test_an_instance_that_failed_says_nothing_of_what_one_costs(small: Path) -> None:
    assert nco("run", "nearest-neighbor", "--data", "tsp30:count=2", results=small) == 0
    stored = stored_in([small], None)
    assert stored.frame is not None
    open_cell = preset.CellPreset(metric="cost", solver="nearest-neighbor", data=("tsp300",), count=1)
    assert Costs(stored).of_instance(open_cell) is not None
    stored.frame.records["status"] = STATUS_CODES["failed"]
    assert Costs(stored).of_instance(open_cell) is None


def test_one_lucky_proof_does_not_say_what_the_next_one_costs() -> None:
    def concorde(n: float, seconds: float, count: int, limit: float = 0.0) -> Seen:
        return Seen("concorde", "classical", "", "tsp", (), n, seconds, limit, count)

    costs = Costs(Stored(None))
    costs._seen = [concorde(100, 1.0, 8), concorde(1000, 10.0, 1), concorde(1000, 1330.0, 3, limit=2000.0)]
    open_cell = preset.CellPreset(metric="cost", solver="concorde", data=("tsp10000",), count=1)
    found = costs.of_instance(open_cell)
    assert found is not None
    mean_of_four, grew = 1000.0, 10**3
    assert found.seconds == pytest.approx(mean_of_four * grew)


@pytest.mark.parametrize(
    ("solver", "size", "decoding", "seconds"),
    [
        ("pens-a", 500, "greedy", 25.0),  # as from 100 nodes to 1,000
        ("pens-a", 10_000, "greedy", 1e5),
        ("sit", 10_000, "greedy", 1e4),
        ("pens-a", 10_000, "rrc:50", 1e5 + 50 * 100.0),  # parts have 1,000 nodes at most
    ],
)
def test_beyond_what_is_stored_attention_to_all_pairs_grows_with_the_cube(
    solver: str, size: int, decoding: str, seconds: float
) -> None:
    costs = Costs(Stored(None))
    costs._seen = [Seen(solver, "path", "greedy", "tsp", (), n, (n / 100) ** 2, 0.0) for n in (100.0, 1000.0)]
    asked = preset.CellPreset(metric="cost", solver=solver, decoding=decoding, data=(f"tsp{size}",), count=1)
    found = costs.of_instance(asked)
    assert found is not None
    assert found.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("decoding", "tours"),
    [("multistart", 200), ("multistart:20+x8", 160), ("multistart+x8", 1600), ("x8", 8)],
)
def test_a_start_at_every_node_costs_as_many_tours_as_there_are_nodes(decoding: str, tours: int) -> None:
    """It counted as one tour, so that POMO of SIT's Table 1 was to take seconds on 5,000 nodes."""
    costs = Costs(Stored(None))
    costs._seen = [Seen("pomo", "stepwise", "greedy", "tsp", (), 200.0, 2.0, 0.0)]
    asked = preset.CellPreset(metric="cost", solver="pomo", decoding=decoding, data=("tsp200",), count=1)
    found = costs.of_instance(asked)
    assert found is not None
    assert found.seconds == pytest.approx(2.0 * tours)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fill",), "--fill needs a budget"),
        (("--budget", "2h"), "add --fill"),
        (("--status", "--fill", "--budget", "2h"), "give one of them"),
    ],
)
def test_status_and_fill_refuse_what_makes_no_sense(
    arguments: tuple[str, ...], said: str, small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert nco("reproduce", "tropical", "--table", "2", *arguments, results=small) == 2
    assert said in capfd.readouterr().err


def test_cells_without_weights_name_the_command_and_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    bq = preset.CellPreset(metric="gap", solver="bq", data=("tsp100",), count=10)
    wanted = "nco-bench weights pull bq-official-tsp100 (git blob cf63c360d358fa50c05a36e89c8acade56a42c0c)"
    assert weights_needed(bq, 100.0) == wanted
    assert weights_needed(replace(bq, solver="pens-a"), 100.0) == ""  # ships
    assert weights_needed(replace(bq, solver="lkh3"), 100.0) == ""


@pytest.mark.parametrize("paper", ["decoder-scaling", "eie", "sit"])
def test_networks_that_nobody_publishes_are_stages_of_the_papers_campaign(
    paper: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    file = f"campaigns/{paper}.toml"
    known = {stage.name for stage in read_campaign(REPOSITORY / file)}
    needs = {one.needs for one in standings(tables_of(paper, None), stored_in([tmp_path], None))}
    named = {
        text.split()[5] for text in needs if text.startswith(f"nco-bench train --campaign {file} --stage ")
    }
    assert named
    assert named <= known
    if paper == "eie":  # an official AM has three layers with heads of 16
        assert not any("am-official" in text for text in needs)


def test_a_size_that_the_installed_package_refuses_names_what_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package, program = Backend("package", "LKHpy", "0.0.9"), Backend("executable", "LKH", path="/bin/LKH")
    large = preset.CellPreset(metric="cost", solver="lkh3", data=("cvrp50000",), count=16)
    monkeypatch.setattr(LKH3, "backend", lambda self, problem: package)
    assert program_needed(large, 50_000.0).startswith(
        "lkh3 with package LKHpy 0.0.9 takes at most 4,999 nodes; "
    )
    assert program_needed(replace(large, data=("cvrp4000",)), 4_000.0) == ""
    assert program_needed(replace(large, data=("cvrp5000",)), 5_000.0) != ""  # no room for a vehicle
    assert program_needed(replace(large, solver="sit"), 50_000.0) == ""
    monkeypatch.setattr(LKH3, "backend", lambda self, problem: program)
    assert program_needed(large, 50_000.0) == ""


def test_a_scale_that_was_never_calibrated_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nco_bench.weights.calibration.read_calibration", lambda weights: [])
    scaled = preset.CellPreset(metric="gap", solver="pens-r", data=("tsp250",), coordinate_scale="auto")
    assert calibration_needed(scaled, 250.0) == "nco-bench calibrate pens-r --sizes 250"
    assert calibration_needed(replace(scaled, coordinate_scale=""), 250.0) == ""
    library = calibration_needed(replace(scaled, data=("tsplib:pens-100",)), 78.0)
    assert library == "nco-bench calibrate pens-r --sizes 51,100"


def test_a_factor_is_too_long_where_the_search_for_it_is() -> None:
    """PENS's Table 1: gaps with the factor of 10,000 nodes were too long for the search alone, the factor not run."""
    stored = stored_in([REPOSITORY / "results" / "cpu"], REPOSITORY / "instances")
    found = {
        one.entry.cell.column: one
        for one in standings(tables_of("pens", "1"), stored)
        if one.entry.cell.row == "PENS-A (scaled)"
    }
    factor, gap = found["TSP10000 | Scaling factor"], found["TSP10000 | Gap"]
    assert (factor.entry.verdict.status, factor.needs) == (gap.entry.verdict.status, gap.needs)
    assert factor.entry.verdict.status == "too long"
    assert factor.seconds is not None
    assert gap.seconds is not None
    assert factor.seconds < gap.seconds
    assert not factor.runnable
    assert found["TSP1000 | Scaling factor"].entry.value is not None


def test_kept_records_answer_what_they_answered_when_the_tables_were_made() -> None:
    """SIT's Table 1: random insertion on LEHD's CVRP-1000 with SIT's own code is 57.42, as printed."""
    stored = stored_in([REPOSITORY / "results" / "cpu"], REPOSITORY / "instances")
    found = standings(tables_of("sit", "1"), stored)
    (cell,) = [
        one.entry for one in found
        if (one.entry.cell.row, one.entry.cell.column) == ("Random Insertion", "CVRP1K | Obj.")
    ]  # fmt: skip
    assert cell.value == pytest.approx(57.42, abs=0.005)
    assert cell.verdict.status == "reproduced"


def test_records_of_an_older_version_count_where_its_solutions_are_the_same() -> None:
    """LKH3's second version changed what it does by default on the CVRP alone."""
    stored = stored_in([REPOSITORY / "results" / "classical"], REPOSITORY / "instances")
    assert stored.frame is not None
    old = [g.cell for g in stored.frame.groups if (g.cell.solver, g.cell.solver_version) == ("lkh3", "1")]
    assert {cell.problem for cell in old} == {"tsp"}
    lkh3 = preset.CellPreset(metric="cost", solver="lkh3", data=("tsp1000",), count=4)
    found = stored.measure(lkh3)
    assert found is not None
    assert (found.instances, found.cell.solver_version) == (4, "1")
    assert _current(replace(old[0], problem="cvrp")) is False


@pytest.mark.parametrize(
    ("solver", "dataset", "name", "fits"),
    [
        ("pens-ar", "tsp100", "pens-ar", True),
        ("pens-ar", "tsp100", "pens-ar-tsp20-zero", False),  # an ablation's
        ("decoder-12x128", "tsp100", "mine", False),
        ("decoder-12x128", "tsp20", "decoder-12x128-tsp20", False),
        ("invit-3v", "tsp100", "invit-3v-official", True),
        ("ut-vanilla", "knapsack:length-ood", "ut-vanilla-knapsack-seed0", True),
        ("ut-vanilla", "knapsack", "ut-vanilla-scc-seed0", False),
        ("lra-tropical", "lra-text:count=100", "lra-tropical-lra-text", True),
        ("lra-tropical", "lra-text", "lra-tropical-lra-image", False),
    ],
)
def test_a_row_that_names_no_weights_takes_the_solver_s_own(
    monkeypatch: pytest.MonkeyPatch, solver: str, dataset: str, name: str, fits: bool
) -> None:
    """Any weights of the model would otherwise stand in a paper's row, those of a toy among them."""
    stored = stored_in([REPOSITORY / "results" / "classical"], REPOSITORY / "instances")
    assert stored.frame is not None
    monkeypatch.setattr("nco_bench.papers.stored.unchanged", lambda name, sha256: True)
    problem = {"kna": "algorithmic", "lra": "lra"}.get(dataset[:3], "tsp")
    cell = replace(
        stored.frame.groups[0].cell, solver=solver, dataset=dataset, problem=problem,
        weights={"name": name, "sha256": "0" * 64},
    )  # fmt: skip
    assert _weights_fit(cell, preset.CellPreset(metric="gap", solver=solver)) is fits


def test_numbers_of_a_function_wait_for_weights_where_their_network_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    found = standings(tables_of("decoder-scaling", "figure-12"), stored_in([tmp_path], None))
    statuses = {one.solver: one.entry.verdict.status for one in found}
    expected = {
        "decoder-6x128": "not run",
        "decoder-6x512": "weights missing",
        "decoder-42x128": "weights missing",
    }
    assert statuses == expected
    assert all("decoder-42x128" in one.needs for one in found if one.solver == "decoder-42x128")


def test_numbers_that_run_no_network_wait_for_no_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIT's Table 2: how many instances a library has was open in the rows above the first network at hand."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    found = standings(tables_of("sit", "2"), stored_in([tmp_path], None))
    counted = {
        one.entry.cell.row: one.entry.verdict.status
        for one in found
        if one.entry.cell.column.endswith("Instances")
    }
    assert set(counted) >= {"GLOP", "Ours greedy"}
    assert set(counted.values()) == {"setting matches"}


def test_a_kept_number_without_weights_names_the_command_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoder scaling's Figure 12 is kept with reasons in place of the rows that had no network."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    stored = stored_in([REPOSITORY / "results" / "fill"], REPOSITORY / "instances")
    found = standings(tables_of("decoder-scaling", "figure-12"), stored)
    missing = [one for one in found if one.entry.verdict.status == "weights missing"]
    assert [one.solver for one in missing] == ["decoder-6x512", "decoder-42x128"]
    assert all(one.solver in one.needs for one in missing)


def test_networks_of_long_range_arena_wait_for_weights_and_run_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tropical's Table 4: three of its rows are networks of ours, the others are quoted ones that are not."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    weights_missing.cache_clear()
    found = standings(tables_of("tropical", "4"), stored_in([tmp_path], None))
    ours = [
        one for one in found if one.entry.cell.row in ("Transformer", "AdaptiveSoft.", "Tropical Transformer")
    ]
    assert {one.entry.verdict.status for one in ours} == {"weights missing"}
    assert {one.entry.verdict.status for one in found if one not in ours} == {"not comparable"}
    needs = {(one.solver, one.entry.cell.column): one.needs for one in ours}
    out = tmp_path / "weights" / "lra-adaptive-lra-image.safetensors"
    command = f"nco-bench train lra-adaptive --data lra-image --config steps=20000 --out {out}"
    assert needs["lra-adaptive", "Image"] == command
    assert "--data lra-listops " in needs["lra-tropical", "Avg."]
    assert command in weights_missing("lra-adaptive", "", "lra-image")
    assert nco("reproduce", "tropical", "--table", "4", "--scale", "smoke", results=tmp_path / "results") == 0
    out.parent.mkdir()
    out.touch()
    weights_missing.cache_clear()
    assert weights_missing("lra-adaptive", "", "lra-image") == ""
    image = next(one for one in ours if (one.solver, one.entry.cell.column) == ("lra-adaptive", "Image"))
    assert weights_needed(image.entry.preset, None) == ""
    weights_missing.cache_clear()


def test_a_time_or_memory_of_other_batches_or_another_device_answers_no_cell(small: Path) -> None:
    """A table by batch size had one number in all columns, and a column of GPU times those of a CPU."""
    assert nco("run", "nearest-neighbor", "--data", "tsp20:count=4", "--batch-size", "2", results=small) == 0
    stored = stored_in([small], None)
    of_two = preset.CellPreset(
        metric="seconds", solver="nearest-neighbor", data=("tsp20",), count=4, batch_size=2
    )
    for metric in ("seconds", "memory"):
        asked = replace(of_two, metric=metric)
        found = stored.measure(asked)
        assert found is not None
        assert found.value is not None
        assert not stored.timed_otherwise(asked)
        for other in (replace(asked, batch_size=3), replace(asked, device="cuda")):
            missed = stored.measure(other)
            assert missed is not None
            assert missed.value is None
        assert "in batches of 2, not in batches of 3" in stored.timed_otherwise(replace(asked, batch_size=3))
        on_gpu = replace(asked, batch_size=0, device="cuda")
        assert "measured on cpu, not on cuda" in stored.timed_otherwise(on_gpu)


def test_a_time_of_batches_of_one_may_be_the_latency_where_instances_are_of_one_size(small: Path) -> None:
    assert nco("run", "nearest-neighbor", "--data", "tsp20:count=4", "--batch-size", "4", results=small) == 0
    stored = stored_in([small], None)
    alone = preset.CellPreset(
        metric="seconds", solver="nearest-neighbor", data=("tsp20",), count=4, batch_size=1
    )
    found = stored.measure(alone)
    latency = load_frame(small).groups[0].latency_seconds
    assert found is not None
    assert found.value == latency
    assert found.course == "the median of one instance alone"
    on_gpu = stored.measure(replace(alone, device="cuda"))
    assert on_gpu is not None
    assert on_gpu.value is None


def test_each_batch_size_that_a_time_is_asked_for_is_run(small: Path) -> None:
    """Results do not depend on it, so that of a second one nothing was run: they are the stored ones."""
    runner = Runner(small, Places(small / "none"), QuietDisplay())
    asked = preset.CellPreset(
        metric="seconds", solver="nearest-neighbor", data=("tsp20",), count=6, seed=1234
    )
    for size in (2, 3, 2):
        one = replace(asked, batch_size=size)
        outcome = runner.run(runner.job(one, runner.dataset(one)[0]), "tsp20")
        assert outcome.cell is not None
    assert sorted(run.cells()[0].batch_size for run in find_runs(small)) == [2, 3]
    stored = stored_in([small], None)
    for size in (2, 3):
        found = stored.measure(replace(asked, batch_size=size))
        assert found is not None
        assert found.value is not None
        (cell,) = [run.cells()[0] for run in find_runs(small) if run.cells()[0].batch_size == size]
        assert cell.seconds_total is not None
        assert found.value == pytest.approx(cell.seconds_total / 6, rel=1e-3)
