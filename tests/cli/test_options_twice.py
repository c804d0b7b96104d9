"""Every option that can be given twice works twice, and every other one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from nco_bench.cli.app import build, run
from nco_bench.runs.finding import find_runs

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "results"
CAMPAIGNS = REPOSITORY / "campaigns"


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", {})
    for name, one in below.items():
        yield from commands(one, (*path, name))
    if not below:
        yield path, command


OPTIONS = [
    (path, option)
    for path, command in commands(typer.main.get_command(build()))
    for option in command.params
    if option.param_type_name == "option" and not option.is_flag and option.name != "help"
]
SINGLE = [(*path, option.opts[0]) for path, option in OPTIONS if not option.multiple]
SEVERAL = {(*path, option.opts[0]) for path, option in OPTIONS if option.multiple}

TWICE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("report", "--data"): ("report --csv", "tsp9:count=2", "tsp8:count=2"),
    ("report", "--solver"): ("report --csv", "nearest-neighbor", "farthest-insertion"),
    ("report", "--results"): ("report --csv", "a", "b"),
    ("compare", "--data"): (
        "compare nearest-neighbor farthest-insertion --results a", "tsp9:count=2", "tsp8:count=2",
    ),
    ("compare", "--results"): ("compare nearest-neighbor farthest-insertion --data tsp9", "a", "b"),
    ("report", "--alias"): ("report", "tsp9:count=2=NINE", "tsp8:count=2=EIGHT"),
    ("runs", "list", "--data"): ("runs list --results traces --results b", "tsp8*", "tsp7*"),
    ("runs", "list", "--solver"): ("runs list --results traces --results b", "one", "random-insertion"),
    ("runs", "list", "--results"): ("runs list", "a", "b"),
    ("runs", "show", "--results"): ("runs show 2*", "a", "b"),
    ("runs", "export", "--data"): ("runs export --out", "tsp9:count=2", "tsp8:count=2"),
    ("runs", "export", "--solver"): ("runs export --out", "nearest-neighbor", "farthest-insertion"),
    ("runs", "export", "--results"): ("runs export --out", "a", "b"),
    ("train", "--stage"): (f"train --dry-run --campaign {CAMPAIGNS}/eie.toml", "am-tsp100-none", "am-cvrp100-10-none"),
    ("plot", "pareto", "--data"): ("plot pareto --out", "tsp9:count=2", "tsp8:count=2"),
    ("plot", "pareto", "--solver"): ("plot pareto --out", "nearest-neighbor", "farthest-insertion"),
    ("plot", "pareto", "--results"): ("plot pareto --out", "a", "b"),
    ("plot", "scaling", "--data"): ("plot scaling --out", "tsp9:count=2", "tsp8:count=2"),
    ("plot", "scaling", "--solver"): ("plot scaling --out", "nearest-neighbor", "farthest-insertion"),
    ("plot", "scaling", "--results"): ("plot scaling --out", "a", "b"),
    ("plot", "anytime", "--data"): ("plot anytime --results traces --out", "tsp9:count=2", "tsp8:count=2"),
    ("plot", "anytime", "--solver"): ("plot anytime --results traces --out", "one", "two"),
    ("plot", "anytime", "--results"): ("plot anytime --out", "traces", "traces-2"),
    ("plot", "scatter", "--results"): (
        "plot scatter nearest-neighbor farthest-insertion --data tsp9 --out", "a", "b",
    ),
    ("plot", "laws", "--results"): ("plot laws --figure 2a --out", f"{RESULTS}/neural", f"{RESULTS}/ablation"),
    ("plot", "laws", "--log"): (
        "plot laws --figure 3 --out", f"{RESULTS}/ablation/decoder-6x128-tsp20.csv",
        f"{RESULTS}/ablation/decoder-24x64-tsp20.csv",
    ),
    ("plot", "training", "--level"): (
        f"plot training {RESULTS}/training/pens-a.csv --out", "paper=0.34", "half=2.5",
    ),
    ("plot", "attention", "--scale"): ("plot attention pens-a:weights=random --data tsp9:count=1 --out", "1", "2"),
    ("plot", "lengths", "--n"): ("plot lengths --data quickselect --weights random --count 2 --out", "8", "16"),
}  # fmt: skip
"""Command with its option to the rest of the command, and two values: both together give what neither gives alone."""

ELSEWHERE = {
    ("generate", "--param"), ("run", "--seed"), ("run", "--data"), ("run", "--decoding"), ("run", "--param"),
    ("train", "--data"),
    ("train", "--config"), ("train", "--validation"), ("runs", "pack", "--results"),
    ("reproduce", "--only"), ("reproduce", "--skip"),  # tests/papers/test_filling.py
    ("run", "--slurm"), ("train", "--slurm"), ("reproduce", "--slurm"),
    ("cluster", "check", "--slurm"), ("cluster", "show", "--slurm"), ("site", "build", "--results"),
}  # fmt: skip

TRACER = """
import numpy as np
from nco_bench.solvers import Solved, register

