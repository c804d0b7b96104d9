"""The newcomer's path through the real command line: generate, run, report, verify; JSON as the contract says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOLVERS = ["concorde", "lkh3", "random-insertion", "nearest-neighbor", "two-opt", "decoder-6x128"]


def nco_bench(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "nco_bench", *arguments], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def first_minute(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder in which the demo's commands were run, and what `run --json` printed."""
    folder = tmp_path_factory.mktemp("first-minute")
    nco_bench("generate", "tsp", "--n", "50", "--count", "6", "--reference", "concorde", cwd=folder)
    printed = nco_bench("run", *SOLVERS, "--data", "tsp50:count=6", "--repeats", "2", "--json", cwd=folder)
    return folder, json.loads(printed)


def test_run_prints_the_cells_of_the_contract(first_minute: tuple[Path, dict[str, Any]]) -> None:
    _, printed = first_minute
    assert [cell["solver"] for cell in printed["cells"]] == SOLVERS
    assert len(printed["run_ids"]) == 1
    needed = {
        "solver", "decoding", "dataset", "dataset_sha256", "problem", "instances", "failed", "repeats", "mean_cost",
        "mean_reference", "mean_gap_percent", "gap_of_means_percent", "gap_std_percent", "seconds_total",
        "seconds_per_instance", "peak_memory_mb", "device", "convention", "reference_solver", "seed", "weights",
    }  # fmt: skip
    for cell in printed["cells"]:
        assert needed <= cell.keys()
        assert (cell["instances"], cell["failed"], cell["repeats"]) == (6, 0, 2)
        assert cell["seconds_total"] > 0


def test_the_order_of_the_solvers_is_that_of_the_literature(
    first_minute: tuple[Path, dict[str, Any]],
) -> None:
    gaps = {cell["solver"]: cell["mean_gap_percent"] for cell in first_minute[1]["cells"]}
    assert gaps["concorde"] == pytest.approx(0.0, abs=1e-6)
    assert gaps["lkh3"] == pytest.approx(0.0, abs=0.05)
    assert 0.0 < gaps["decoder-6x128"] < gaps["nearest-neighbor"]
    assert 2.0 < gaps["random-insertion"] < 20.0
    assert 12.0 < gaps["nearest-neighbor"] < 40.0


def test_weights_are_named_with_their_hash(first_minute: tuple[Path, dict[str, Any]]) -> None:
    cell = next(c for c in first_minute[1]["cells"] if c["solver"] == "decoder-6x128")
    assert cell["weights"] == "decoder-6x128"


def test_report_gives_the_same_numbers_in_every_format(first_minute: tuple[Path, dict[str, Any]]) -> None:
    folder, printed = first_minute
    tables = json.loads(nco_bench("report", "--json", cwd=folder))["tables"]
    assert {"name", "caption", "columns", "rows"} <= tables[0].keys()
    gap = next(c for c in printed["cells"] if c["solver"] == "nearest-neighbor")["mean_gap_percent"]
    for option in ("--markdown", "--latex", "--csv"):
        text = nco_bench("report", option, cwd=folder)
        assert f"{gap:.2f}" in text or f"{gap:.3f}" in text


def test_verify_finds_nothing(first_minute: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = first_minute
    checked = json.loads(nco_bench("verify", "--json", cwd=folder))
    assert checked["ok"]
    assert checked["records"] == 6 * 2 * len(SOLVERS)


def test_a_tour_is_drawn(first_minute: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = first_minute
    nco_bench("plot", "tour", "--solver", "lkh3", "--data", "tsp50:count=6", "--out", "tour.png", cwd=folder)
    assert (folder / "tour.png").read_bytes().startswith(b"\x89PNG")


def test_json_commands_print_one_document_and_nothing_else(first_minute: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = first_minute
    for kind in (
        "solvers",
        "datasets",
        "distributions",
        "decodings",
        "models",
        "weights",
        "tables",
        "papers",
    ):
        listed = json.loads(nco_bench("list", kind, "--json", cwd=folder))
        assert all("name" in entry for entry in listed)
        assert listed
    solver = next(
        s for s in json.loads(nco_bench("list", "solvers", "--json", cwd=folder)) if s["name"] == "lkh3"
    )
    assert {"problems", "kind", "paper", "decodings", "available", "missing"} <= solver.keys()
    assert json.loads(nco_bench("show", "lkh3", "--json", cwd=folder))["name"] == "lkh3"
    assert json.loads(nco_bench("show", "tsp50", "--json", cwd=folder))["references"]["count"] == 6
    assert json.loads(nco_bench("doctor", "--json", cwd=folder))["solvers"]
