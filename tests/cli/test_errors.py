"""Bad input gets one clear line on stderr and exit status 2; nothing is lost or half-written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from refusals import Done, assert_refused

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.storage import save_dataset
from nco_bench.problems import tsp


def test_what_a_writer_has_to_say_is_one_line_without_a_source_file(nco_bench: Callable[..., Done]) -> None:
    save_dataset(generate("cvrp", 20, 2, "uniform", 1), Path("c.npz"))
    done = nco_bench("convert", "c.npz", "c.pt")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "note: c.pt: rounded to float32, as POMO expects.", "2 cvrp instances written to c.pt",
    ]  # fmt: skip


def test_a_format_that_cannot_hold_the_problem_is_told_with_the_file_and_those_that_can(
    nco_bench: Callable[..., Done],
) -> None:
    tour = np.arange(20)
    plain = generate("tsp", 20, 2, "uniform", 1)
    solved = [Reference(tsp.score(one, tour), "in order", tour) for one in plain.instances]  # type: ignore[arg-type]
    save_dataset(plain.with_references(solved), Path("t.npz"))
    refused = nco_bench("convert", "t.npz", "t.pt")
    assert_refused(refused, "t.pt: format 'pomo' holds cvrp, not tsp", "--to")
    names = refused.stderr.partition("--to: ")[2].strip(" .\n").split(", ")
    done = [nco_bench("convert", "t.npz", f"t.{name}", "--to", name, "--instance", "1") for name in names]
    assert not any("not tsp" in one.stderr for one in done)
    written = {name for name, one in zip(names, done, strict=True) if one.returncode == 0}
    assert written >= set(names) - {"lehd-lib", "elg"}  # which are of rounded costs, and of libraries


def test_where_no_other_format_holds_the_problem_only_ours_is_advised(
    nco_bench: Callable[..., Done],
) -> None:
    save_dataset(generate("bpp3d", 5, 2, "uniform", 1), Path("b.npz"))
    assert_refused(nco_bench("convert", "b.npz", "b.pkl"), "not bpp3d; choose a name ending in .npz.")


def test_our_own_format_has_its_ending_or_is_not_written(nco_bench: Callable[..., Done]) -> None:
    """`t.other` was written as `t.npz`, over what stood there."""
    save_dataset(generate("tsp", 20, 2, "uniform", 1), Path("t.npz"))
    before = Path("t.npz").read_bytes()
    refused = nco_bench("convert", "t.npz", "t.other", "--to", "nco-bench", "--instance", "1")
    assert_refused(refused, "t.other", "ending in .npz")
    assert Path("t.npz").read_bytes() == before


def test_a_set_that_lacks_one_of_two_solvers_does_not_hide_the_others(nco_bench: Callable[..., Done]) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp10:count=2", "--data", "tsp9:count=2")
    nco_bench("run", "random-insertion", "--data", "tsp9:count=2")
    both = ("compare", "random-insertion", "nearest-neighbor", "--data")
    missing = "no records of random-insertion on tsp10:count=2; make them with: nco-bench run random-insertion --data tsp10"
    assert_refused(nco_bench(*both, "tsp10:count=2"), missing)
    for extra in ((), ("--json",)):
        done = nco_bench(*both, "tsp10:count=2", "--data", "tsp9:count=2", *extra)
        assert done.returncode == 2
        assert "tsp9:count=2" in done.stdout
        assert "tsp10" not in done.stdout
        assert missing in done.stderr


CRASHING = """
from nco_bench.solvers import register

@register("crashing", problems=("tsp",))
class Solver:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress):
        return self.broken_helper()
    def broken_helper(self):
        raise ValueError("no tour today")