class Tracer:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 2
    def solve(self, batch, *, seed, time_limit, progress):
        return [Solved(np.arange(i.n), trace=((1.0, 2.0), (self.SPEED + i.n, 1.0))) for i in batch]

@register("one", problems=("tsp",))
class One(Tracer): SPEED = 2.0

@register("two", problems=("tsp",))
class Two(Tracer): SPEED = 5.0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Results of two solvers on two sets with references, in two folders, and of anytime solvers."""
    folder = tmp_path_factory.mktemp("twice")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("NCO_BENCH_RESULTS", "a")
        Path("tracer.py").write_text(TRACER)
        for n in "89":
            assert run(["generate", "tsp", "--n", n, "--count", "2", "--reference", "two-opt"]) == 0
        data = ["--data", "tsp9:count=2", "--data", "tsp8:count=2"]
        assert run(["run", "nearest-neighbor", "farthest-insertion", *data]) == 0
        more = ["--data", "tsp9", "--limit", "3-4", "--data", "tsp7:count=3", "--results", "b"]
        assert run(["reference", "tsp9:count=4", "--solver", "two-opt"]) == 0
        assert run(["run", "nearest-neighbor", "farthest-insertion", "random-insertion", *more]) == 0
        assert run(["run", "tracer.py:one", "tracer.py:two", *data, "--results", "traces"]) == 0
        assert run(["run", "tracer.py:two", "--data", "tsp9", "--limit", "4", "--results", "traces-2"]) == 0
        yield folder


@pytest.mark.parametrize("words", SINGLE, ids=" ".join)
def test_an_option_that_holds_one_value_is_refused_when_given_twice(
    words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    *command, option = words
    assert run([*command, option, "1", f"{option}=2"]) == 2
    assert f"error: {option} is given 2 times; give it once." in capfd.readouterr().err


def test_flags_may_be_repeated(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "papers", "--json", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)


def test_every_option_of_several_values_is_tested() -> None:
    assert TWICE.keys() | ELSEWHERE == SEVERAL


@pytest.mark.parametrize("words", TWICE, ids=" ".join)
def test_both_values_count(words: tuple[str, ...], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    *_, option = words
    rest, first, second = TWICE[words]

    def printed(*values: str) -> bytes:
        target = folder / ("records.csv" if "export" in words else "picture.png")
        given = [word for value in values for word in (option, value)]
        out = [target.name] if rest.endswith("--out") else []
        capfd.readouterr()
        status = run([*rest.split(), *out, *given])
        text = capfd.readouterr()
        if status:  # one of the two alone may not be enough
            return text.err.encode()
        return target.read_bytes() if out else text.out.encode()

    both = printed(first, second)
    assert not both.startswith(b"error")
    assert len({both, printed(first), printed(second)}) == 3


Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run_cells(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> list[dict[str, Any]]:
        capfd.readouterr()
        assert run(["run", *arguments, "--json", "--results", "here"]) == 0
        return list(json.loads(capfd.readouterr().out)["cells"])

    return call


def test_run_takes_several_datasets_once_each(run_cells: Run) -> None:
    found = run_cells(
        "nearest-neighbor", "--data", "tsp6:count=2", "--data", "tsp7:count=2", "--data", "tsp6:count=2"
    )
    assert [cell["dataset"] for cell in found] == ["tsp6:count=2", "tsp7:count=2"]
    twice = run_cells("nearest-neighbor", "nearest-neighbor", "--data", "tsp6:count=2")
    assert [cell["solver"] for cell in twice] == ["nearest-neighbor"]


def test_run_takes_several_decodings_once_each(run_cells: Run) -> None:
    found = run_cells(
        "decoder-6x128", "--weights", "random", "--data", "tsp6:count=2", "--decoding", "greedy", "--decoding",
        "beam:2", "--decoding", "greedy",
    )  # fmt: skip
    assert [cell["decoding"] for cell in found] == ["greedy", "beam:2"]


def test_run_takes_several_parameters(run_cells: Run) -> None:
    found = run_cells("lkh3", "--data", "tsp6:count=1", "--param", "runs=2", "--param", "max_trials=3")
    assert found[0]["options"]["params"] == {"max_trials": "3", "runs": "2"}


def test_generate_takes_several_parameters(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = ["--param", "range=-1..1", "--param", "demand=unit", "--json"]
    assert run(["generate", "cvrp", "--n", "20", "--count", "2", *arguments]) == 0
    assert json.loads(capfd.readouterr().out)["name"].endswith(":demand=unit:range=-1..1:count=2")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            "run lkh3:runs=2 --param runs=3 --data tsp6:count=1",
            "--param runs=3: lkh3:runs=2 says its own runs; leave one of them out.",
        ),
        (
            "generate cvrp --n 8 --capacity 50 --param capacity=20",
            "--capacity 50 and --param capacity=20 exclude each other; give one of them.",
        ),
        (
            "generate tsp --n 5 --count 2 --time-limit 5",
            "--time-limit 5: is for --reference; add it, or leave the limit out.",
        ),
        ("reproduce pens --list --csv", "--list prints text or --json; leave --csv out."),
        ("reproduce pens --list --out tables", "--list prints text or --json; leave --out out."),
    ],
)
def test_a_setting_that_nothing_would_read_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str], command: str, told: str
) -> None:
    assert run(command.split()) == 2
    assert capfd.readouterr().err == f"error: {told}\n"


def test_a_setting_that_one_of_two_solvers_takes_is_no_mistake(run_cells: Run) -> None:
    found = run_cells("lkh3:runs=2", "lkh3", "--param", "runs=3", "--data", "tsp6:count=1")
    assert [cell["options"]["params"]["runs"] for cell in found] == ["2", "3"]


def test_archives_and_leaderboards_take_several_folders(folder: Path) -> None:
    packed, made = {}, {}
    for names in (("a",), ("b",), ("a", "b")):
        given = [word for name in names for word in ("--results", name)]
        out = "-".join(names)
        assert run(["runs", "pack", *given, "--out", f"{out}.parquet", "--allow-dirty"]) == 0
        packed[names] = {one.run_id for one in find_runs(folder / f"{out}.parquet")}
        assert run(["site", "build", *given, "--out", f"site-{out}"]) == 0
        files = (file for file in (folder / f"site-{out}").rglob("*") if file.is_file())
        made[names] = b"".join(file.read_bytes() for file in sorted(files))
    assert packed[("a", "b")] == packed[("a",)] | packed[("b",)]
    assert packed[("a",)] != packed[("b",)]
    assert len(set(made.values())) == 3


def test_train_takes_several_datasets_and_settings(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [f"--validation=instances/tsp{n}_count=2.npz" for n in (8, 9)]
    given = [
        *files,
        "--data",
        "tsp9:count=2",
        "--data",
        "tsp8:count=2",
        "--config",
        "steps=4",
        "--config",
        "batch=2",
    ]
    assert run(["train", "decoder-6x128", *given, "--device", "cpu", "--json"]) == 0
    capfd.readouterr()
    assert run(["weights", "show", "decoder-6x128.safetensors", "--json"]) == 0
    manifest = json.loads(capfd.readouterr().out)
    assert (manifest["steps"], manifest["data"]["instances"]) == (4, 4)
    assert len(manifest["validation"]) == 2


def test_settings_of_slurm_add_up(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "show", "--slurm", "partition=gpu", "--slurm", "gpus=2", "--json"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert (shown["partition"], shown["gpus"]) == ("gpu", 2)
