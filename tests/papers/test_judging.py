"""The tolerance rule by hand: printed rounding, intervals, weights that are not the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_bench.papers.judging import half_unit, judge, judge_computed, part_of_library
from nco_bench.papers.measuring import Measured, busy
from nco_bench.papers.preset import CellPreset
from nco_bench.papers.published import PublishedCell
from nco_bench.reports.frame.statistics import interval_of_mean
from nco_bench.runs.records import Cell
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.store import WeightsFile

PRESET = CellPreset(metric="gap", solver="lehd", data=("tsp100",), count=100)


def printed(value: str, number: float | None, unit: str = "percent") -> PublishedCell:
    return PublishedCell("LEHD", "TSP100 | Gap", value, number, unit, None)


def measured(
    value: float | None, low: float | None, high: float | None, instances: int = 100, **facts: object
) -> Measured:
    cell = Cell(
        cell=0, solver="lehd", label="lehd", solver_version="1", decoding="greedy", kind="neural", options={},
        config_sha256="c", weights=facts.pop("weights", None), dataset="tsp100", dataset_sha256="d", problem="tsp",
        problem_version="1", objective="min", convention="euclidean", origin={}, instances=instances, repeats=1,
        seed=1234, reference_solver="lkh3", device="cpu", batch_size=1,
    )  # fmt: skip
    return Measured(value, low, high, instances, cell, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "number", "expected"),
    [
        ("0.464%", 0.464, 0.0005),
        ("2.75h", 2.75, 0.005),
        ("12m", 12.0, 0.5),
        ("60,000", 60000.0, 0.5),
        ("1.25×10^{-4}", 0.000125, 0.5e-6),
        ("1e-4", 0.0001, 0.5e-4),
        ("OOM", None, 0.0),
    ],
)
def test_half_a_unit_of_the_last_printed_digit(value: str, number: float | None, expected: float) -> None:
    assert half_unit(printed(value, number)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("low", "high", "status"),
    [
        (0.40, 0.50, "reproduced"),
        (0.4644, 0.6, "reproduced"),
        (0.4646, 0.6, "differs"),
        (0.2, 0.4634, "differs"),
    ],
)
def test_the_interval_is_widened_by_the_printed_rounding(low: float, high: float, status: str) -> None:
    verdict = judge(printed("0.464%", 0.464), PRESET, measured((low + high) / 2, low, high))
    assert verdict.status == status


def test_few_instances_decide_nothing() -> None:
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(0.464, 0.1, 0.9, instances=7))
    assert verdict.status == "not comparable"
    assert "7 instances are too few" in verdict.reason


def test_weights_that_saw_a_share_of_the_training_never_count_as_reproduced() -> None:
    weights = {"name": "decoder-6x128", "share_of_paper": 0.0131}
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(0.464, 0.4, 0.5, weights=weights))
    assert verdict.status == "other weights"
    assert "1.31 %" in verdict.reason


def test_a_scale_calibrated_on_the_test_set_is_not_compared() -> None:
    """PENS, Section 4.2: tuned exclusively on held-out random instances, never on those of the evaluation."""
    verdict = judge(printed("1.68%", 1.68), PRESET, measured(1.68, 1.6, 1.7, calibrated_on_test=True))
    assert verdict.status == "not comparable"
    assert "calibrated on this test set" in verdict.reason


def test_official_weights_are_the_papers() -> None:
    weights = {"name": "lehd-official-tsp100", "share_of_paper": None}
    assert (
        judge(printed("0.464%", 0.464), PRESET, measured(0.46, 0.4, 0.5, weights=weights)).status
        == "reproduced"
    )


def test_a_set_of_the_papers_own_counts_as_the_same_instances() -> None:
    """On others the printed mean has a sampling error of its own: 5.0 to 5.4 then reaches down to 4.92."""
    preset = replace(PRESET, paper_instances=100)
    named = replace(preset, paper_sets=("tsp100",))
    ours = measured(5.2, 5.0, 5.4)
    assert judge(printed("4.95%", 4.95), preset, ours).status == "reproduced"
    verdict = judge(printed("4.95%", 4.95), named, ours)
    assert (verdict.status, verdict.reason) == ("differs", "100 instances, the paper's instances")
    assert (
        judge(printed("4.95%", 4.95), replace(named, paper_sets=("fu_tsp1000",)), ours).status == "reproduced"
    )


def test_on_all_of_the_papers_instances_only_what_varies_beside_their_references_counts() -> None:
    """How long the best tours of these are is the same for both; of other instances, or a part of them, it is not."""
    whole = replace(PRESET, metric="cost", same_instances=True, paper_instances=100)
    ours = measured(57.4, 56.0, 58.8, of_these=(57.2, 57.6))
    assert judge(printed("57.50", 57.5), whole, ours).status == "reproduced"
    assert judge(printed("56.50", 56.5), whole, ours).status == "differs"
    for preset in (replace(whole, same_instances=False), replace(whole, paper_instances=200)):
        assert judge(printed("56.50", 56.5), preset, ours).status == "reproduced"


def test_what_a_shorter_time_limit_ended_is_not_held_against_the_printed_number() -> None:
    """SIT's Table 9: HGS for 2 s an instance, where the printed hours are 118 s of each."""
    short, ours = replace(PRESET, time_limit=2.0, full_limit=118.0), measured(5.0, 4.8, 5.2)
    assert judge(printed("5.00%", 5.0), short, ours).status == "not comparable"
    assert judge(printed("5.00%", 5.0), replace(short, time_limit=118.0), ours).status == "reproduced"


