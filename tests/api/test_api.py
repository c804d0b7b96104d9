"""The Python API: a dozen names, imported when asked for, and the numbers of the command line."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import nco_bench
from nco_bench.cli.app import run as command
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.runs.scoring import Scored
from nco_bench.study import Study

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NCO_BENCH_MIRROR", "NCO_BENCH_RESULTS", "NCO_BENCH_INSTANCES"):
        monkeypatch.delenv(name, raising=False)


def python(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_importing_brings_nothing_heavy() -> None:
    heavy = "('numpy', 'pandas', 'torch', 'rich', 'typer', 'scipy')"
    assert python(f"import sys, nco_bench; print(*(m for m in {heavy} if m in sys.modules))") == []
    asked = "import sys, nco_bench; nco_bench.run, nco_bench.table; print('torch' in sys.modules)"
    assert python(asked) == ["False"]


def test_a_dozen_documented_names() -> None:
    assert len(nco_bench.__all__) <= 12
    for name in nco_bench.__all__:
        offered = getattr(nco_bench, name)
        assert inspect.getdoc(offered)
        assert name in dir(nco_bench)
        if inspect.isfunction(offered):
            kinds = inspect.signature(offered)
            assert kinds.return_annotation is not inspect.Signature.empty
            for parameter in kinds.parameters.values():
                assert parameter.annotation is not inspect.Parameter.empty, (name, parameter)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = nco_bench.nothing


def test_the_version_is_found_without_importing() -> None:
    """As hatch finds it, and as its own documentation says: by this expression."""
    source = Path(nco_bench.__file__).read_text()
    found = re.search(
        r"(?i)^(__version__|VERSION)(?: ?\: ?str)? *= *([\"'])v?(?P<version>.+?)\2", source, re.M
    )
    assert found is not None
    assert found["version"] == nco_bench.__version__


def test_type_checkers_see_what_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mypy = pytest.importorskip("mypy.api")
    assert (REPOSITORY / "nco_bench" / "py.typed").is_file()
    program = tmp_path / "program.py"
    program.write_text(
        "import nco_bench\nreveal_type(nco_bench.table)\nnco_bench.run('lkh3', 'tsp20', seed='one')\n"
    )
    # With the settings of `make lint`, whose cache then answers for torch and all else.
    monkeypatch.chdir(REPOSITORY)
    out, _, status = mypy.run([str(program)])
    assert status == 1
    assert "nco_bench.reports.tables.table.Table" in out
    assert 'Argument "seed" to "run"' in out


def test_run_gives_what_the_command_line_gives(capfd: pytest.CaptureFixture[str]) -> None:
    done = nco_bench.run(["nearest-neighbor", "two-opt"], "tsp30", limit=4, seed=[1, 2])
    assert len(done.run_ids) == 2
    capfd.readouterr()
    arguments = "run nearest-neighbor two-opt --data tsp30 --limit 4 --seed 1 --seed 2 --json"
    assert command(arguments.split()) == 0
    printed = json.loads(capfd.readouterr().out)
    assert printed["run_ids"] == []  # all was stored
    assert json.loads(json.dumps(done.cells)) == printed["cells"]
    assert len(done.records) == 16
    assert repr(done) == repr(done.table)
    assert nco_bench.verify().findings == ()


def test_records_are_a_tidy_frame() -> None:
    nco_bench.run("nearest-neighbor", ["tsp30", "tsp20"], limit="2-4", repeats=2)
    frame = nco_bench.records()
    assert len(frame) == 12
    assert not frame.duplicated(["solver", "dataset", "seed", "instance", "repeat"]).any()
    assert sorted(frame["instance"].unique()) == [1, 2, 3]
    dataset = nco_bench.load("tsp30")
    hashes = frame[frame["dataset"] == "tsp30"].set_index("instance")["instance_sha256"]
    assert hashes.to_dict() == {i: dataset.instance_hashes[i] for i in (1, 2, 3)}
    means = frame.groupby("dataset", observed=True)["cost"].mean()
    cells = {cell["dataset"]: cell["mean_cost"] for cell in nco_bench.table().data}
    assert means.to_dict() == pytest.approx(cells)
    assert set(nco_bench.records(data="tsp2*")["dataset"]) == {"tsp20"}
    assert set(nco_bench.records(solver=["near*"], results=["results/runs"])["n"]) == {20, 30}
    with pytest.raises(ResultsError):
        nco_bench.records(data="tsp50")
    with pytest.raises(ResultsError, match="no results yet"):
        nco_bench.records(results="elsewhere")


def test_folders_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_RESULTS", "mine")
    nco_bench.run("nearest-neighbor", "tsp20", limit=1)
    assert len(list(Path("mine").iterdir())) == 1
    assert len(nco_bench.records()) == 1


def test_score_is_that_of_the_raw_instance() -> None:
    """A unit square's boundary is 4, its diagonals 2 + 2 sqrt 2; a published optimum is found by content."""
    Path("square.tsp").write_text(
        "NAME: square\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
        "1 0 0\n2 0 10\n3 10 10\n4 10 0\nEOF\n"
    )
    Path("tour.json").write_text("[0, 1, 2, 3]")
    assert nco_bench.score("square.tsp", "tour.json").cost == 40
    assert nco_bench.score("square.tsp", [0, 2, 1, 3], convention="euclidean").cost == pytest.approx(
        20 + 20 * np.sqrt(2)
    )
    wrong = nco_bench.score("square.tsp", np.array([0, 1, 1, 3]))
    assert (wrong.cost, wrong.feasible) == (None, False)
    instance = nco_bench.load("tsp20").instances[0]
    tour = np.arange(20)
    steps = instance.coords - np.roll(instance.coords, 1, axis=0)
    assert nco_bench.score(instance, tour).cost == pytest.approx(np.hypot(*steps.T).sum())
    for solution in ([0.5, 1.0], [[0, 1], [2, 3]]):
        with pytest.raises(BadInputError, match="expected a list of node indices"):
            nco_bench.score("square.tsp", solution)
    with pytest.raises(BadInputError, match="holds 10,000 instances"):
        nco_bench.score("tsp20", tour)


