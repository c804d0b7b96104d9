"""What `list solvers` says of each solver: ready, or the one command that makes it ready, which must exist and work."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from commands import accepted

from nco_bench.cards import official_weights
from nco_bench.cli.app import run
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.solvers.readiness import STATES
from nco_bench.training.courses import course_for
from nco_bench.weights.pulling import pull


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing was pulled, imported or trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    return tmp_path


def listed(capfd: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capfd.readouterr()
    assert run(["list", "solvers", "--json"]) == 0
    return {one["name"]: one for one in json.loads(capfd.readouterr().out)}


def test_every_solver_says_that_it_is_ready_or_which_command_makes_it(
    empty: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    solvers = listed(capfd)
    for name, solver in solvers.items():
        assert set(solver["states"].values()) <= set(STATES)
        lacking = {problem for problem, state in solver["states"].items() if state != "ready"}
        assert set(solver["commands"]) == lacking
        assert solver["available"] == (lacking != set(solver["states"]))
        for problem in lacking:
            check_command(name, problem, solver["states"][problem], solver["commands"][problem], empty)
    assert {name: solvers[name]["state"] for name in ("pens-a", "bq", "bq-esf", "am", "coordns", "glop", "lehd")} == {
        "pens-a": "ready", "bq": "pull", "bq-esf": "pull", "am": "pull", "coordns": "train", "glop": "import",
        "lehd": "ready (cvrp: pull)",
    }  # fmt: skip


def check_command(solver: str, problem: str, state: str, command: str, folder: Path) -> None:
    if state == "install":
        assert command.startswith("pip install ")
        return
    *before, last = command.split(" && ")
    for earlier in before:
        accepted(earlier)
    given = accepted(last)
    if state == "pull":
        model = {"invit": "invit-3v", "bq-esf": "bq"}.get(solver, solver)
        assert given["name"] == {"bq-esf": "bq"}.get(solver, solver)
        assert any((w.model, w.problem) == (model, problem) for w in official_weights().values())
    elif state == "import":
        assert given["model"] == solver
        assert given["problem"] == problem
    else:
        assert given["model"] == solver
        assert Path(given["out"]).name.startswith(solver)
        course_for(solver, {}, has_data=bool(before))
        if not before:
            load_dataset(given["data"][0], Places(folder))


def test_a_pulled_model_runs(
    empty: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`weights pull am` is what `list solvers` advises; without the network a mirror stands in for it."""
    monkeypatch.setenv("NCO_BENCH_MIRROR", str(shared))
    pull("am-official-tsp100", lambda _: None)
    monkeypatch.delenv("NCO_BENCH_MIRROR")
    assert listed(capfd)["am"]["states"] == {"tsp": "ready", "cvrp": "pull"}
    assert run(["run", "am", "--data", "tsp100:count=1"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["coordns", "lra-tropical"])
def test_the_advised_training_makes_a_solver_ready(
    empty: Path, solver: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command as it is, but for seconds in place of an hour and ten labelled tours in place of 20,000."""
    told = listed(capfd)[solver]
    (command,) = told["commands"].values()
    for part in command.replace("--count 20000", "--count 10").split(" && "):
        words = shlex.split(part.replace("--budget 1h", "--budget 3s").replace("--budget 15m", "--budget 3s"))
        assert run(words[1:]) == 0
    assert listed(capfd)[solver]["state"] == "ready"
    data = "tsp20:count=1" if solver == "coordns" else "lra-listops32:count=1"
    assert run(["run", solver, "--data", data]) == 0


@pytest.mark.parametrize("command", [["weights", "show"], ["show"]])
def test_official_weights_are_shown_before_they_are_here(
    empty: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "am-official-tsp100", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["repository"] == "wouterkool/attention-learn-to-route"
    assert shown["command"] == "nco-bench weights pull am-official-tsp100"


def test_a_weights_file_is_shown_wherever_it_is(empty: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["weights", "export", "pens-r", "--out", "mine.safetensors"]) == 0
    capfd.readouterr()
    assert run(["show", "mine.safetensors", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["kind"], shown["model"], shown["path"]) == ("weight", "pens-r", "mine.safetensors")
    assert run(["show", "elsewhere.safetensors"]) == 2
    assert "elsewhere.safetensors: no such file" in capfd.readouterr().err
