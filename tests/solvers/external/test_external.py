"""Programs of somebody else: what they are told, what they may do wrong, and that a run survives it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from nco_bench.cli.app import run
from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.solvers.external.program import ExternalSolver
from nco_bench.solvers.protocol import Failure, Solved, SolverOptions
from nco_bench.solvers.registry import choose, create

# Answers every question; the name of the instance says what else to do.
SOLVER = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    print("thinking about", asked["name"], file=sys.stderr, flush=True)
    name = asked["name"].split("/")[-1]
    if MODE == "crash":
        os.abort()
    if MODE == "exit":
        sys.exit(3)
    if MODE == "hang":
        time.sleep(1000)
    if MODE == "words":
        print("the answer is 42", flush=True)
        continue
    if MODE == "fractions":
        print(json.dumps({"solution": [0.5] * asked["n"]}), flush=True)
        continue
    if MODE == "sorry":
        print(json.dumps({"error": "too hard"}), flush=True)
        continue
    if MODE == "short":
        print(json.dumps({"solution": [0]}), flush=True)
        continue
    if MODE == "keep":
        with open(asked["params"]["log"], "a") as file:
            file.write(line)
    if asked["problem"] == "cvrp":
        solution = [0]
        for k in range(1, asked["n"] + 1):
            solution += [k, 0]
    else:
        solution = sorted(range(asked["n"]), key=lambda i: (asked["coords"][i], asked["seed"]))
    more = "\\n" + json.dumps({"solution": [0]}) if MODE == "chatter" else ""
    print(json.dumps({"solution": solution, "cost": 0}) + more, flush=True)
    if MODE == "once":
        sys.exit(0)
"""


def write(folder: Path, mode: str, **fields: object) -> Path:
    """Write the program and the file that names it."""
    (folder / "solver.py").write_text(SOLVER.replace("MODE", repr(mode)))
    path = folder / "mine.toml"
    values = {"name": "mine", "argv": [sys.executable, "solver.py"], **fields}
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()))
    return path


def solver_of(path: Path | str, **params: str) -> ExternalSolver:
    solver = create(choose(str(path), SolverOptions(params=params)))
    assert isinstance(solver, ExternalSolver)
    solver.prepare(kool_tsp(20, count=1))
    return solver


def outcomes(solver: ExternalSolver, count: int = 2, time_limit: float | None = None) -> list:
    instances = kool_tsp(20, count=count).instances
    return solver.solve(instances, seed=7, time_limit=time_limit, progress=lambda _: None)


def test_a_program_solves_and_its_answers_are_judged_like_all_others(tmp_path: Path) -> None:
    solver = solver_of(write(tmp_path, ""))
    for kind, dataset in (("tsp", kool_tsp(20, count=3)), ("cvrp", kool_vrp(20, count=3))):
        found = solver.solve(dataset.instances, seed=1, time_limit=None, progress=lambda _: None)
        for instance, outcome in zip(dataset.instances, found, strict=True):
            assert isinstance(outcome, Solved)
            assert problem(kind).violations(instance, outcome.solution) == ()
    solver.close()


def test_the_program_is_told_all_that_defines_an_instance(tmp_path: Path) -> None:
    solver = solver_of(write(tmp_path, "keep"), log=str(tmp_path / "log"))
    for dataset in (kool_tsp(20, count=2), kool_vrp(20, count=1)):
        solver.solve(dataset.instances, seed=30, time_limit=9.5, progress=lambda _: None)
    solver.close()
    first, second, routes = map(json.loads, (tmp_path / "log").read_text().splitlines())
    instance = kool_tsp(20, count=2).instances[1]
    assert np.array_equal(np.array(second["coords"]), instance.arrays()["coords"])  # to the last bit
    assert (first["seed"], second["seed"]) == (30, 31)
    assert (second["problem"], second["n"], second["convention"]) == ("tsp", 20, "euclidean")
    assert (second["name"], second["time_limit"]) == (instance.name, 9.5)
    arrays = kool_vrp(20, count=1).instances[0].arrays()
    assert routes["demand"] == arrays["demand"].tolist()
    assert (routes["capacity"], routes["depot"]) == (30.0, arrays["depot"].tolist())
    assert routes["customers"] == arrays["customers"].tolist()


