"""The table of tasks from stored runs: baselines, seeds, verification of counts."""

import re
from pathlib import Path

import numpy as np
import orjson
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.datasets.load import Places
from nco_bench.problems.tasks import generate
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.render.csv import render
from nco_bench.reports.tables.table import build_table
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run
from nco_bench.runs.verify import verify
from nco_bench.seals import seal_line, unseal_line

CLASSES, NUMBERS = "knapsack:length-ood:n=16:count=40", "floyd-warshall:count=30"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    solvers = ("all-positive", "majority", "mean", "exact")
    run(RunRequest(solvers, (CLASSES, NUMBERS), folder / "runs", Places(folder)), QuietDisplay())
    return folder


def metrics(runs: Path, dataset: str) -> dict[str, dict]:
    data = build_table("tasks", load_frame(runs / "runs")).data
    return {d["method"]: d["metrics"] for d in data if d["dataset"] == dataset}


def test_baselines_score_as_their_base_rates_say(runs: Path) -> None:
    labels = generate("knapsack", "length-ood", 16, 40).targets
    p = labels.mean()
    found = metrics(runs, "knapsack:length-ood:n=16:count=40")
    assert found["all-positive"]["f1"]["mean"] == pytest.approx(100 * 2 * p / (1 + p))
    assert found["all-positive"]["accuracy"]["mean"] == pytest.approx(100 * p)
    # The training distribution has 47 % positives, so its majority is 0.
    assert found["majority"]["accuracy"]["mean"] == pytest.approx(100 * (1 - p))
    assert found["majority"]["f1"]["mean"] == 0
    assert {m: v["mean"] for m, v in found["exact"].items()} == {"f1": 100.0, "accuracy": 100.0}


def test_mean_is_that_of_the_training_distribution(runs: Path) -> None:
    labels = generate("floyd-warshall", count=30).targets
    found = metrics(runs, NUMBERS)
    training_mean = generate("floyd-warshall", count=4000, seed=77).targets.mean()
    assert found["mean"]["mse"]["mean"] == pytest.approx(((labels - training_mean) ** 2).mean(), rel=0.02)
    # Not the test set's own mean, which no constant beats.
    assert found["mean"]["mse"]["mean"] > labels.var()
    assert found["exact"]["mse"]["mean"] == 0


def test_intervals_hold_the_metric_between_them(runs: Path) -> None:
    f1 = metrics(runs, CLASSES)["all-positive"]["f1"]
    assert f1["low"] < f1["mean"] < f1["high"]


def test_no_two_columns_have_one_name(runs: Path) -> None:
    """Bounds say of which metric they are: pandas would rename the second ``low (%)`` of a CSV to ``low (%).1``."""
    [header, *_] = render(build_table("tasks", load_frame(runs / "runs"))).splitlines()
    names = header.split(",")
    assert len(names) == len(set(names))
    assert any("F1 low (%)" in name for name in names)


def test_an_untouched_run_verifies_and_changed_counts_are_named(runs: Path, tmp_path: Path) -> None:
    assert verify(runs / "runs", (), Places(runs)).findings == ()
    [path] = (runs / "runs").glob("*/records.jsonl")
    copy = tmp_path / "runs" / path.parent.name
    copy.mkdir(parents=True)
    for file in path.parent.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    lines = [orjson.loads(unseal_line(line)) for line in path.read_bytes().splitlines(keepends=True)]
    lines[0]["counts"]["tp"] += 1
    (copy / path.name).write_bytes(b"".join(seal_line(orjson.dumps(line) + b"\n") for line in lines))
    [finding] = verify(tmp_path / "runs", (), Places(runs)).findings
    assert re.search(r"the record counts tp \d+, the stored solution has \d+", str(finding))


def weighted(results: Results, run: str, name: str, true: list[int], steps: int = 10) -> None:
    """Store one weights file's cell: of two positives per instance, `true` were found; no false positives."""
    weights = {
        "name": name,
        "sha256": name * 4,
        "steps": steps,
        "training_size": 8,
        "training_distribution": "id",
    }
    cell = make_cell(
        0, "tropical", "knapsack", label=f"tropical:weights={name}", kind="neural", problem="algorithmic",
        objective="max", convention="accuracy", weights=weights, config_sha256=f"config-{name}", reference_solver=None,
    )  # fmt: skip
    records = make_records(cell, [0.5] * len(true), [None] * len(true))
    for record, tp in zip(records, true, strict=True):
        record.counts = {"tp": tp, "fp": 0, "fn": 2 - tp, "tn": 6}
    results.run(run, (cell, records))


def test_weights_trained_alike_are_seeds_of_one_row(results: Results) -> None:
    """F1 of the seeds: 2 * 4 / (2 * 4 + 0) = 1 and 2 * 2 / (2 * 2 + 2) = 2/3."""
    weighted(results, "r1", "a", [2, 2])
    weighted(results, "r2", "b", [1, 1])
    table = build_table("tasks", load_frame(results.folder))
    [row] = table.data
    assert row["method"] == "tropical"
    values = [100.0, 100 * 2 / 3]
    f1 = row["metrics"]["f1"]
    assert (f1["seeds"], f1["low"]) == (2, None)
    assert f1["mean"] == pytest.approx(np.mean(values))
    assert f1["std"] == pytest.approx(np.std(values, ddof=1))
    assert "over 2 training seeds" in table.caption


def test_weights_trained_differently_have_rows_of_their_own(results: Results) -> None:
    weighted(results, "r1", "a", [2, 2])
    weighted(results, "r2", "b", [1, 1], steps=20)
    table = build_table("tasks", load_frame(results.folder))
    assert len(table.rows) == 2
    assert {row["metrics"]["f1"]["seeds"] for row in table.data} == {1}


def test_records_without_counts_load_and_have_no_pooled_metrics(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("r1", (cell, make_records(cell, [7.0, 8.0], [7.0, 8.0])))
    weighted(results, "r2", "a", [2, 1])
    frame = load_frame(results.folder)
    assert frame.records["count_tp"].isna().tolist() == [True, True, False, False]
    line = next(results.folder.glob("r1*/records.jsonl")).read_bytes().splitlines()[0]
    assert b"counts" not in line
    assert [row["solver"] for row in build_table("tasks", frame).data] == ["tropical"]


def test_many_datasets_stand_below_each_other_with_the_best_of_each(tmp_path: Path) -> None:
    names = tuple(f"quickselect:length-ood:n={n}:count=20" for n in (8, 9, 10, 11, 12))
    run(RunRequest(("all-positive", "exact"), names, tmp_path / "runs", Places(tmp_path)), QuietDisplay())
    table = build_table("tasks", load_frame(tmp_path / "runs"))
    assert [column.key for column in table.columns][:3] == ["dataset", "method", "f1"]
    by_name = {(row.cells[0].text.split()[0], row.cells[1].text): row.cells[2] for row in table.rows}  # type: ignore[union-attr]
    assert len(by_name) == 10
    for n, name in zip((8, 9, 10, 11, 12), names, strict=True):
        p = generate("quickselect", "length-ood", n, 20).targets.mean()
        assert by_name[name, "all-positive"].value == pytest.approx(100 * 2 * p / (1 + p))  # type: ignore[union-attr]
        assert by_name[name, "exact"].rank == 1  # type: ignore[union-attr]
        assert by_name[name, "all-positive"].rank != 1  # type: ignore[union-attr]
