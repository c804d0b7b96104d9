"""`nco-bench reproduce` from presets through runs to tables, on the smallest scale there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_bench.cli import app
from nco_bench.papers import preset
from nco_bench.reports.frame.load import load_frame

REPOSITORY = Path(__file__).resolve().parents[2]


def reproduce(results: Path, *arguments: str) -> int:
    places = ["--results", str(results), "--instances", str(REPOSITORY / "instances")]
    return app.run(["reproduce", *arguments, *places])


def rows(text: str) -> dict[tuple[str, str], dict[str, Any]]:
    (table,) = json.loads(text)["tables"]
    return {(cell["row"], cell["column"]): cell for cell in table["cells"]}


def test_a_table_runs_resumes_and_agrees_with_the_records_that_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    arguments = ("decoder-scaling", "--table", "12", "--limit", "1", "--json")
    assert reproduce(tmp_path, *arguments) == 0
    first = capfd.readouterr().out
    found = rows(first)
    ours = found["D=6, W=128 greedy", "TSP100 | Gap"]
    kept = load_frame(REPOSITORY / "results" / "neural").select(solvers=["decoder-6x128"])
    greedy = [g.cell.decoding == "greedy" and g.cell.dataset == "tsp100:count=1000" for g in kept.groups]
    same = kept.records[np.array(greedy)[kept.records["group"]] & (kept.records["instance"] == 0)]
    assert ours["measured"] == pytest.approx(same["gap_percent"].iloc[0], abs=1e-6)
    assert (ours["published"], ours["status"], ours["instances"]) == (0.464, "other weights", 1)
    missing = found["D=12, W=128 greedy", "TSP100 | Gap"]
    assert missing["status"] == "weights missing"
    assert missing["reason"] == "No weights called 'decoder-12x128' for decoder-12x128"
    assert found["LKH3", "TSP100 | Gap"]["reason"] == "the reference itself: zero by definition"
    time = found["D=6, W=128 greedy", "TSP100 | Time"]
    assert time["status"] == "not comparable"
    (record,) = load_frame(tmp_path).select(solvers=["decoder-6x128"]).records.itertuples()
    assert time["measured"] == pytest.approx(record.seconds * 10_000 / 60)  # minutes for the paper's 10,000

    assert reproduce(tmp_path, *arguments) == 0
    assert rows(capfd.readouterr().out) == found
    assert len(load_frame(tmp_path).select(solvers=["decoder-6x128"]).records) == 1


def test_libraries_of_sit_and_cells_too_large_for_the_scale(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is left out is said; the sizes of the libraries are those that the paper prints."""
    assert reproduce(tmp_path, "sit", "--table", "2", "--json") == 0
    counts = rows(capfd.readouterr().out)
    assert counts["GLOP", "TSPLIB | Instances"]["status"] == "setting matches"
    assert counts["GLOP", "TSPLIB All | Gap"]["reason"].startswith("too much for the smoke scale")


def test_both_readings_of_where_lambda_acts_stand_beside_the_printed_number(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    assert reproduce(tmp_path, "eie", "--table", "2", "--limit", "2", "--json") == 0
    found = rows(capfd.readouterr().out)
    lengths = {
        scale: [found[scale, f"n={n} | Mean"]["measured"] for n in (100, 200)]
        for scale in ("lambda = 1/sqrt(d)", "EIE", "EIE (encoder and glimpse)")
    }
    plain, encoder, both = lengths.values()
    assert plain[0] == encoder[0] == both[0]  # EIE is 1/sqrt(d) at the training size
    assert len({plain[1], encoder[1], both[1]}) == 3
    assert found["EIE (encoder and glimpse)", "n=200 | Mean"]["published"] == 26.0
    scales = {cell["preset"]["logit_scale"] for cell in found.values() if "logit_scale" in cell["preset"]}
    kept = {group.cell.options["logit_scale"] for group in load_frame(tmp_path).groups}
    assert scales == {"none", "eie", "eie:at=both", "ln-n-over-d", "ln-n-over-d:at=both"}
    assert kept == {"none", *(f"{s}:at={p}" for s in ("eie", "ln-n-over-d") for p in ("encoder", "both"))}


def test_a_time_over_several_tasks_is_the_mean_of_their_times(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "tropical" / "presets"
    folder.mkdir(parents=True)
    (folder / "table-2.toml").write_text("""
        [[rule]]
        cannot = "not here"
        [[rule]]
        row = "Tropical .*"
        column = "CPU time"
        metric = "seconds"
        solver = "tropical"
        device = "cpu"
        mean_of = ["quickselect", "scc:length-ood"]
        count = { smoke = 3 }
        readings = { "alone" = { metric = "latency" } }
    """)
    monkeypatch.setattr(preset, "paper_room", lambda paper: tmp_path / paper)
    assert reproduce(tmp_path / "results", "tropical", "--table", "2", "--json") == 0
    said = capfd.readouterr()
    found = rows(said.out)
    ours, alone = (found[row, "CPU time"] for row in ("Tropical Transformer", "Tropical Transformer (alone)"))
    frame = load_frame(tmp_path / "results")
    means = frame.records.groupby("group")["seconds"].mean()
    assert len(means) == 2
    assert ours["measured"] == pytest.approx(1e3 * means.mean())  # milliseconds
    assert alone["measured"] == pytest.approx(1e3 * np.mean([g.latency_seconds for g in frame.groups]))
    assert (ours["instances"], ours["status"]) == (6, "not comparable")
    assert ours["reason"].startswith("mean over 2 datasets; measured on")
    assert "9 printed numbers" in said.err


@pytest.mark.parametrize("form", ["--markdown", "--csv", "--latex"])
def test_computed_tables_need_no_results_and_come_in_every_format(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    pytest.importorskip("torch")
    assert reproduce(tmp_path, "decoder-scaling", "--table", "1", form) == 0
    text = capfd.readouterr().out
    assert "143.8" in text
    assert text.count("agrees") >= (1 if form == "--latex" else 6)  # a footnote there


def test_files_of_a_folder_are_named_by_table_and_scale(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert reproduce(tmp_path, "decoder-scaling", "--table", "9", "--out", str(tmp_path / "tables")) == 0
    assert [p.name for p in (tmp_path / "tables").iterdir()] == ["decoder-scaling-table-9-smoke.md"]


def test_mistakes_end_with_status_2_and_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, "sit", "--table", "12") == 2
    assert reproduce(tmp_path, "sit", "--scale", "huge") == 2
    errors = capfd.readouterr().err.strip().splitlines()
    assert errors[0].startswith("error: sit has no table '12'; choose one of 1, 2")
    assert "Unknown scale 'huge'" in errors[1]
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--status", "--markdown"], "leave --markdown out"),
        (["--status", "--out", "tables"], "leave --out out"),
        (["--fill", "--budget", "1m", "--csv"], "leave --csv out"),
        (["--fill"], "--fill needs a budget"),
        (["--fill", "--budget", "soon"], "--budget 'soon'"),
    ],
)
def test_standing_refuses_what_it_would_ignore_before_it_reads_a_record(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("nco_bench.papers.stored.stored_in", lambda *_: pytest.fail("read the records"))
    assert reproduce(tmp_path, "pens", *arguments) == 2
    assert said in capfd.readouterr().err
    assert not any(tmp_path.iterdir())