def test_score_knows_the_published_optimum(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_MIRROR", str(shared))
    dataset = nco_bench.load("tsplib/berlin52")
    scored = nco_bench.score("tsplib/berlin52", np.arange(52))
    assert scored.reference == 7542
    assert nco_bench.score(dataset, np.arange(52)) == scored


@pytest.mark.parametrize(
    ("gap", "told"),
    [(-1e-9, "gap 0.0000 % to the reference 40"), (-2.5, "gap -2.5000 % to the reference 40")],
)
def test_a_score_that_beats_its_reference_is_not_said_to_be_above_it(gap: float, told: str) -> None:
    """Nor is a score of a problem where more is better, whose gap is positive below the reference."""
    scored = Scored(40 * (1 + gap / 100), True, (), "euclidean", 40.0, gap)
    assert scored.describe().endswith(f"(euclidean), {told}")


def test_score_knows_the_references_that_run_knows(
    shared: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The square's boundary is 40 long, the tour that crosses 48; berlin52's worse reference hides no published one."""
    pytest.importorskip("random_insertion")
    square = Path("square.tsp")
    square.write_text(
        "NAME: square\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
        "1 0 0\n2 0 10\n3 10 10\n4 10 0\nEOF\n"
    )
    crossing = [0, 2, 1, 3]
    assert nco_bench.score(square, crossing).reference is None
    assert command(["reference", "square.tsp", "--solver", "two-opt", "--instances", "there"]) == 0
    assert nco_bench.score(square, crossing).reference is None
    (instance,) = nco_bench.load(square).instances
    for given in (square, instance, nco_bench.load(square)):
        scored = nco_bench.score(given, crossing, instances="there")
        assert (scored.reference, scored.gap_percent) == (40, pytest.approx(20))
    assert nco_bench.score(square, crossing, convention="euclidean", instances="there").reference is None
    Path("crossing.json").write_text("[0, 2, 1, 3]")
    capfd.readouterr()
    assert command(["score", "square.tsp", "crossing.json", "--instances", "there", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["gap_percent"] == pytest.approx(20)

    berlin = str(shared / "instances" / "tsplib" / "berlin52.tsp.gz")
    assert command(["reference", berlin, "--solver", "random-insertion"]) == 0
    assert nco_bench.load(berlin).references[0].cost > 7542
    assert nco_bench.score(berlin, np.arange(52)).reference == 7542


class Reader(HTMLParser):
    """Collects a table's cells, and refuses markup that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.marks: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in ("b", "u"):
            self.marks.append(f"{self.open[-1]} {data}")
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_a_table_shows_itself_in_a_notebook() -> None:
    done = nco_bench.run(["nearest-neighbor", "farthest-insertion", "two-opt"], "tsp30", limit=4)
    table = nco_bench.table(alias={"tsp30": "<T&30>"})
    reader = Reader()
    reader.feed(table._repr_html_())
    assert reader.open == []
    assert reader.rows[0] == ["", "<T&30> (4)"]
    assert reader.rows[1] == ["Method", "Length", "Gap", "Time (s)"]
    body = {row[0]: row[1] for row in reader.rows[2:]}
    costs = done.records.groupby("solver", observed=True)["cost"].mean()
    assert body == {name: f"{cost:.3f}" for name, cost in costs.items()}
    best, second = sorted(costs)[:2]
    assert reader.marks == sorted(
        [f"b {best:.3f}", f"u {second:.3f}"], key=lambda m: list(body.values()).index(m[2:])
    )
    assert done._repr_html_().startswith("<div><table")


def test_a_dataset_shows_itself_in_one_line() -> None:
    assert repr(nco_bench.load("tsp20")) == "<Dataset tsp20: 10,000 tsp instances, n = 20, 0 references>"


def test_a_plan_shows_itself_as_a_table() -> None:
    nco_bench.run("nearest-neighbor", "tsp30", limit=2)
    plan = nco_bench.plan(Study(["nearest-neighbor"], ["tsp30", "tsp20"], limit=3))
    reader = Reader()
    reader.feed(plan._repr_html_())
    assert reader.open == []
    header, *rows = reader.rows
    told = [dict(zip(header, row, strict=True)) for row in rows]
    assert [(row["dataset"], row["to solve"], row["stored"]) for row in told] == [
        ("tsp30", "1", "2"),
        ("tsp20", "3", "0"),
    ]
    assert repr(plan).splitlines()[-1].startswith("4 to solve, 2 stored; expected time ")


def test_a_study_says_what_it_would_do() -> None:
    study = Study(["nearest-neighbor"], ["tsp30"], limit=5, seed=(1, 2))
    plan = nco_bench.plan(study)
    assert (plan.to_solve, plan.stored) == (10, 0)
    assert not Path("results").exists()
    nco_bench.run_study(study)
    assert nco_bench.plan(study).to_solve == 0


def test_a_study_of_a_file_is_that_of_the_command_line(capfd: pytest.CaptureFixture[str]) -> None:
    Path("study.toml").write_text('solvers = ["two-opt"]\ndata = "tsp20"\nlimit = 3\nseed = [1, 2]\n')
    study = Study.read("study.toml")
    nco_bench.run_study(study)
    capfd.readouterr()
    assert command(["run", "--config", "study.toml", "--dry-run", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["stored"] == 6
    infos = [json.loads(path.read_text()) for path in sorted(Path("results/runs").glob("*/run.json"))]
    assert [info["study"] for info in infos] == [dict(study.source)] * 2
    assert infos[0]["command"] == "nco_bench.run(solvers=['two-opt'], data=['tsp20'], seed=[1, 2], limit=3)"
    again = eval(infos[0]["command"], {"nco_bench": nco_bench})  # what stands there can be called
    assert again.run_ids == ()
    Path("study.toml").write_text("limit = 3\n")
    with pytest.raises(BadInputError, match="solvers: name at least one"):
        nco_bench.run_study(Study.read("study.toml"))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"repeats": 0}, "repeats is 0; expected at least 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": ()}, "seed: name at least one"),
        ({"time_limit": 0.0}, "time-limit is 0"),
        ({"limit": "x"}, "expected K or A-B"),
        ({"batch_size": 0}, "expected auto or a whole number"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        nco_bench.run("nearest-neighbor", "tsp30", **wrong)  # type: ignore[arg-type]


def test_numbers_of_numpy_and_paths_are_what_they_mean(capfd: pytest.CaptureFixture[str]) -> None:
    Path("square.tsp").write_text(
        "NAME: square\nTYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
        "1 0 0\n2 0 10\n3 10 10\n4 10 0\nEOF\n"
    )
    done = nco_bench.run(
        np.array(["nearest-neighbor"]), [Path("square.tsp"), np.str_("tsp20")], seed=np.arange(2, dtype=np.uint8),
        limit=np.int64(3), time_limit=np.float32(0.7), repeats=np.int32(2), batch_size=np.array(1),
        fresh=np.False_, results=Path("there"),
    )  # fmt: skip
    assert len(done.records) == 2 * (1 + 3) * 2
    (info, *_) = [json.loads(path.read_text()) for path in Path("there").glob("*/run.json")]
    assert info["command"] == (
        "nco_bench.run(solvers=['nearest-neighbor'], data=['square.tsp', 'tsp20'], seed=[0, 1], repeats=2, batch_size=1, "
        "limit=3, time_limit=0.7, results='there')"
    )
    capfd.readouterr()
    arguments = "run nearest-neighbor --data square.tsp --data tsp20 --seed 0 --seed 1 --limit 3 --time-limit 0.7 --json"
    assert command([*arguments.split(), "--repeats", "2", "--results", "there"]) == 0
    assert json.loads(capfd.readouterr().out)["run_ids"] == []  # the keys of the records are the same
    assert len(nco_bench.records(data=np.array(["tsp20", "square"]), results=[Path("there")])) == 16
    assert nco_bench.verify(results=Path("there")).findings == ()
    assert nco_bench.Study("two-opt", "tsp20", seed=(s for s in (1, 2))).seed == [1, 2]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nco_bench.run(5, "tsp20"), "solvers is 5; expected a name or a list of names"),
        (lambda: nco_bench.run("lkh3", [None]), r"data is \[None\]"),
        (lambda: nco_bench.run("lkh3", "tsp20", seed=np.float64(1)), "seed is .*; expected a whole number or a list"),
        (lambda: nco_bench.run("lkh3", "tsp20", seed=True), "seed is True"),
        (lambda: nco_bench.run("lkh3", "tsp20", repeats="2"), "repeats is '2'; expected a whole number"),
        (lambda: nco_bench.run("lkh3", "tsp20", time_limit="5"), "time_limit is '5'; expected a number of seconds"),
        (lambda: nco_bench.run("lkh3", "tsp20", device=0), "device is 0"),
        (lambda: nco_bench.run("lkh3", "tsp20", fresh="no"), "fresh is 'no'; expected true or false"),
        (lambda: nco_bench.run("lkh3", "tsp20", param={1: 2}), "param is {1: 2}; expected a table of settings"),
        (lambda: nco_bench.run("lkh3", "tsp20", results=5), "results is 5; expected a folder"),
        (lambda: nco_bench.load(5), "name is 5; expected a name or a file"),
        (lambda: nco_bench.load("tsp20", instances=b"x"), "instances is b'x'; expected a folder"),
        (lambda: nco_bench.score(None, [0]), "instance is None; expected a file, a name"),
        (lambda: nco_bench.score(nco_bench.load("tsp20").instances[0], [[0], [1, 2]]), "expected a list of node"),
        (lambda: nco_bench.records(data=5), "data is 5; expected a name or a list of names"),
        (lambda: nco_bench.records(results=5), "results is 5; expected a folder or a list of folders"),
        (lambda: nco_bench.compare(5, "lkh3", "tsp20"), "solver_a is 5; expected a name"),
        (lambda: nco_bench.verify(5), "runs is 5"),
        (lambda: Study.read(5), "path is 5; expected a file"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_by_the_name_of_its_argument(
    call: Callable[[], object], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        call()


SCRIPT = """
import nco_bench, numpy as np

@nco_bench.register("mine", problems=("tsp",))
class Mine:
    def __init__(self, options): ...
    def unsupported(self, dataset): ...
    def prepare(self, dataset): ...
    def solve(self, batch, *, seed, time_limit, progress):
        return [np.roll(np.argsort(i.coords[:, AXIS]), 1) for i in batch]

AXIS = 0
done = nco_bench.run("mine", "tsp20", limit=1)
print(done.cells[0]["mean_cost"], len(done.run_ids))
"""


def test_a_solver_of_a_script_is_run_and_an_edited_one_is_another() -> None:
    instance = nco_bench.load("tsp20").instances[0]
    costs = [nco_bench.score(instance, np.argsort(instance.coords[:, axis])).cost for axis in (0, 1)]
    assert costs[0] != costs[1]
    edited = SCRIPT.replace("AXIS", "1").replace("1 = 0\n", "")
    for script, cost, written in ((SCRIPT, costs[0], 1), (SCRIPT, costs[0], 0), (edited, costs[1], 1)):
        Path("mine.py").write_text(script)
        done = subprocess.run([sys.executable, "mine.py"], capture_output=True, text=True, check=True)
        found, runs = done.stdout.split()
        assert float(found) == pytest.approx(cost)
        assert int(runs) == written
    assert nco_bench.verify().findings == ()


def test_a_solver_within_a_function_is_refused() -> None:
    with pytest.raises(BadInputError, match="define it at the top of its file"):

        @nco_bench.register("mine", problems=("tsp",))
        class Mine: ...


def test_two_solvers_are_compared_by_instance() -> None:
    nco_bench.run(["nearest-neighbor", "two-opt"], "tsp30", limit=6)
    found = nco_bench.compare("two-opt", "nearest-neighbor", "tsp30")
    costs = nco_bench.records().pivot(index="instance", columns="solver", values="cost")
    assert found.wins == (costs["two-opt"] < costs["nearest-neighbor"] - 1e-9).sum()
    assert found.difference == pytest.approx((costs["two-opt"] - costs["nearest-neighbor"]).mean())


@pytest.mark.parametrize("call", [nco_bench.plan, nco_bench.run_study])
def test_what_is_no_study_is_refused_in_one_line(call: Callable[..., object]) -> None:
    with pytest.raises(BadInputError, match=r"study is 'study\.toml'; expected a Study"):
        call("study.toml")
