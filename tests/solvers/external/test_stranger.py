"""Solvers of a user's file live in a process of their own: whatever they do is one failed record, and the run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from nco_bench.cli.app import run
from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Record
from nco_bench.solvers.external import stranger
from nco_bench.solvers.registry import import_file

SOLVER = """
import ctypes, os, signal, sys, threading, time
from pathlib import Path
import numpy as np
from nco_bench.solvers import Failure, Solved, register

class Loud(Exception):
    def __str__(self): raise ValueError("not even this")

def harm(batch):
    {harm}

@register("mine", problems=("tsp",))
class Mine:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): assert not any(dataset.references)
    def solve(self, batch, *, seed, time_limit, progress):
        if seed == 1235:
            answer = harm(batch)
            if answer is not None: return answer
        return [np.arange(i.n) for i in batch]
"""

FAULTS = {
    "os.abort()": "killed by SIGABRT",
    "os._exit(5)": "exit status 5",
    "sys.exit(3)": "SystemExit: 3",
    "ctypes.string_at(0)": "killed by SIGSEGV",
    "os.kill(os.getpid(), signal.SIGKILL)": "killed by SIGKILL",
    "os.closerange(3, 256)": "the solver's process",
    "return [[[1], [2, 3]]]": "cannot be read: ValueError",
    "return ['abc']": "returned str, not an array of numbers",
    "return [Failure('ok', 'x')]": "Failure of status 'ok'",
    "return [Failure('failed', Loud())]": "a Loud that cannot be shown",
    "return [Solved(np.arange(9), trace='ab')]": "trace is no list",
    "return [Solved(None)]": "returned NoneType",
    "return 7": "TypeError",
    "return []": "returned 0 solutions for 1 instance",
    "raise Loud()": "Loud: a Loud that cannot be shown",
    "raise BaseException('\\ud800 \\x1b[31m \\u202e')": "\\ud800 \\x1b[31m \\u202e",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "(Path(RESULTS) / 'mine').write_text('x')": "may not touch records",
    "[p.unlink() for p in Path(RESULTS).rglob('*.jsonl')]": "may not touch records",
    "[p.read_text() for p in Path(RESULTS).rglob('cells.jsonl')]": "may not touch records",
    "open(f'{RESULTS}/records.jsonl'.encode())": "may not touch records",
    "open(f'{RESULTS}/all.parquet', 'rb')": "may not touch records",
    "open(INSTANCES / 'ledger' / 'references.sqlite', 'rb')": "may not touch records",
}


def records(folder: Path) -> list[Record]:
    return sorted((r for one in find_runs(folder) for r in one.records()), key=lambda record: record.instance)


def outcome(harm: str, *options: str) -> list[Record]:
    Path("mine.py").write_text(
        SOLVER.replace("{harm}", harm)
        + f"\nRESULTS = {str(Path('runs').absolute())!r}"
        + f"\nINSTANCES = Path({str(Places.from_environment().instances.absolute())!r})\n"
    )
    status = run(["run", "mine.py", "--data", "tsp9:count=3", "--results", "runs", *options])
    found = records(Path("runs"))
    assert status == (1 if any(one.status != "ok" for one in found) else 0)
    return found


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("harm", FAULTS)
def test_a_fault_is_one_failed_record(harm: str, capfd: pytest.CaptureFixture[str]) -> None:
    first, second, third = outcome(harm)
    assert (first.status, second.status, third.status) == ("ok", "failed", "ok")
    assert FAULTS[harm] in second.message
    assert second.message.isprintable()
    assert "Traceback" not in capfd.readouterr().err


def test_a_hang_ends_with_the_time_limit() -> None:
    found = outcome("while True: pass", "--time-limit", "0.2")
    assert [one.status for one in found] == ["ok", "timeout", "ok"]
    assert "killed after" in found[1].message


def test_who_takes_longer_than_the_limit_is_named_in_a_note() -> None:
    """What comes before the kill counts, but not in silence."""
    found = outcome("time.sleep(0.5)", "--time-limit", "0.3")
    assert [one.status for one in found] == ["ok"] * 3
    (one,) = find_runs(Path("runs"))
    (note,) = one.cells()[0].notes
    assert "of 3 instances took longer than the time limit of 0.3 s, up to " in note
    outcome("return None", "--time-limit", "30", "--fresh")
    assert find_runs(Path("runs"))[-1].cells()[0].notes == []


@pytest.mark.parametrize("where", [[], ["--in-process"]])
def test_what_a_solver_prints_is_no_part_of_the_document(
    where: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    outcome("print('found it')", "--json", *where)
    told = capfd.readouterr()
    assert json.loads(told.out)["cells"][0]["solves"] == 3
    assert ("found it" in told.err) == bool(where)


def test_the_clock_is_ours() -> None:
    found = outcome("time.perf_counter = lambda: -1000.0; time.sleep(0.2)")
    assert [one.status for one in found] == ["ok"] * 3
    assert 0.2 <= found[1].seconds < 30
    claimed = outcome("return [Solved(np.arange(9), seconds=-5.0)]", "--fresh")
    assert all(one.seconds >= 0 for one in claimed)


def test_records_are_those_of_a_solver_in_this_process() -> None:
    apart = outcome("return None")
    assert {one.key for one in outcome("return None", "--fresh", "--in-process")} == {
        one.key for one in apart
    }


def test_nothing_of_this_process_is_in_the_childs() -> None:
    """Neither tours that others found, nor our working folder, nor what was loaded here."""
    Path("mine.py").write_text(
        SOLVER.replace(
            "{harm}",
            "raise ValueError(f'{os.getcwd()} {Path().resolve()} {\"nco_bench.runs.runner\" in sys.modules}')",
        )
    )
    assert run(["generate", "tsp", "--n", "9", "--count", "3", "--reference", "two-opt"]) == 0
    assert run(["run", "mine.py", "--data", "tsp9:count=3", "--results", "runs"]) == 1
    message = records(Path("runs"))[1].message
    assert str(Path.cwd()) not in message
    assert "False" in message


PEEKING = """
import numpy as np
from nco_bench.solvers import register