"""


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_shows_where_a_solver_crashed(
    nco_bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("NCO_BENCH_DEBUG", "0")
    Path("crashing.py").write_text(CRASHING)
    command = ["run", "crashing.py", "--data", "tsp10:count=1"]
    plain = nco_bench(*command)
    assert plain.returncode == 1
    assert "no tour today" in plain.stderr
    assert "Traceback" not in plain.stderr
    debugged = nco_bench(*(["--debug", *command] if place == "before" else [*command, "--debug"]))
    assert "Traceback" in debugged.stderr
    assert "in broken_helper" in debugged.stderr


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["run", "lkh33", "--data", "tsp20:count=2"], ["solver 'lkh33'", "'lkh3'"]),
        (
            ["run", "nearest-neighbor", "--data", "tsp20", "tsp50:count=2"],
            ["a dataset", "--data tsp50:count=2"],
        ),
        (
            ["run", "nearest-neighbor", "--data", "tsp20", "tsplib:1-100"],
            ["a dataset", "--data tsplib:1-100"],
        ),
        (
            ["run", "nearest-neighbor", "--data", "tsp20", "tsp50:nosuch"],
            ["a dataset", "--data tsp50:nosuch"],
        ),
        (["run", "nearest-neighbor", "--data", "tps100"], ["dataset 'tps100'", "'tsp100'"]),
        (["run", "decoder-6x128", "--data", "tsp20:count=2", "--decoding", "greedi"], ["decoding", "greedy"]),
        (["run", "nearest-neighbor", "--data", "tsp1"], ["tsp1", "at least 2 nodes"]),
        (["run", "nearest-neighbor", "--data", "no/such.tsp"], ["no such file"]),
        (["run", "nearest-neighbor", "--data", "no/such.csv"], ["no/such.csv: no such file"]),
        (["score", "missing.json", "a.tour"], ["missing.json: no such file"]),
        (["run", "nearest-neighbor", "--data", "tsp20:count=2", "--limit", "0"], ["--limit"]),
        (["run", "nearest-neighbor", "--data", "tsp20:count=2", "--batch-size", "0"], ["--batch-size"]),
        (["run", "nearest-neighbor", "--data", "tsp20:count=2", "--param", "colour=red"], ["colour"]),
        (["run", "nearest-neighbor", "--data", "tsp20:count=2", "--param", "colour"], ["KEY=VALUE"]),
        (
            ["run", "nearest-neighbor", "--data", "tsp20:count=2", "--limit", "3-4"],
            ["--limit 3-4", "only 2 instances"],
        ),
        (["train", "am", "--config", ""], ["--config is empty", "such as lr=1e-3"]),
        (["train", "am", "--config", "mine.toml"], ["mine.toml: options are KEY=VALUE", "--campaign FILE"]),
        (["train", "am", "--config", "lr="], ["--config lr= has no value", "leave lr out"]),
        (["train", "am", "--config", "recipe="], ["--config recipe= has no value"]),
        (["train", "am", "--config", "model.width= "], ["--config model.width= has no value"]),
        (["run", "nearest-neighbor"], ["--data"]),
        (["run", "nearest-neighbor", "--data", "tsp20", "--colour"], ["--colour"]),
        (["generate", "tsp", "--n", "1"], ["at least 2 nodes"]),
        (["generate", "tsp", "--n", "20", "--distribution", "uniforn"], ["distribution", "'uniform'"]),
        (["generate", "tsq", "--n", "20"], ["problem 'tsq'"]),
        (["generate", "tsp", "--n", "20", "--count", "0"], ["tsp20: --count is 0", "at least 1 instance"]),
        (["generate", "tsp", "--n", "0"], ["give a larger --n"]),
        (["generate", "knapsack", "--n", "8", "--count", "0"], ["knapsack: --count is 0"]),
        (["generate", "cvrp", "--n", "20", "--capacity", "-3"], ["cvrp20: --capacity is '-3'"]),
        (["generate", "cvrp", "--n", "20", "--capacity", "2"], ["--capacity is 2, below the largest"]),
        (["generate", "cvrp", "--n", "20", "--param", "capacity=x"], ["--param capacity is 'x'"]),
        (["generate", "cvrp", "--n", "20", "--param", "range=2..1"], ["--param range is '2..1'"]),
        (["generate", "tsp", "--n", "20", "--capacity", "30"], ["--capacity 30", "cvrp", "leave it out"]),
        (["generate", "bpp3d", "--n", "9", "--bin", "0x3"], ["--bin is '0x3'"]),
        (["run", "two-opt", "--data", "cvrp20:capacity=-3"], ["cvrp20: capacity is '-3'"]),
        (["list", "solver"], ["'solvers'"]),
        (["list"], ["'KIND': solvers, datasets"]),
        (["run"], ["'SOLVER': Solver names"]),
        (["instances", "pull", "nothing"], ["tsplib, cvrplib, lra, testsets", "list datasets"]),
        (["instances", "pull", "tsp100"], ["tsp100", "generated", "--data"]),
        (["show", "lkh4"], ["'lkh3'"]),
        (["verify"], ["no runs to verify"]),
        (["report"], ["nco-bench run"]),
        (["train", "decoder-6x129", "--data", "tsp20"], ["decoder-6x128", "'nco-bench list models'"]),
        (["train", "decoder-6x128", "--data", "tsp20", "--budget", "soon"], ["--budget"]),
        (["train", "--campaign", "a.toml", "--config", "lr=1"], ["--config", "a.toml says it"]),
        (["generat"], ["generat"]),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--batch-size", "\u00b2"], ["--batch-size"]),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--time-limit", "0"], ["--time-limit 0"]),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--time-limit", "inf"], ["--time-limit inf"]),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--time-limit", "nan"], ["--time-limit nan"]),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--seed", "9" * 20], ["--seed", "4294967295"]),
        (
            ["run", "nearest-neighbor", "--data", "tsp9:count=2", "--device", "gpu"],
            ["--device 'gpu'", "cuda:N"],
        ),
        (
            ["run", "nearest-neighbor", "--data", "tsp9:count=2", "--decoding", "greedy"],
            ["--decoding greedy"],
        ),
        (["run", "nearest-neighbor", "--data", "tsp9:count=2", "--weights", "random"], ["--weights random"]),
        (
            ["run", "nearest-neighbor", "--data", "tsp9:count=2", "--device", "cuda:9"],
            ["--device cuda:9", "nearest-neighbor is no network", "leave it out"],
        ),
        (
            ["run", "nearest-neighbor", "lkh3", "--data", "tsp9:count=2", "--weights", "random"],
            ["nearest-neighbor and lkh3 are no networks"],
        ),
        (["run", "lkh3:runs=1:runs=2", "--data", "tsp9:count=2"], ["runs is given twice"]),
        (
            ["run", "lkh3", "--param", "runs=1", "--param", "runs=2", "--data", "tsp9"],
            ["runs is given twice"],
        ),
        (
            ["run", "decoder-6x128", "--data", "tsp9:count=2", "--decoding", "sample:" + "9" * 20],
            ["[1, 10,000,000]"],
        ),
        (
            ["run", "decoder-6x128", "--data", "tsp9:count=2", "--decoding", "x8:greedy"],
            ["x8 takes no number"],
        ),
        (
            ["run", "decoder-6x128", "--data", "tsp9:count=2", "--weights", "decoder-6x129"],
            ["'decoder-6x128'"],
        ),
        (["run", "decoder-6x128", "--data", "tsp9:count=2", "--weights", "/"], ["folder"]),
        (["run", "nearest-neighbor", "--data", "."], ["is a folder"]),
        (["generate", "tsp", "--n", "9", "--bin", "120x100"], ["--bin 120x100", "bpp3d"]),
        (
            ["generate", "bpp3d", "--n", "9", "--bin", "9x9", "--distribution", "8x8"],
            ["--bin", "--distribution"],
        ),
        (["generate", "tsp", "--n", "9", "--check", "lkh3"], ["--check lkh3", "--shards"]),
        (["generate", "tsp", "--n", "9", "--jobs", "0"], ["--jobs"]),
        (["reference", "tsp9:count=2", "--solver", "two-opt", "--jobs", "0"], ["--jobs"]),
        (["reference", "tsp9:count=2", "--solver", "hgs", "--jobs", "2"], ["hgs on tsp9", "solves cvrp"]),
        (["report", "--out", "x.xyz"], ["x.xyz", ".tex"]),
        (["report", "--html", "--table", "instances"], ["--table instances", "leave --table out"]),
        (["report", "--table", "times", "--gap", "gap-of-means"], ["--gap", "times", "leave it out"]),
        (["report", "--notes", "--csv"], ["--notes", "CSV"]),
        (["report", "--document", "--out", "x.md"], ["x.md", "markdown", "latex"]),
        (["report", "--table", "pens table 1"], ["'nco-bench reproduce pens --table 1 --stored'"]),
        (["weights", "list", "--instances", "x"], ["--instances"]),
        (
            ["reproduce", "eie", "--table", "1", "--out", "/proc/tables"],
            ["/proc/tables", "cannot be written"],
        ),
        (["instances", "verify", "--instances", "nowhere"], ["nowhere", "no such folder"]),
        (["calibrate", "pens-a", "--grid", "1:2"], ["--grid '1:2'", "FROM:TO:STEP"]),
        (["calibrate", "pens-a", "--grid", "1:1.1:0.1"], ["--grid", "3 to 1,000"]),
        (["calibrate", "pens-a", "--grid", "0:inf:0.1"], ["--grid"]),
        (["calibrate", "pens-a", "--sizes", "50,100", "--seed", "31000"], ["--seed 31000", "trained on"]),
        (["run", "pens-a", "--data", "tsp20:count=2", "--coordinate-scale", "big"], ["auto, extrapolate or"]),
    ],
)
def test_mistakes_are_refused_in_one_line(
    nco_bench: Callable[..., Done], arguments: list[str], fragments: list[str]
) -> None:
    assert_refused(nco_bench(*arguments), *fragments)


def test_a_damaged_dataset_is_refused(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    path = save_dataset(generate("tsp", 10, 3, "uniform", 1), tmp_path / "set.npz")
    path.write_bytes(b"PK not really a zip")
    assert_refused(
        nco_bench("run", "nearest-neighbor", "--data", "set.npz"), "set.npz", "not a readable .npz"
    )


def test_coordinates_that_are_not_numbers_are_refused(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    dataset = generate("tsp", 10, 3, "uniform", 1)
    path = save_dataset(dataset, tmp_path / "set.npz")
    arrays = dict(np.load(path))
    arrays["x_coords"][1, 4] = np.inf
    np.savez(path, **arrays)
    assert_refused(nco_bench("run", "nearest-neighbor", "--data", "set.npz"), "node 4", "not finite")


def test_a_weights_file_of_another_model_or_damaged_is_refused(
    nco_bench: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "noise.safetensors").write_bytes(b"\x10\x00\x00\x00\x00\x00\x00\x00nonsense")
    done = nco_bench("run", "decoder-6x128", "--data", "tsp20:count=2", "--weights", "noise.safetensors")
    assert_refused(done, "noise.safetensors")


def test_a_torch_checkpoint_is_answered_with_the_command_that_imports_it(
    nco_bench: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("epoch-99.pt", "folder/epoch-99.pt"):
        (tmp_path / name).write_bytes(b"PK")
        done = nco_bench("run", "am", "--data", "tsp9:count=2", "--weights", name)
        assert_refused(done, f"nco-bench weights import am {name}'")


def test_a_checkpoint_of_another_network_is_refused_in_a_line_that_can_be_read(
    nco_bench: Callable[..., Done], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"model": {"weight": torch.zeros(3)}}, tmp_path / "other.pt")
    done = nco_bench("weights", "import", "am", "other.pt")
    assert_refused(done, "other.pt: does not fit am", "placeholder")
    assert len(done.stderr) < 400  # of 62 tensors that are missing


def test_a_wrong_name_of_weights_is_answered_with_the_nearest_ones_not_with_all(
    nco_bench: Callable[..., Done],
) -> None:
    done = nco_bench("run", "decoder-6x128", "--data", "tsp9:count=2", "--weights", "nonsense")
    assert_refused(done, "'nonsense'", "nco-bench weights list")
    assert len(done.stderr) < 240


@pytest.mark.parametrize("more", [[], ["--jobs", "2", "--data", "tsp9:count=2"], ["--dry-run"]])
def test_weights_that_are_missing_are_all_named_before_anything_is_solved(
    nco_bench: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: list[str]
) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    solvers = ["nearest-neighbor", "coordns", "pens-a", "am"]
    done = nco_bench("run", *solvers, "--data", "tsp20:count=2", *more)
    assert_refused(done, "train coordns --data", "weights pull am-official-tsp20", "in 2 cases")
    assert "'pens-a'" not in done.stderr  # it is there
    assert not (tmp_path / "results").exists()


def test_one_instance_of_several_is_converted_where_the_format_holds_one(
    nco_bench: Callable[..., Done], tmp_path: Path
) -> None:
    dataset = generate("tsp", 10, 3, "uniform", 1)
    save_dataset(dataset, tmp_path / "set.npz")
    assert_refused(nco_bench("convert", "set.npz", "one.tsp"), "--instance K")
    assert_refused(nco_bench("convert", "set.npz", "one.tsp", "--instance", "4"), "1..3")
    assert nco_bench("convert", "set.npz", "one.tsp", "--instance", "2").returncode == 0
    assert nco_bench("convert", "one.tsp", "back.npz").returncode == 0
    assert np.allclose(np.load(tmp_path / "back.npz")["x_coords"][0], dataset.instances[1].arrays()["coords"])


def test_a_solver_file_that_exits_is_refused(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text("import sys; sys.exit(3)\n")
    assert_refused(nco_bench("run", "exits.py", "--data", "tsp9:count=2"), "exits.py", "SystemExit")


def test_a_picture_is_no_training_log(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(b"\x89PNG\r\n\x1a\n\xd2\x00")
    assert_refused(nco_bench("plot", "training", "log.csv", "--out", "log.png"), "log.csv", "no CSV file")


def test_the_ending_of_a_picture_is_refused_before_networks_run_for_it(
    nco_bench: Callable[..., Done],
) -> None:
    """`plot sightedness`, `repeats` and `features` had solved everything by then; these weights are not there."""
    for kind in ("sightedness", "repeats", "features"):
        refused = nco_bench("plot", kind, "sit:weights=none", "--data", "tsp9:count=2", "--out", "p.gif")
        assert_refused(refused, "p.gif: plots are written as .png, .pdf or .svg, not '.gif'")


def test_a_message_of_several_lines_is_folded_to_one(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_text("not an archive")
    assert_refused(nco_bench("instances", "pull", "tsplib", "--archive", "a.tar.gz"), "a.tar.gz", "archive")


def test_the_ending_of_a_report_chooses_its_format(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp9:count=2")
    assert nco_bench("report", "--out", "table.tex").returncode == 0
    assert r"\begin{tabular}" in (tmp_path / "table.tex").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("torch", "neural", ["run", "decoder-6x128", "--data", "tsp9:count=2"]),
        ("torch", "neural", ["train", "decoder-6x128", "--data", "tsp9:count=2", "--budget", "1s"]),
        ("torch", "neural", ["weights", "export", "decoder-6x128", "--out", "copy.safetensors"]),
        ("torch", "neural", ["parity", "fixture.safetensors"]),
        ("torch", "neural", ["plot", "lengths", "--data", "quickselect", "--out", "lengths.png"]),
        ("numba", "classical", ["run", "two-opt", "--data", "tsp9:count=2"]),
        ("matplotlib", "plots", ["plot", "tour", "--data", "tsp9:count=2", "--out", "tour.png"]),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, module: str, extra: str, arguments: list[str]
) -> None:
    code = f"import sys; sys.modules[{module!r}] = None; from nco_bench.cli.app import run; sys.exit(run({arguments!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert_refused(Done(done.returncode, done.stdout, done.stderr), f"pip install 'nco-bench[{extra}]'")


@pytest.mark.parametrize("key", ["problem", "n", "count", "distribution", "seed"])
def test_a_param_that_is_an_option_of_its_own_is_refused(nco_bench: Callable[..., Done], key: str) -> None:
    done = nco_bench("generate", "tsp", "--n", "8", "--count", "2", "--param", f"{key}=4")
    assert_refused(done, f"--param {key}=4: {key} is given by ")


def test_a_distribution_of_boxes_is_named_as_it_was_given(nco_bench: Callable[..., Done]) -> None:
    done = nco_bench("generate", "bpp3d", "--n", "8", "--distribution", "clustered")
    assert_refused(done, "distribution (of boxes: the bin) is 'clustered'; expected LENGTHxWIDTH")


def test_the_option_that_was_given_is_named(nco_bench: Callable[..., Done]) -> None:
    assert_refused(nco_bench("report", "--document", "--csv"), "--document and --csv exclude each other")


def test_weights_that_are_not_what_their_name_says_are_told_apart(
    nco_bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sound safetensors file under another name was called a dangerous pickle."""
    monkeypatch.setenv("NCO_BENCH_CACHE", "cache")
    header = b'{"__metadata__":{}}'
    Path("w.pt").write_bytes(len(header).to_bytes(8, "little") + header)
    assert_refused(
        nco_bench("weights", "import", "am", "w.pt"), "is a safetensors file", "name it w.safetensors"
    )
    Path("w.pt").write_bytes(b"")
    assert_refused(nco_bench("weights", "import", "am", "w.pt"), "w.pt: is empty; get it again")


def test_a_search_has_a_limit_that_is_a_number(nco_bench: Callable[..., Done]) -> None:
    done = nco_bench("reproduce", "pens", "--status", "--time-limit", "nan")
    assert_refused(done, "--time-limit nan: expected a positive number of seconds")