def test_times_are_never_judged() -> None:
    preset = CellPreset(metric="seconds", solver="lehd", data=("tsp100",), count=100)
    assert (
        judge(printed("12m", 12.0, "minutes"), preset, measured(12.0, 11.0, 13.0)).status == "not comparable"
    )


def test_out_of_memory_is_said() -> None:
    assert (
        judge(printed("0.464%", 0.464), PRESET, measured(None, None, None, oom=3, failed=3)).status == "OOM"
    )


def test_computed_numbers_must_agree_to_the_printed_digit() -> None:
    """1,316,877 parameters are 1.32M; 1,326,000 would be 1.33M."""
    cell = printed("1.32M", 1.32, "million parameters")
    assert judge_computed(cell, 1.316877).status == "agrees"
    assert judge_computed(cell, 1.326).status == "differs"


def test_small_samples_use_students_t() -> None:
    """Mean 3, sample deviation sqrt(2.5), t(0.975, 4) = 2.776445."""
    low, high = interval_of_mean(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) or (0.0, 0.0)
    reach = 2.776445 * np.sqrt(2.5 / 5)
    assert (low, high) == (pytest.approx(3 - reach, abs=1e-5), pytest.approx(3 + reach, abs=1e-5))


def test_times_of_a_busy_machine_say_so_and_are_an_upper_bound() -> None:
    """Load 17 on 2 cores; the quiet run of the same cell counts for nothing."""
    found = busy(
        [{"load_average": [17.2, 9.0, 3.0], "cpu_count": 2}, {"load_average": [0.1, 0, 0], "cpu_count": 2}]
    )
    assert found == "beside a load of 17 on 2 cores, so an upper bound"
    assert busy([{"load_average": [1.9, 9.0, 3.0], "cpu_count": 2}, {}]) == ""
    seconds = CellPreset(metric="seconds", solver="lehd", data=("tsp100",), count=100)
    verdict = judge(printed("12m", 12.0, "minutes"), seconds, measured(55.0, None, None, busy=found))
    assert verdict.status == "not comparable"
    assert verdict.reason.endswith(found)


def test_weights_of_another_size_than_the_papers_say_so() -> None:
    """EIE's Table 1 has networks of 100 boxes; the one that ships learned from 20."""
    weights = {"name": "attend2pack-120x100", "share_of_paper": 0.0167, "training_size": 20}
    found = measured(52.3, 47.0, 57.5, weights=weights)
    verdict = judge(printed("78.3%", 78.3), replace(PRESET, trained_on=100), found)
    assert verdict.status == "other weights"
    assert verdict.reason.endswith("1.67 % of the paper's training samples, at size 20 instead of 100")
    same = measured(52.3, 47.0, 57.5, weights={**weights, "training_size": 100})
    assert "size" not in judge(printed("78.3%", 78.3), replace(PRESET, trained_on=100), same).reason
    assert "size" not in judge(printed("78.3%", 78.3), PRESET, found).reason


@pytest.mark.parametrize(
    ("value", "number", "status"),
    [
        ("4.94%", 4.94, "differs"),
        ("4.95%", 4.95, "reproduced"),
        ("5.90%", 5.9, "reproduced"),
        ("6.10%", 6.1, "differs"),
    ],
)
def test_each_side_of_an_interval_counts_for_itself(value: str, number: float, status: str) -> None:
    """5.2 from 4.95 to 6.0, as far above as skewed gaps reach, on the paper's own instances."""
    preset = replace(PRESET, same_instances=True, paper_instances=100)
    assert judge(printed(value, number), preset, measured(5.2, 4.95, 6.0)).status == status


def test_two_errors_are_added_as_independent_ones_are() -> None:
    """Ours 0.3 and the paper's 0.3 reach 0.424 below 5.4, not 0.6."""
    preset = replace(PRESET, paper_instances=100)
    assert judge(printed("4.98%", 4.98), preset, measured(5.4, 5.1, 5.7)).status == "reproduced"
    assert judge(printed("4.90%", 4.9), preset, measured(5.4, 5.1, 5.7)).status == "differs"


