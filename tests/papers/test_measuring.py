"""Gaps to a mean that a paper prints, and weights of which the first at hand count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nco_bench.datasets.load import Places
from nco_bench.papers.entries import in_printed_unit
from nco_bench.papers.judging import judge
from nco_bench.papers.measuring import (
    Columns,
    Measured,
    Records,
    _against,
    _of_these,
    _over_repeats,
    _ratio,
    crowding,
)
from nco_bench.papers.preset import CellPreset, load_preset, numeric_cells
from nco_bench.papers.published import PublishedCell, load_table
from nco_bench.papers.reproducing import reproduce
from nco_bench.papers.running import Runner, weights_at_hand, weights_missing
from nco_bench.reports.frame.best_known import gap_percents
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.records import STATUSES

REPOSITORY = Path(__file__).resolve().parents[2]


def test_random_insertion_as_sit_ran_it_gives_the_cost_and_the_gap_that_sit_prints() -> None:
    """57.42 and 58.2 %: the gap is to HGS's printed mean, not to the references that came with the instances."""
    printed = {(c.row, c.column): c for c in load_table("sit", 1).cells}
    cell = printed["Random Insertion", "CVRP1K | Gap"]
    preset = load_preset("sit", 1).cell(cell, "cpu")
    assert preset.reference_mean == printed["HGS", "CVRP1K | Obj."].number
    frame = load_frame(REPOSITORY / "results" / "classical")
    (ours,) = [
        g.cell for g in frame.groups if g.cell.label == preset.solver and g.cell.dataset == "lehd_cvrp1000"
    ]
    records = Records(frame)
    assert records.part(ours, 3, 1)["instance"].tolist() == [0, 1, 2]
    cost = records.measure("cost", ours, 128, 1)
    gap = records.measure(preset.metric, ours, 128, 1, preset.reference_mean)
    assert cost.value == pytest.approx(57.42, abs=0.005)
    assert gap.value == pytest.approx(58.2, abs=0.05)
    assert gap.low is not None
    assert gap.high is not None
    assert cost.low is not None
    assert gap.low == pytest.approx(100 * (cost.low - 36.29) / 36.29, abs=1e-6)
    # Beside LKH-3's solutions of the same instances, costs vary by two thirds of what they do alone.
    assert cost.of_these is not None
    assert cost.high is not None
    assert cost.of_these[1] - cost.of_these[0] < (cost.high - cost.low) * 0.67
    assert sum(cost.of_these) / 2 == pytest.approx(cost.value, abs=0.1)
    assert records.measure("gap-of-means", ours, 128, 1).value == pytest.approx(
        54.8, abs=0.1
    )  # to LKH-3's 37.09