@pytest.mark.parametrize(
    ("mode", "status", "message"),
    [
        ("crash", "failed", "was killed by SIGABRT: thinking about"),
        ("exit", "failed", "ended with status 3 without an answer: thinking about"),
        ("words", "failed", "no JSON: 'the answer is 42'"),
        ("fractions", "failed", "no list of whole numbers"),
        ("sorry", "failed", "gave up: too hard"),
    ],
)
def test_what_a_program_does_wrong_is_a_failure_of_that_instance(
    tmp_path: Path, mode: str, status: str, message: str
) -> None:
    path = write(tmp_path, mode)
    solver = solver_of(path)
    for outcome in outcomes(solver):
        assert isinstance(outcome, Failure)
        assert outcome.status == status
        assert message in outcome.message
    # The next program is another one, and nothing of this one is left.
    write(tmp_path, "")
    assert all(isinstance(outcome, Solved) for outcome in outcomes(solver_of(path)))
    solver.close()


def test_a_program_that_hangs_is_killed_and_the_next_instance_gets_a_new_one(tmp_path: Path) -> None:
    solver = solver_of(write(tmp_path, "hang"))
    (hung,) = outcomes(solver, 1, time_limit=0.01)
    assert isinstance(hung, Failure)
    assert hung.status == "timeout"
    assert "killed" in hung.message
    write(tmp_path, "")
    assert all(isinstance(outcome, Solved) for outcome in outcomes(solver))
    solver.close()


@pytest.mark.parametrize("mode", ["once", "chatter"])
def test_programs_that_end_or_talk_after_an_answer_serve_all_instances(tmp_path: Path, mode: str) -> None:
    solver = solver_of(write(tmp_path, mode))
    instances = kool_tsp(20, count=3).instances
    found = solver.solve(instances, seed=7, time_limit=None, progress=lambda _: None)
    for instance, outcome in zip(instances, found, strict=True):
        assert isinstance(outcome, Solved)
        assert problem("tsp").violations(instance, outcome.solution) == ()
    solver.close()


def test_a_program_without_a_file_is_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "solver"
    script.write_text(f"#!{sys.executable}\n{SOLVER.replace('MODE', repr(''))}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match="cannot be executed"):
        choose("external:program=./solver", SolverOptions())
    script.chmod(0o755)
    choice = choose("external:program=./solver", SolverOptions())
    assert choice.label == "external:program=./solver"
    solver = solver_of("external:program=./solver")
    assert all(isinstance(outcome, Solved) for outcome in outcomes(solver))
    solver.close()


def test_the_version_follows_the_file_and_the_program(tmp_path: Path) -> None:
    versions = []
    for mode, fields in (("", {}), ("once", {}), ("once", {"version": "2"}), ("once", {"version": "2"})):
        versions.append(choose(str(write(tmp_path, mode, **fields)), SolverOptions()).info.version)
    assert len(set(versions)) == 3
    assert versions[2] == versions[3]
    assert versions[2].startswith("2-")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"argv": []}, "expected argv"),
        (
            {"argv": "./solver --fast"},
            "argv = './solver --fast' has the wrong type; expected a list of texts",
        ),
        ({"argv": ["./nothing"]}, r"mine.toml: ./nothing: no such program"),
        ({"arguments": []}, "field .*'arguments'"),
        ({"timeout": 0}, "expected seconds above 0"),
        ({"name": "lkh3"}, "'lkh3' is taken"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, fields: dict[str, object], message: str) -> None:
    with pytest.raises((BadInputError, UnknownNameError), match=message) as caught:
        choose(str(write(tmp_path, "", **fields)), SolverOptions())
    assert "\n" not in str(caught.value)


def test_external_alone_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"external:program=./solver, or a file solver.toml"):
        choose("external", SolverOptions())
    with pytest.raises(BadInputError, match="cannot be read"):
        choose(str(tmp_path / "none.toml"), SolverOptions())
    (tmp_path / "bad.toml").write_text("argv = [")
    with pytest.raises(BadInputError, match="not TOML"):
        choose(str(tmp_path / "bad.toml"), SolverOptions())


def test_a_run_goes_on_after_a_crash_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Odd seeds crash: of seeds 1234, 1235 and 1236 one instance is recorded as failed, and the status is 1."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "")
    (tmp_path / "solver.py").write_text(
        SOLVER.replace("MODE", repr("")).replace(
            "    name =", '    if asked["seed"] % 2: os.abort()\n    name ='
        )
    )
    places = ["--results", str(tmp_path / "runs"), "--instances", str(tmp_path / "instances")]
    assert run(["run", str(path), "--data", "tsp20:count=3", "--json", *places]) == 1
    (cell,) = json.loads(capfd.readouterr().out)["cells"]
    assert (cell["solver"], cell["instances"], cell["failed"]) == ("mine", 3, 1)