@pytest.mark.parametrize(
    ("facts", "status", "told"),
    [
        ({"trained_on_test": True}, "not comparable", "trained on this test set"),
        ({"limited": True}, "not comparable", "a time limit ended the search early"),
        ({"instances": 8}, "reproduced (few)", "8 instances"),
        ({"weights": {"name": "lehd", "share_of_paper": 0.99}}, "other weights", "99 % of the paper's"),
        ({"weights": {"name": "random"}}, "other weights", "untrained network"),
    ],
)
def test_a_number_that_agrees_is_reproduced_only_where_nothing_speaks_against_it(
    facts: dict[str, Any], status: str, told: str
) -> None:
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(0.464, 0.4, 0.5, **facts))
    assert verdict.status == status
    assert told in verdict.reason


def test_a_set_of_which_some_ran_out_of_memory_and_others_crashed_is_not_out_of_memory() -> None:
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(None, None, None, oom=1, failed=3))
    assert (verdict.status, verdict.reason) == ("not run", "none of 3 instances was solved")


def test_instances_that_failed_were_tried_and_leave_no_part_of_a_library() -> None:
    library = replace(PRESET, data=("tsplib:sit",), same_instances=True, paper_instances=33)
    assert part_of_library(library, measured(7.0, 6.0, 8.0, 32, failed=1)) == ""
    assert part_of_library(library, measured(7.0, 6.0, 8.0, 31, failed=1)).startswith("32 of the paper's 33")


GAP = measured(3.10, 3.05, 3.15)
READ_AS_RATIO = measured(2.98, 2.93, 3.03)


@pytest.mark.parametrize(
    ("value", "number", "change", "ours", "status"),
    [
        # Interval alone: 4.90 <= 5.00.
        ("5.00%", 5.0, {"paper_instances": 100}, measured(5.2, 4.9, 5.5), "reproduced"),
        # As many instances as ours: 0.3 * sqrt(1 + 100/100) = 0.424; 5.4 - 0.424 = 4.976 <= 5.00.
        ("5.00%", 5.0, {"paper_instances": 100}, measured(5.4, 5.1, 5.7), "reproduced"),
        # The very same instances carry no error of their own: 5.1 - 0.005 = 5.095 > 5.00.
        (
            "5.00%",
            5.0,
            {"paper_instances": 100, "same_instances": True},
            measured(5.4, 5.1, 5.7),
            "differs",
        ),
        # 10,000 of the paper's: 0.3 * sqrt(1 + 100/10000) = 0.3015; 5.4 - 0.3015 - 0.005 = 5.094 > 5.00.
        ("5.00%", 5.0, {"paper_instances": 10_000}, measured(5.4, 5.1, 5.7), "differs"),
        # Twelve: the same sum as the second, and the word for it.
        ("5.00%", 5.0, {"paper_instances": 12}, measured(5.4, 5.1, 5.7, instances=12), "reproduced (few)"),
        # Mean of gaps 3.05 > 3.005, ratio of means 2.93 <= 3.00 <= 3.03, and the paper does not say which.
        ("3.00%", 3.0, {"gap_unstated": True}, replace(GAP, other_gap=READ_AS_RATIO), "reproduced"),
    ],
)
def test_the_verdict_of_six_cells_by_hand(
    value: str, number: float, change: dict[str, object], ours: Measured, status: str
) -> None:
    assert judge(printed(value, number), replace(PRESET, **change), ours).status == status  # type: ignore[arg-type]


def test_a_paper_that_says_what_its_gap_is_gets_no_other_reading() -> None:
    both = replace(GAP, other_gap=READ_AS_RATIO)
    assert judge(printed("3.00%", 3.0), PRESET, both).status == "differs"
    verdict = judge(printed("3.00%", 3.0), replace(PRESET, gap_unstated=True), both)
    assert verdict.reason == "100 instances, other instances of the same kind, read as a ratio of means, 2.98"


@pytest.mark.parametrize(("instances", "status"), [(15, "differs (few)"), (16, "differs")])
def test_fewer_than_sixteen_instances_are_called_few(instances: int, status: str) -> None:
    assert judge(printed("9.00%", 9.0), PRESET, measured(5.4, 5.1, 5.7, instances)).status == status


def test_a_part_of_a_library_says_little_of_the_whole() -> None:
    """The 29 small ones of 42 TSPLIB instances are the easy ones; the first 100 of 10,000 uniform ones are a sample."""
    group = replace(PRESET, data=("tsplib:decoder-scaling:n<500",), same_instances=True, paper_instances=42)
    verdict = judge(printed("2.287%", 2.287), group, measured(1.9, 1.6, 2.2, instances=29))
    assert verdict.status == "not comparable"
    assert "29 of the paper's 42 instances" in verdict.reason
    assert judge(printed("2.287%", 2.287), group, measured(1.9, 1.6, 2.2, instances=42)).status == "differs"
    sample = replace(PRESET, same_instances=True, paper_instances=10_000)
    assert judge(printed("2.3%", 2.3), sample, measured(1.9, 1.6, 2.2)) == (
        type(verdict)("differs", "100 of the paper's 10000 instances")
    )


