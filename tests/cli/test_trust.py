"""What a user may rely on: a name means one set, a gap follows the references, stored records stay what they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from schema_1 import as_schema_1

from nco_bench.cli.app import run
from nco_bench.datasets.generate import generate
from nco_bench.problems import tsp
from nco_bench.runs.finding import find_runs

Command = Callable[..., tuple[str, str]]


@pytest.fixture
def nco_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, in an empty folder; returns what it prints on stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)

    def call(*arguments: str) -> tuple[str, str]:
        capfd.readouterr()
        status = run(list(arguments))
        out, err = capfd.readouterr()
        assert status == 0, err
        return out, err

    return call


def cells(nco_bench: Command, *arguments: str) -> dict[str, dict[str, Any]]:
    """The cells of a report by label and dataset."""
    (table,) = json.loads(nco_bench("report", "--json", *arguments)[0])["tables"]
    return {f"{cell['label']} on {cell['dataset']}": cell for cell in table["cells"]} | {"table": table}


def records(folder: Path) -> list[Any]:
    return [record for one in find_runs(folder) for record in one.records()]


def test_a_stored_set_of_another_count_changes_nothing(nco_bench: Command) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "4")
    before = records(Path("results/runs"))
    nco_bench("generate", "tsp", "--n", "30", "--count", "16")
    assert json.loads(nco_bench("verify", "--json")[0])["ok"]
    _, talk = nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "4")
    assert "4 of 4 stored before" in talk
    assert records(Path("results/runs")) == before
    assert json.loads(nco_bench("show", "tsp30", "--json")[0])["count"] == 10_000


@pytest.mark.parametrize("first", ["tsp30:count=6", "tsp30"])
@pytest.mark.parametrize("old", [False, True])
def test_sets_that_begin_alike_share_their_records(nco_bench: Command, first: str, old: bool) -> None:
    other = {"tsp30:count=6": "tsp30", "tsp30": "tsp30:count=6"}[first]
    nco_bench("run", "random-insertion", "--data", first, "--limit", "6")
    if old:
        as_schema_1(Path("results/runs"))
    _, talk = nco_bench("run", "random-insertion", "--data", other, "--limit", "6")
    assert "6 of 6 stored before" in talk
    assert len(records(Path("results/runs"))) == 6
    assert json.loads(nco_bench("verify", "--json")[0])["ok"]


def test_records_hold_the_hash_of_what_was_solved(nco_bench: Command) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp30:count=6", "--limit", "3-5")
    hashes = generate("tsp", 30).instance_hashes
    assert [(r.instance, r.instance_sha256) for r in records(Path("results/runs"))] == [
        (i, hashes[i]) for i in (2, 3, 4)
    ]
    path = next(Path("results/runs").glob("*/records.jsonl"))
    path.write_bytes(path.read_bytes().replace(hashes[3].encode(), hashes[0].encode()))
    findings = run(["verify"])
    assert findings == 1


def test_run_compare_and_report_mean_the_same_set_by_a_name(nco_bench: Command) -> None:
    """One was run on the first 6 of tsp30, the other on the first 4 under the longer name, and on 4 to 8."""
    nco_bench("run", "random-insertion", "--data", "tsp30:count=6")
    nco_bench("run", "farthest-insertion", "--data", "tsp30", "--limit", "4")
    nco_bench("run", "farthest-insertion", "--data", "tsp30", "--limit", "5-8")
    everything = cells(nco_bench)
    assert everything["table"]["columns"][1]["group"] == "tsp30 (8)"
    assert everything["random-insertion on tsp30"]["instances"] == 6
    assert everything["farthest-insertion on tsp30"]["instances"] == 8
    six = cells(nco_bench, "--data", "tsp30:count=6")
    assert six["table"]["columns"][1]["group"] == "tsp30:count=6 (6)"
    costs = [r.cost for r in records(Path("results/runs")) if r.instance < 6][6:]
    assert six["farthest-insertion on tsp30:count=6"]["mean_cost"] == pytest.approx(np.mean(costs))
    arguments = ("compare", "random-insertion", "farthest-insertion", "--json", "--data")
    assert json.loads(nco_bench(*arguments, "tsp30:count=6")[0])["instances"] == 6
    paired = json.loads(nco_bench(*arguments, "tsp30")[0])
    assert (paired["instances"], paired["only_a"], paired["only_b"]) == (6, 0, 2)
    printed, _ = nco_bench(
        "run", "random-insertion", "farthest-insertion", "--data", "tsp30:count=6", "--json"
    )
    assert [c["instances"] for c in json.loads(printed)["cells"]] == [6, 6]
    assert {c["dataset"] for c in json.loads(printed)["cells"]} == {"tsp30:count=6"}


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("name", ["tsp30:count=5", "tsp30:count=7"])
def test_a_gap_appears_when_its_reference_does_and_no_solver_runs_again(
    nco_bench: Command, old: bool, name: str
) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp30:count=5")
    if old:
        as_schema_1(Path("results/runs"))
    before = records(Path("results/runs"))
    assert cells(nco_bench)["random-insertion on tsp30:count=5"]["mean_gap_percent"] is None
    nco_bench("reference", name, "--solver", "two-opt")
    first = cells(nco_bench)
    nco_bench("reference", name, "--solver", "lkh3")
    second = cells(nco_bench)
    assert records(Path("results/runs")) == before
    best = {r.instance: r.cost for r in records(Path("instances/references"))}  # LKH's came last
    gaps = [100 * (r.cost / best[r.instance] - 1) for r in before]
    found = [t["random-insertion on tsp30:count=5"]["mean_gap_percent"] for t in (first, second)]
    assert found[1] == pytest.approx(np.mean(gaps))
    assert found[0] < found[1]
    today = json.loads(nco_bench("show", name, "--json")[0])
    assert today["references"]["count"] == int(name[-1])
    assert "lkh3, found 20" in second["table"]["caption"]
    sentence, _ = nco_bench("compare", "random-insertion", "random-insertion", "--data", "tsp30:count=5")
    assert f" {found[1]:.4f} %, " in sentence
    assert "percentage points of gap" in sentence


def test_references_made_with_a_set_fill_the_gaps_of_what_was_run_before(nco_bench: Command) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "3")
    nco_bench("generate", "tsp", "--n", "30", "--count", "4", "--reference", "two-opt")
    found = cells(nco_bench)["random-insertion on tsp30"]
    instances = generate("tsp", 30, 4).instances
    runs = find_runs(Path("instances/references"))
    best = {
        r.instance: tsp.score(instances[r.instance], one.solution(r)) for one in runs for r in one.records()
    }
    costs = {r.instance: r.cost for r in records(Path("results/runs"))}
    assert found["mean_gap_percent"] == pytest.approx(
        np.mean([100 * (costs[i] / best[i] - 1) for i in range(3)])
    )
    assert found["references"][0]["instances"] == 3


STOPS = """
import numpy as np
from pathlib import Path
from nco_bench.solvers import register