def test_weights_that_ship_stand_in_where_the_official_ones_are_not_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    monkeypatch.setattr("nco_bench.weights.store.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("nco_bench.weights.pulling.cache_folder", lambda: tmp_path)
    monkeypatch.setattr("nco_bench.weights.choice.cache_folder", lambda: tmp_path)
    weights_missing.cache_clear()
    assert weights_at_hand("lehd", ("official-tsp100", "lehd"), "tsp") == (("lehd",), "")
    chosen, reason = weights_at_hand("lehd", ("official-tsp100", "lehd-of-nobody"), "tsp")
    assert chosen == ()
    assert "lehd-official-tsp100" in reason
    assert weights_at_hand("lehd", ("random",), "tsp") == (("random",), "")
    weights_missing.cache_clear()


def test_rows_of_lehd_prefer_the_official_weights() -> None:
    for paper, number, row in (("pens", 2, "LEHD"), ("decoder-scaling", 5, "LEHD greedy")):
        preset = load_preset(paper, number)
        found = [preset.cell(c, "cpu") for c in numeric_cells(load_table(paper, number)) if c.row == row]
        assert {f.weights for f in found} == {("official-tsp100", "lehd")}


def test_part_of_a_set_has_no_gap_to_the_mean_of_the_whole(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIT prints HGS's mean over LEHD's 128 instances: neither it nor the set's own references serve three of them."""
    pytest.importorskip("random_insertion")
    whole = load_table("sit", 1)
    cells = tuple(whole.cell("Random Insertion", f"CVRP1K | {metric}") for metric in ("Obj.", "Gap"))
    runner = Runner(tmp_path, Places(tmp_path, shared), QuietDisplay(), limit=3)
    (done,) = reproduce([replace(whole, cells=cells)], "cpu", runner)
    cost, gap = done.entries
    assert cost.measured is not None
    assert (cost.measured.instances, cost.measured.cell.dataset) == (3, "lehd_cvrp1000")
    assert gap.value is None
    assert gap.verdict.status == "not comparable"
    assert gap.verdict.reason.startswith(
        "the paper's reference is a mean of 36.29 over all 128 instances; 3 of"
    )


def test_a_set_with_a_failure_has_no_gap_to_the_mean_of_the_whole() -> None:
    cell = load_table("sit", 1).cell("Random Insertion", "CVRP1K | Gap")
    preset = load_preset("sit", 1).cell(cell, "cpu")
    frame = load_frame(REPOSITORY / "results" / "classical")
    lost = frame.records["instance"] == 5
    frame.records.loc[lost, "status"] = STATUSES.index("failed")
    (ours,) = [
        g.cell for g in frame.groups if g.cell.label == preset.solver and g.cell.dataset == "lehd_cvrp1000"
    ]
    found = Records(frame).measure(preset.metric, ours, 128, 1, preset.reference_mean)
    assert (found.value, found.failed) == (None, 1)
    reason = judge(cell, preset, found).reason
    assert reason == "1 of 128 instances was not solved, and only all have a gap to the paper's mean"


def columns(ids: list[int], cost: list[float], reference: list[float], sign: float = 1.0) -> Columns:
    """Per-instance means, each instance with its gap."""
    costs, references = np.array(cost), np.array(reference)
    return Columns(
        np.array(ids), costs, references, gap_percents(costs, references, sign), np.ones(len(ids)), sign
    )


def test_what_varies_with_the_references_alone_is_no_error_of_a_ratio() -> None:
    """Costs are 1.5 times references of 1, 2, 4 and 8: the ratio is known exactly, the mean of 5.625 is not."""
    found = columns([0, 1, 2, 3], [1.5, 3.0, 6.0, 12.0], [1.0, 2.0, 4.0, 8.0])
    assert _ratio(found) == (pytest.approx(50.0), pytest.approx(50.0), pytest.approx(50.0), 4)
    assert _of_these(found) == pytest.approx((5.625, 5.625))
    higher = columns([0, 1], [6.0, 9.0], [8.0, 12.0], -1.0)  # of scores: a quarter is missing
    assert _ratio(higher)[:3] == pytest.approx((25.0, 25.0, 25.0))


def test_costs_are_held_against_those_of_the_same_instances() -> None:
    ours = columns([0, 2, 5], [11.0, 12.0, 13.0], [np.nan] * 3)
    held = _against(ours, columns([2, 3, 5], [10.0, 1.0, np.nan], [np.nan] * 3))
    assert held.reference.tolist() == pytest.approx([np.nan, 10.0, np.nan], nan_ok=True)
    assert held.gap.tolist() == pytest.approx([np.nan, 20.0, np.nan], nan_ok=True)
    scores = columns([2], [8.0], [np.nan], -1.0)
    assert _against(scores, columns([2], [10.0], [np.nan], -1.0)).gap.tolist() == pytest.approx([20.0])


def test_the_spread_over_repeats_is_that_of_their_means_over_solved_instances() -> None:
    """Means 2 and 4: sqrt(2). The failed solve of the second repeat has no cost that counts."""
    ok, failed = STATUSES.index("ok"), STATUSES.index("failed")
    rows = [(0, ok, 1.0), (0, ok, 3.0), (1, ok, 4.0), (1, failed, 9.0)]
    part = pd.DataFrame(rows, columns=["repeat", "status", "cost"])
    assert _over_repeats(part, 2) == pytest.approx(2**0.5)
    assert _over_repeats(part, 1) is None


def test_a_load_that_slows_is_that_of_the_quietest_run() -> None:
    busy_one, quiet = ({"load_average": [load, 0, 0], "cpu_count": 2} for load in (8.0, 3.0))
    assert crowding([busy_one, quiet, {}]) == 1.5
    assert (crowding([{"load_average": [0.1, 0, 0], "cpu_count": 2}]), crowding([])) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("unit", "printed_count", "metric", "expected"),
    [
        ("seconds", 0, "latency", 1.5),
        ("milliseconds", 0, "latency", 1500.0),
        ("seconds", 128, "seconds", 192.0),
        ("minutes", 10_000, "seconds", 250.0),
        ("hours", 10_000, "seconds", 15_000 / 3600),
        ("percent", 10_000, "gap", 1.5),
    ],
)
def test_seconds_of_an_instance_become_what_is_printed(
    unit: str, printed_count: int, metric: str, expected: float
) -> None:
    cell = PublishedCell("LEHD", "TSP100 | Time", "1", 1.0, unit, None)
    measured: Any = Measured(1.5, None, None, 100, cell=None)  # type: ignore[arg-type]
    found = in_printed_unit(measured, CellPreset(metric=metric, printed_count=printed_count), cell)
    assert (found.value, found.low) == (pytest.approx(expected), None)