@register("peek", problems=("PROBLEM",))
class Peek:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset):
        self.seen = [i.LABELS for i in dataset.instances] + [r is not None for r in dataset.references]
    def solve(self, batch, *, seed, time_limit, progress):
        self.seen += [i.LABELS for i in batch]
        assert not any(np.any(one) for one in self.seen), "labels are seen"
        return [np.zeros(ANSWERS, int) for i in batch]
"""


@pytest.mark.parametrize("more", [[], ["--in-process"]])
@pytest.mark.parametrize(
    ("problem", "data", "labels", "answers"),
    [
        ("algorithmic", "balanced-partition:n=8:count=4", "targets", "i.answers"),
        ("lra", "lra-listops32:count=4", "label", "1"),
    ],
)
def test_labels_stay_here(problem: str, data: str, labels: str, answers: str, more: list[str]) -> None:
    names = {"PROBLEM": problem, "LABELS": labels, "ANSWERS": answers}
    text = PEEKING
    for name, value in names.items():
        text = text.replace(name, value)
    Path("peek.py").write_text(text)
    assert run(["run", "peek.py", "--data", data, "--results", "runs", *more]) == 0
    found = records(Path("runs"))
    assert [one.status for one in found] == ["ok"] * 4
    assert sum(one.cost or 0.0 for one in found) < 4  # they are judged by the labels all the same


BROKEN = {
    "import os; os._exit(5)": "exit status 5",
    "raise SystemExit(4)": "SystemExit: 4",
    "import os; os.abort()": "SIGABRT",
    "def f(:": "SyntaxError",
    "from nco_bench.solvers import register\nregister('x', problems=('tsp',))(7)": "decorates a int, no class",
    "from nco_bench.solvers import register\n@register('x', problems=('tsp',))\nclass A: pass": "no method unsupported()",
    "from nco_bench.solvers import register\nregister(5, problems=('tsp',))": "printable text",
    SOLVER.replace("{harm}", "pass").replace(
        '("tsp",)', "5"
    ): "problems is 5; expected a name or a list of names",
}


@pytest.mark.parametrize("problems", ['"tsp"', '("tsp")', '["tsp", "cvrp"]'])
def test_problems_need_no_tuple(problems: str) -> None:
    """A lost comma made three problems of it: t, s and p."""
    Path("mine.py").write_text(SOLVER.replace("{harm}", "pass").replace('("tsp",)', problems))
    assert run(["run", "mine.py", "--data", "tsp9:count=1", "--results", "runs"]) == 0


@pytest.mark.parametrize("text", BROKEN)
def test_a_file_that_cannot_be_imported_is_named(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(text)
    assert run(["run", "mine.py", "--data", "tsp9:count=1", "--results", "runs"]) == 2
    error = capfd.readouterr().err.strip()
    assert error.count("\n") == 0
    assert "mine.py" in error
    assert BROKEN[text] in error
    assert not Path("runs").exists()


def placed(methods: Iterable[str]) -> list[tuple[str, str]]:
    """Each method in a process of its own and in this one, which an exit would end: so the solver has its own."""
    return [
        (m, where) for m in methods for where in ("child", "here") if "_exit" not in m or where == "child"
    ]


METHODS = {
    "def unsupported(self, dataset): return 5": "unsupported() returned '5', expected the reason as text",
    "def batch_size(self, dataset): return 2.5": "batch_size() returned '2.5', expected a whole number",
    "def weights_facts(self): return [1]": "weights_facts() returned '[1]'",
    "def notes(self): return 3": "notes() returned '3', expected a list",
    "def batch_size(self, dataset): import os; os._exit(9)": "exit status 9",
}


@pytest.mark.parametrize(
    ("method", "where"),
    placed(METHODS),
)
def test_a_broken_method_is_named_in_one_line(
    method: str, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(SOLVER.replace("{harm}", "return None") + f"    {method}\n")
    options = ["--in-process"] if where == "here" else []
    assert run(["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs", *options]) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "mine.py" in last
    assert METHODS[method] in last


UNMADE = {
    "def __init__(self, options): raise OSError('no disk')": (
        "failed",
        "mine.py: __init__() raised OSError: no disk",
    ),
    "def prepare(self, dataset): raise OSError('no disk')": (
        "failed",
        "mine.py: prepare() raised OSError: no disk",
    ),
    "def __init__(self, options): raise MemoryError('much')": ("oom", "MemoryError: much"),
    "def prepare(self, dataset): raise MemoryError": ("oom", "MemoryError"),
    "def __init__(self, options): import os; os._exit(9)": (
        "failed",
        "mine.py: __init__(): the solver's process ended",
    ),
    "def prepare(self, dataset): import os; os._exit(9)": (
        "failed",
        "mine.py: prepare(): the solver's process ended",
    ),
}


@pytest.mark.parametrize(
    ("method", "where"),
    placed(UNMADE),
)
def test_a_solver_that_cannot_be_made_fails_alone(
    method: str, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beside it, and on the next dataset, others run."""
    Path("mine.py").write_text(SOLVER.replace("{harm}", "return None") + f"    {method}\n")
    options = ["--in-process"] if where == "here" else []
    command = ["run", "mine.py", "nearest-neighbor", "--data", "tsp9:count=2", "--results", "runs"]
    assert run([*command, *options]) == 1
    (one,) = find_runs(Path("runs"))
    solver = {cell.cell: cell.solver for cell in one.cells()}
    found = [(solver[r.cell], r.status, r.message) for r in one.records()]
    assert [(name, status) for name, status, _ in found] == [
        *[("mine", UNMADE[method][0])] * 2,
        *[("nearest-neighbor", "ok")] * 2,
    ]
    assert found[0][2].startswith(UNMADE[method][1])
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("method", ["prepare", "__init__"])
def test_an_endless_preparation_is_killed_and_tried_again(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more patience it may end: it is no result."""
    monkeypatch.setenv(stranger.PATIENCE, "3")
    endless = f"    def {method}(self, *_):\n        while True: pass\n"
    Path("mine.py").write_text(SOLVER.replace("{harm}", "return None") + endless)
    assert run(["run", "mine.py", "--data", "tsp9:count=1", "--results", "runs"]) == 1
    (record,) = records(Path("runs"))
    assert record.status == "failed"
    assert record.message.startswith(f"mine.py: {method}(): killed after 3 s without an answer")
    assert f"{stranger.PATIENCE}=SECONDS gives it longer" in record.message


@pytest.mark.parametrize("method", ["import", "unsupported", "batch_size", "notes"])
def test_an_endless_method_is_killed_and_named_in_one_line(
    method: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(stranger.PATIENCE, "3")
    text = SOLVER.replace("{harm}", "return None")
    endless = (
        "\nwhile True: pass\n"
        if method == "import"
        else f"    def {method}(self, *_):\n        while True: pass\n"
    )
    Path("mine.py").write_text(text + endless)
    assert run(["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs"]) == 2
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "mine.py" in last
    assert "killed after 3 s without an answer" in last
    assert f"{stranger.PATIENCE}=SECONDS gives it longer" in last


def test_an_endless_close_costs_five_seconds_and_no_record(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stranger, "CLOSE_SECONDS", 1.0)
    endless = "    def close(self):\n        while True: pass\n"
    Path("mine.py").write_text(SOLVER.replace("{harm}", "return None") + endless)
    assert run(["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs"]) == 0
    assert [one.status for one in records(Path("runs"))] == ["ok", "ok"]
    assert "close(): killed after 1 s" in capfd.readouterr().err


def test_a_patience_that_is_no_number_is_refused(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(stranger.PATIENCE, "soon")
    Path("mine.py").write_text(SOLVER.replace("{harm}", "return None"))
    assert run(["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs"]) == 2
    assert "expected seconds above 0" in capfd.readouterr().err


def test_an_exception_in_close_costs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        SOLVER.replace("{harm}", "return None") + "    def close(self): raise OSError('late')\n"
    )
    assert run(["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs"]) == 0
    assert [one.status for one in records(Path("runs"))] == ["ok", "ok"]
    assert "close() raised OSError: late" in capfd.readouterr().err


def test_nothing_is_left_running() -> None:
    """The child's own child ends with it."""
    outcome("os.spawnlp(os.P_NOWAIT, 'sleep', 'sleep', '987.125')")
    left = subprocess.run(["pgrep", "-f", "sleep 987.125"], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_pickle_from_the_child_is_never_read(tmp_path: Path) -> None:
    """What a hostile solver's child writes to its parent is data."""
    code = (
        "import pickle\n    for fd in range(3, 256):\n"
        "        try: os.write(fd, b'\\x10' + b'\\0' * 7 + pickle.dumps(object))\n        except OSError: pass"
    )
    found = outcome(code)
    assert [one.status for one in found] == ["ok", "failed", "ok"]


def test_a_class_registered_here_stays_here() -> None:
    """A notebook's class cannot be imported elsewhere; what it returns is checked all the same."""
    script = (
        "import nco_bench\nfrom nco_bench.solvers import Failure\n"
        "@nco_bench.register('note', problems=('tsp',))\nclass Note:\n"
        "    def __init__(self, options): pass\n    def unsupported(self, dataset): return None\n"
        "    def prepare(self, dataset): pass\n"
        "    def solve(self, batch, *, seed, time_limit, progress): return [Failure('ok', 'x') for _ in batch]\n"
        "done = nco_bench.run(['note'], 'tsp9:count=2', results='runs', instances='instances')\n"
    )
    Path("note.py").write_text(script)
    subprocess.run([sys.executable, "note.py"], capture_output=True, check=False, timeout=120)
    assert [one.status for one in records(Path("runs"))] == ["failed", "failed"]


def test_a_file_with_a_typing_error_is_told_with_its_own_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text("import numpy\nx = = 3\n")
    with pytest.raises(BadInputError) as refused:
        import_file(file)
    assert str(refused.value).endswith("(SyntaxError: invalid syntax (typed.py, line 2)).")