def test_failed_instances_are_told() -> None:
    verdict = judge(printed("2.0%", 2.0), PRESET, measured(1.9, 1.6, 2.2, failed=3))
    assert verdict.reason == "100 instances, other instances of the same kind, 3 more failed"


def test_weights_that_the_paper_trained_on_less_are_held_against_that() -> None:
    """Decoder scaling's Table 3: 60 epochs of 0.1M instances are 6.0M samples, not the 61.44M of its other networks."""
    weights = {
        "name": "decoder-6x128-0.1m", "share_of_paper": 0.09766, "samples": 6_000_000, "departures": [],
    }  # fmt: skip
    ours = measured(1.7, 1.6, 1.8, weights=weights)
    assert judge(printed("1.72%", 1.72), PRESET, ours).status == "other weights"
    assert (
        judge(printed("1.72%", 1.72), replace(PRESET, trained_samples=6_000_000), ours).status == "reproduced"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ours": {"beta2": "not stated; PyTorch's default"}}, ""),
        ({"ours": {"batch": "4; the paper: 1024", "lr": "1; the paper: 2"}}, "(batch 4; the paper: 1024), (lr 1;"),
        ({"ours": {"states": "of labels and its own; the paper: of labels alone"}}, "(states of labels and its own;"),
        ({"ours": {"size": "20; the paper: 100"}}, "(size 20; the paper: 100)"),
        ({"ours": {}}, "does not say whether it was trained by the paper's recipe"),
        ({"samples": 1000, "share_of_paper": 0.1}, "10 % of the paper's training samples"),
        ({"samples": 0, "share_of_paper": None, "recipe": {"imported_from": "checkpoint-150.pt"}}, ""),
        ({"share_of_paper": None}, "mine has seen 10,000 training samples of size 100, which the paper gives no count"),
    ],
)  # fmt: skip
def test_weights_are_the_papers_by_samples_and_recipe(changes: dict[str, Any], told: str) -> None:
    """As many samples as the paper's by another batch, another way to learn or on another size are other weights."""
    plain = Manifest(
        "mine", "lehd", {}, "tsp", 1, "s", 10, 10_000, TrainingData("uniform", 100, 100), {"batch": 1024}, 1, 1.0,
        {}, "0.2.0", paper_samples=10_000, share_of_paper=1.0, ours={"beta2": "not stated"},
    )  # fmt: skip
    facts = WeightsFile(Path("mine.safetensors"), replace(plain, **changes)).facts()
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(0.464, 0.4, 0.5, weights=facts))
    assert verdict.status == ("other weights" if told else "reproduced")
    assert told in verdict.reason


@pytest.mark.parametrize("weights", [{"name": "lehd", "share_of_paper": 1.0}, {"name": "lehd"}])
def test_records_from_before_they_said_the_recipe_are_of_other_weights(weights: dict[str, Any]) -> None:
    verdict = judge(printed("0.464%", 0.464), PRESET, measured(0.464, 0.4, 0.5, weights=weights))
    assert verdict.status == "other weights"


def test_what_is_read_of_a_part_of_a_library_says_so_whatever_else_it_says() -> None:
    """The mean of the 16 smallest stood under "All", as many solved of them beside the paper's count of all."""
    library = replace(PRESET, data=("tsplib:sit",), same_instances=True, paper_instances=33)
    part = "16 of the paper's 33 instances, the smallest first"
    other = {"name": "lehd", "share_of_paper": 0.5, "samples": 10}
    gap = judge(printed("3.1%", 3.1), library, measured(7.0, 6.0, 8.0, 16, weights=other))
    assert gap.status == "other weights"
    assert gap.reason.endswith(f"; of {part}")
    solved = judge(printed("33", 33.0), replace(library, metric="solved"), measured(16.0, None, None, 16))
    assert (solved.status, solved.reason) == ("not comparable", f"of {part}")
    seconds = measured(1.0, None, None, 16, busy="beside a load of 4 on 2 cores, so an upper bound")
    timed = replace(library, metric="seconds")
    both = judge(printed("1m", 60.0), timed, seconds).reason
    assert (
        both == f"measured on other hardware beside a load of 4 on 2 cores, of {part}, so no bound either way"
    )
    assert judge(printed("1m", 60.0), timed, measured(1.0, None, None, 16)).reason == (
        f"measured on other hardware, of {part}, so too low"
    )
    whole = judge(printed("33", 33.0), replace(library, metric="solved"), measured(33.0, None, None, 33))
    assert whole.status == "reproduced"