@register("stops", problems=("tsp",))
class Stops:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        if seed == 1234 + 3 and Path("hold").exists():
            raise KeyboardInterrupt
        return [np.random.default_rng(seed + j).permutation(i.n) for j, i in enumerate(batch)]
"""


def test_a_run_that_was_stopped_says_so_and_its_second_half_shows_the_gap_of_the_whole(
    nco_bench: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("stops.py").write_text(STOPS)
    Path("hold").touch()
    nco_bench("generate", "tsp", "--n", "9", "--count", "6", "--reference", "two-opt")
    command = ("run", "stops.py", "--in-process", "--data", "tsp9:count=6", "--batch-size", "1")
    assert run(list(command)) == 130
    half = cells(nco_bench)["stops on tsp9:count=6"]
    assert (half["instances"], half["solves"], half["asked_solves"]) == (3, 3, 6)
    for form in ("--latex", "--markdown", "--csv", "--html"):
        assert "3 of the 6 instances asked for" in nco_bench("report", form)[0]
    Path("hold").unlink()
    _, talk = nco_bench(*command)
    whole = cells(nco_bench)["stops on tsp9:count=6"]
    assert f"gap {whole['mean_gap_percent']:.3f} %" in talk
    assert (whole["solves"], whole["asked_solves"]) == (6, 6)
    assert "asked for" not in nco_bench("report", "--latex")[0]
    nco_bench("run", "stops.py", "--in-process", "--data", "tsp9", "--limit", "7-8")
    assert "asked for" not in nco_bench("report", "--latex")[0]


def test_shards_of_a_run_that_was_stopped_know_what_all_of_them_were_asked_for(nco_bench: Command) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp9:count=6", "--jobs", "2")
    (missing, *_) = sorted(Path("results/runs").iterdir())
    for path in missing.iterdir():
        path.unlink()
    missing.rmdir()
    assert cells(nco_bench)["random-insertion on tsp9:count=6"]["asked_solves"] == 6
    assert "3 of the 6 instances asked for" in nco_bench("report", "--latex")[0]


def test_weights_that_were_chosen_are_named_in_their_row(nco_bench: Command) -> None:
    nco_bench("weights", "export", "decoder-6x128", "--out", "mine.safetensors")
    arguments = ("run", "decoder-6x128", "--data", "tsp9:count=2")
    nco_bench(*arguments)
    nco_bench(*arguments, "--weights", "random")
    nco_bench(*arguments, "--weights", "mine.safetensors")
    nco_bench(*arguments, "--weights", "random", "--seed", "7")
    nco_bench("run", "decoder-6x128:weights=random", "--data", "tsp8:count=2")
    text, _ = nco_bench("report", "--latex")
    rows = [
        line.split(" & ")[0] for line in text.splitlines() if line.startswith("decoder") and " & " in line
    ]
    assert rows == [
        "decoder-6x128 greedy",
        "decoder-6x128 greedy (weights mine.safetensors)",
        "decoder-6x128 greedy (weights random, seed 7)",
        "decoder-6x128 greedy (weights random, seed 1234)",
        "decoder-6x128:weights=random greedy",
    ]
