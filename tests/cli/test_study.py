"""A study in one file, what it would do before it does it, and several seeds at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from nco_bench.cli.app import run
from nco_bench.runs.finding import find_runs

Command = Callable[..., tuple[str, str]]
STUDY = """\
solvers = ["random-insertion", "lehd"]  # the smallest
data = ["tsp20:count=3", "tsp30"]
decoding = ["greedy", "beam:2"]
weights = "random"
limit = "2-3"
seed = [5, 6]
device = "cpu"
batch-size = 1
"""


@pytest.fixture
def nco_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command line in this process, in an empty folder; returns what it prints on stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    for name in ("NCO_BENCH_MIRROR", "NCO_BENCH_RESULTS", "NCO_BENCH_INSTANCES"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str, status: int = 0) -> tuple[str, str]:
        capfd.readouterr()
        found = run(list(arguments))
        out, err = capfd.readouterr()
        assert found == status, err
        return out, err

    return call


def solved(folder: str = "results/runs") -> set[tuple[str, str, str, int, int]]:
    return {
        (cell.label, cell.decoding, cell.dataset, cell.seed, record.instance)
        for one in find_runs(Path(folder))
        for cell in one.cells()
        for record in one.records()
        if record.cell == cell.cell
    }


def test_a_file_is_a_study_of_all_combinations_and_is_kept_with_the_records(nco_bench: Command) -> None:
    pytest.importorskip("torch")
    Path("study.toml").write_text(STUDY)
    printed = json.loads(nco_bench("run", "--config", "study.toml", "--json")[0])
    methods = [("random-insertion", ""), ("lehd", "greedy"), ("lehd", "beam:2")]
    expected = {
        (*method, data, seed, instance)
        for method in methods
        for data in ("tsp20:count=3", "tsp30")
        for seed in (5, 6)
        for instance in (1, 2)
    }
    assert solved() == expected
    assert len(printed["cells"]) == 12
    for one in find_runs(Path("results/runs")):
        assert one.info["study"] == {"file": "study.toml", "text": STUDY}
    listed = json.loads(nco_bench("runs", "list", "--json")[0])
    assert [one["study"] for one in listed] == ["study.toml"] * 2
    assert json.loads(nco_bench("verify", "--json")[0])["ok"]


def test_the_command_line_wins_over_the_file(nco_bench: Command) -> None:
    Path("study.toml").write_text(
        'solvers = "random-insertion"\ndata = ["tsp20:count=3"]\nrepeats = 2\nresults = "there"\nfresh = false\n'
    )
    nco_bench("run", "--config", "study.toml", "--repeats", "1", "--seed", "9")
    assert solved("there") == {("random-insertion", "", "tsp20:count=3", 9, i) for i in range(3)}
    nco_bench(
        "run", "two-opt", "--config", "study.toml", "--data", "tsp30", "--limit", "1", "--results", "here"
    )
    assert solved("here") == {("two-opt", "", "tsp30", 1234, 0)}
    (one,) = find_runs(Path("here"))
    assert {record.repeat for record in one.records()} == {0, 1}


def test_settings_of_solvers_come_as_a_table(nco_bench: Command) -> None:
    Path("study.toml").write_text('solvers = ["lkh3"]\ndata = "tsp20:count=1"\nparam = { runs = 3 }\n')
    plan = json.loads(nco_bench("run", "--config", "study.toml", "--dry-run", "--json")[0])
    assert [cell["solver"] for cell in plan["cells"]] == ["lkh3"]
    nco_bench("run", "--config", "study.toml")
    (one,) = find_runs(Path("results/runs"))
    assert one.cells()[0].options["params"] == {"runs": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("solver = ['lkh3']", "Unknown key of study.toml 'solver'. Did you mean 'solvers'"),
        ("solvers = [", "study.toml: not TOML"),
        ("solvers = [1]", "study.toml: solvers is [1]; expected a name or a list of names."),
        ("solvers = []", "study.toml: solvers is []"),
        ("seed = 'one'", "study.toml: seed is 'one'; expected a whole number or a list of them."),
        ("repeats = true", "study.toml: repeats is True; expected a whole number."),
        ("jobs = [1, 2]", "study.toml: jobs is [1, 2]; expected a whole number."),
        ("time-limit = 1\ntime_limit = 2", "study.toml: time_limit is given twice"),
        ("solvers = ['lkh3']\ndata = 'tsp20'\nrepeats = 0", "Invalid value for '--repeats'"),
        ("solvers = ['lkh3']\ndata = 'tsp20'\ntime-limit = -1", "--time-limit -1"),
        ("solvers = ['lkh3']", "Missing option '--data'"),
        ("data = ['tsp20']", "Missing argument"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(nco_bench: Command, text: str, said: str) -> None:
    Path("study.toml").write_text(text)
    _, error = nco_bench("run", "--config", "study.toml", status=2)
    assert said in error
    assert len(error.splitlines()) == 1
    assert not Path("results").exists()


def test_a_file_that_is_absent_is_one_line(nco_bench: Command) -> None:
    _, error = nco_bench("run", "--config", "absent.toml", status=2)
    assert error.startswith("error: absent.toml: cannot be read")


@pytest.mark.parametrize(
    "key", ["device = 'cuda:9'", "weights = 'random'", "limit = 'all'", "batch-size = 'big'"]
)
def test_a_key_of_the_file_is_not_blamed_as_an_option(nco_bench: Command, key: str) -> None:
    Path("study.toml").write_text(f"solvers = ['two-opt']\ndata = ['tsp9:count=2']\n{key}\n")
    told = nco_bench("run", "--config", "study.toml", status=2)[1]
    assert told.startswith(f"error: study.toml: {key.partition(' ')[0]} "), told
    option = "--" + key.partition(" ")[0]
    assert nco_bench("run", "--config", "study.toml", option, "gpu", status=2)[1].startswith(
        f"error: {option} "
    )


@pytest.mark.parametrize(
    ("limit", "told"),
    [("4", ["--limit 4: tsp9:count=3 ends with instance 3"]), ("2-5", ["--limit 2-5: "]), ("3", [])],
)
def test_a_set_that_ends_before_the_limit_is_named(nco_bench: Command, limit: str, told: list[str]) -> None:
    for more in (["--dry-run"], ["--json"], ["--jobs", "2"]):
        line = nco_bench("run", "random-insertion", "--data", "tsp9:count=3", "--limit", limit, *more)[1]
        assert [one in line for one in told] == [True] * len(told)
        assert line.count("--limit") == len(told)


def test_a_dry_run_writes_nothing_and_says_what_a_run_then_does(nco_bench: Command) -> None:
    arguments = (
        "run",
        "random-insertion",
        "farthest-insertion",
        "--data",
        "tsp30",
        "--limit",
        "6",
        "--repeats",
        "2",
    )
    nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "4")
    before = sorted(os.listdir("results/runs"))
    plan = json.loads(nco_bench(*arguments, "--seed", "1234", "--seed", "8", "--dry-run", "--json")[0])
    assert sorted(os.listdir("results/runs")) == before
    assert sorted(os.listdir(".")) == ["results"]
    told = {(c["solver"], c["seed"]): (c["solves"], c["stored"], c["to_solve"]) for c in plan["cells"]}
    assert told == {
        ("random-insertion", 1234): (12, 4, 8),
        ("random-insertion", 8): (12, 0, 12),
        ("farthest-insertion", 1234): (12, 0, 12),
        ("farthest-insertion", 8): (12, 0, 12),
    }
    assert (plan["to_solve"], plan["stored"]) == (44, 4)
    nco_bench(*arguments)
    written = [
        r for one in find_runs(Path("results/runs")) if one.run_id not in before for r in one.records()
    ]
    assert len(written) == 8 + 12
    again = json.loads(nco_bench(*arguments, "--dry-run", "--json")[0])
    assert (again["to_solve"], again["stored"], again["seconds"]) == (0, 24, 0.0)
    fresh = json.loads(nco_bench(*arguments, "--dry-run", "--fresh", "--json")[0])
    assert (fresh["to_solve"], fresh["stored"]) == (24, 0)


def test_the_estimate_is_the_mean_of_stored_records_or_of_one_instance(nco_bench: Command) -> None:
    """Of the same set; of another set of the same size; and where nothing is stored of this configuration, measured."""
    nco_bench("run", "two-opt", "--data", "tsp30", "--limit", "5")
    (one,) = find_runs(Path("results/runs"))
    seconds = [record.seconds for record in one.records()]
    mean = sum(seconds) / 5

    def planned(*arguments: str) -> tuple[dict[str, object], str]:
        out, err = nco_bench("run", "two-opt", *arguments, "--dry-run", "--json")
        return json.loads(out)["cells"][0], err

    cell, talk = planned("--data", "tsp30", "--limit", "25")
    assert cell["seconds_per_instance"] == pytest.approx(mean)
    assert cell["seconds"] == pytest.approx(20 * mean)
    assert cell["basis"] == "5 stored records"
    assert "solving one instance" not in talk
    cell, _ = planned("--data", "tsp30", "--limit", "25", "--jobs", "4")
    assert cell["seconds"] == pytest.approx(5 * mean)
    cell, _ = planned("--data", "tsp30:seed=5", "--limit", "10")
    assert (cell["seconds"], cell["basis"]) == (
        pytest.approx(10 * mean),
        "5 stored records of other sets of n = 30",
    )
    cell, talk = planned("--data", "tsp20", "--limit", "10")
    assert "solving one instance for the estimate" in talk
    assert str(cell["basis"]).startswith("one instance solved alone")
    assert 0 < float(str(cell["seconds"])) < 60


def test_a_dry_run_in_the_terminal_is_a_table_with_a_sum(nco_bench: Command) -> None:
    nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "4")
    out, err = nco_bench("run", "random-insertion", "hgs", "--data", "tsp30", "--limit", "6", "--dry-run")
    header, row, total = out.splitlines()
    assert header.split()[:4] == ["solver", "dataset", "seed", "to"]
    assert row.split()[:5] == ["random-insertion", "tsp30", "1234", "2", "4"]
    assert total.startswith("2 to solve, 4 stored; expected time ")
    assert "would skip hgs on tsp30" in err


def test_several_seeds_are_rows_of_one_table(nco_bench: Command) -> None:
    out, _ = nco_bench(
        "run", "random-insertion", "--data", "tsp30", "--limit", "3", "--seed", "1", "--seed", "2"
    )
    assert "random-insertion (seed 1)" in out
    assert "random-insertion (seed 2)" in out
    with_both = json.loads(
        nco_bench(
            "run",
            "random-insertion",
            "--data",
            "tsp30",
            "--limit",
            "3",
            "--seed",
            "1",
            "--seed",
            "2",
            "--json",
        )[0]
    )
    costs = [cell["mean_cost"] for cell in with_both["cells"]]
    alone = json.loads(
        nco_bench("run", "random-insertion", "--data", "tsp30", "--limit", "3", "--seed", "2", "--json")[0]
    )
    assert costs[0] != costs[1] == alone["cells"][0]["mean_cost"]
