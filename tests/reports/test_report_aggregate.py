"""Summaries against hand calculations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.reports.frame.aggregate import gap_of_means, summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.summary import CellSummary


def summary_of(results: Results, costs: list[Any], references: list[Any], **facts: Any) -> CellSummary:
    cell = make_cell(0, "lkh3", "tsp100", **facts)
    results.run("r1", (cell, make_records(cell, costs, references)))
    [summary] = summarise(load_frame(results.folder))
    return summary


def test_both_gap_definitions(results: Results) -> None:
    """Gaps of 10 % on 10 and 50 % on 2: mean 30 %; means 7 and 14/2... (11 + 3) / (10 + 2) - 1 = 16.667 %."""
    summary = summary_of(results, [11.0, 3.0], [10.0, 2.0])
    assert summary.mean_gap_percent == pytest.approx(30.0)
    assert summary.gap_of_means_percent == pytest.approx(100 * 2 / 12)
    assert summary.gap_std_percent == pytest.approx(28.284271, rel=1e-6)  # 20 sqrt(2)
    assert (summary.mean_cost, summary.mean_reference) == (7.0, 6.0)


def test_a_gap_of_means_is_to_the_size_of_the_reference() -> None:
    """From -10 to -8 is worse by 20 % where lower is better, and better by as much where higher is."""
    costs, references = np.array([-7.0, -9.0]), np.array([-10.0, -10.0])
    assert gap_of_means(costs, references) == pytest.approx(20.0)
    assert gap_of_means(costs, references, -1.0) == pytest.approx(-20.0)


def test_failed_instances_are_counted_and_left_out_of_the_mean(results: Results) -> None:
    summary = summary_of(results, [11.0, "oom", "infeasible", "timeout", 12.0], [10.0] * 5)
    assert summary.mean_gap_percent == pytest.approx(15.0)
    assert summary.failed == summary.failed_solves == 3
    assert summary.statuses == {"ok": 2, "infeasible": 1, "failed": 0, "timeout": 1, "oom": 1}
    assert not summary.complete
    assert summary.seconds_total == pytest.approx(2.5)  # failures took time too


def test_repeats_are_averaged_per_instance_first(results: Results) -> None:
    """Instance 0: 10 and 12 % -> 11; instance 1: 4 % and a failure -> 4. Mean 7.5, not (10 + 12 + 4) / 3."""
    cell = make_cell(0, "pomo", "tsp100", repeats=2)
    first = make_records(cell, [11.0, 10.4], [10.0, 10.0], repeat=0, seconds=1.0)
    second = make_records(cell, [11.2, "failed"], [10.0, 10.0], repeat=1, seconds=3.0)
    results.run("r1", (cell, first + second))
    [summary] = summarise(load_frame(results.folder))
    assert summary.mean_gap_percent == pytest.approx(7.5)
    assert summary.repeats == 2
    assert (summary.failed, summary.failed_solves, summary.solves) == (1, 1, 4)
    assert summary.seconds_total == pytest.approx(4.0)  # one pass over two instances at 2 s each
    assert summary.seconds_per_instance == pytest.approx(2.0)
    assert summary.repeats_said == "2"


def test_instances_of_different_numbers_of_repeats_are_said(results: Results) -> None:
    """A caption gave all instances the repeats of some."""
    cell = make_cell(0, "pomo", "tsp100", repeats=2)
    results.run(
        "r1",
        (cell, make_records(cell, [11.0, 10.4], [10.0, 10.0]) + make_records(cell, [11.2], [10.0], repeat=1)),
    )
    [summary] = summarise(load_frame(results.folder))
    assert summary.repeats_said == "1 to 2"


def test_zero_reference_has_no_gap_unless_the_cost_is_zero_too(results: Results) -> None:
    summary = summary_of(results, [1.0, 0.0, 11.0], [0.0, 0.0, 10.0])
    assert summary.mean_gap_percent == pytest.approx(5.0)  # mean of 0 and 10
    assert summary.undefined_gaps == 1
    assert summary.gap_instances == 2


def test_without_references_there_is_no_gap(results: Results) -> None:
    summary = summary_of(results, [1.0, 2.0], [None, None])
    assert summary.mean_gap_percent is None
    assert summary.gap_of_means_percent is None
    assert summary.mean_cost == 1.5


def test_one_instance_has_no_spread_and_no_interval(results: Results) -> None:
    summary = summary_of(results, [11.0], [10.0])
    assert summary.mean_gap_percent == pytest.approx(10.0)
    assert (summary.gap_std_percent, summary.gap_low, summary.gap_high) == (None, None, None)


def test_a_higher_score_is_better_where_the_objective_says_so(results: Results) -> None:
    summary = summary_of(results, [90.0, 110.0], [100.0, 100.0], objective="max", problem="bpp3d")
    assert summary.mean_gap_percent == pytest.approx(0.0)
    assert summary.gap_of_means_percent == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("weights", "label"),
    [
        ({"training_size": 100, "training_distribution": "uniform"}, "in-distribution"),
        ({"training_size": 50, "training_distribution": "uniform"}, "size-OOD"),
        ({"training_size": [20, 100], "training_distribution": "uniform"}, "in-distribution"),
        ({"training_size": 100, "training_distribution": "clustered"}, "distribution-OOD"),
        ({"training_size": 50, "training_distribution": "clustered"}, "size-OOD, distribution-OOD"),
        ({"training_size": 100}, None),  # the manifest does not say
        (None, None),  # a classical solver
    ],
)
def test_distribution_label(results: Results, weights: dict[str, Any] | None, label: str | None) -> None:
    assert summary_of(results, [8.0], [8.0], weights=weights).distribution_label == label


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({"capacity": "10", "demand": "unit", "range": "-1..1"}, "in-distribution"),
        ({"capacity": "20", "demand": "unit", "range": "-1..1"}, "distribution-OOD"),
        ({"capacity": "10", "demand": "integer", "range": "0..1"}, "distribution-OOD"),
        ({}, "in-distribution"),  # a file: nothing is known of how it was drawn
    ],
)
def test_instances_drawn_with_other_parameters_are_of_another_distribution(
    results: Results, params: dict[str, str], label: str
) -> None:
    origin = {"generator": "nco-bench", "distribution": "uniform", "seed": 1, "params": params}
    weights = {"training_size": 100, "training_distribution": "uniform"}
    drawn = {"training_params": {"capacity": "10", "demand": "unit"}}
    assert (
        summary_of(results, [8.0], [8.0], weights=weights | drawn, origin=origin).distribution_label == label
    )


@pytest.mark.parametrize(
    ("trained", "size", "origin", "label"),
    [
        ("uniform", 100, {"generator": "file"}, None),  # a user's file does not say how it was drawn
        ("uniform", 50, {"generator": "file"}, "size-OOD"),
        ("unknown", 100, {"generator": "nco-bench", "distribution": "uniform"}, None),  # nor do some labels
        (
            "clustered, unknown",
            100,
            {"generator": "nco-bench", "distribution": "clustered"},
            "in-distribution",
        ),
        ("clustered, uniform", 100, {"generator": "nco-bench", "distribution": "uniform"}, "in-distribution"),
        ("uniform", 100, {"generator": "tsplib", "distribution": ""}, "distribution-OOD"),
    ],
)
def test_an_unknown_distribution_has_no_label(
    results: Results, trained: str, size: int, origin: dict[str, str], label: str | None
) -> None:
    weights = {"training_size": size, "training_distribution": trained}
    assert summary_of(results, [8.0], [8.0], weights=weights, origin=origin).distribution_label == label


def test_instances_that_were_run_from_a_file_as_well_keep_what_their_generator_says(results: Results) -> None:
    """Which of the two names ran last decided the label of both."""
    weights = {"training_size": 100, "training_distribution": "uniform"}
    for run, origin in (
        ("r1", {"generator": "nco-bench", "distribution": "uniform"}),
        ("r2", {"generator": "file"}),
    ):
        cell = make_cell(0, "lkh3", "tsp100", weights=weights, origin=origin)
        results.run(run, (cell, make_records(cell, [8.0], [8.0])))
    [summary] = summarise(load_frame(results.folder))
    assert summary.distribution_label == "in-distribution"


def test_training_on_the_test_set_is_found_by_its_hash(results: Results) -> None:
    weights = {"name": "w", "sha256": "0", "trained_on": ["sha-tsp100"]}
    assert summary_of(results, [8.0], [8.0], weights=weights).trained_on_test


@pytest.mark.parametrize(
    ("seeds", "size", "seen"),
    [
        (["1234"], 100, True),
        (["7 (1,200 paths)", "1234 (20,000 tours)"], 100, True),
        (["2..8, 1200..1300 (40,000 paths)"], 100, True),
        (["99"], 100, False),
        (["12", "1235..1300", "7 (1234 tours)"], 100, False),
        (["1234"], 50, False),
    ],
)
def test_a_test_set_from_a_training_seed_is_found(
    results: Results, seeds: list[str], size: int, seen: bool
) -> None:
    weights = {
        "name": "w",
        "training_size": size,
        "training_distribution": "uniform",
        "training_seeds": seeds,
    }
    assert summary_of(results, [8.0], [8.0], weights=weights).trained_on_test is seen


@pytest.mark.parametrize(
    ("seeds", "seen"),
    [({"100": 1234}, True), ({"100": 5678}, False), ({"50": 1234}, False), (None, False)],
)
def test_a_test_set_that_the_coordinate_scale_was_calibrated_on_is_found(
    results: Results, seeds: dict[str, int] | None, seen: bool
) -> None:
    weights = {"name": "w", "sha256": "0", "calibration_seeds": seeds}
    assert summary_of(results, [8.0], [8.0], weights=weights).calibrated_on_test is seen


def test_run_json_has_the_promised_keys(results: Results) -> None:
    promised = """solver decoding dataset dataset_sha256 problem instances failed repeats mean_cost mean_reference
        mean_gap_percent gap_of_means_percent gap_std_percent seconds_total seconds_per_instance peak_memory_mb
        device convention reference_solver seed weights"""
    assert set(promised.split()) <= set(summary_of(results, [8.0], [8.0]).as_dict())
