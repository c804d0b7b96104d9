"""What a terminal shows: names in one piece, commands to copy with all their characters; streams closed or mixed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nco_bench.cli.app import run
from nco_bench.cli.tables import print_object, print_objects


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal of 80 columns, as rich finds it out, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]


def test_brackets_of_a_command_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command = "pip install 'nco-bench[slurm]'"
    print_objects([{"name": "slurm", "fix": command}])
    print_object({"fix": command})
    assert capsys.readouterr().out.count(command) == 2


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("what", ["solvers", "models", "weights", "datasets", "distributions", "decodings"])
def test_every_name_stands_whole_in_80_columns(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["list", what, "--json"]) == 0
    names = [one["name"] for one in json.loads(capfd.readouterr().out)]
    assert run(["list", what]) == 0
    lines = shown(capfd)
    assert max(len(line) for line in lines) <= 80
    firsts = [line.split()[0] for line in lines if line and not line.startswith(" ")]
    assert [name for name in firsts if name in names] == names


@pytest.mark.usefixtures("terminal")
def test_doctor_names_every_solver_in_80_columns(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "solvers", "--json"]) == 0
    names = {one["name"] for one in json.loads(capfd.readouterr().out)}
    assert run(["doctor"]) == 0
    words = {word.strip(",") for line in shown(capfd) for word in line.split()}
    assert names <= words


def test_output_that_nobody_reads_any_more_is_no_failure() -> None:
    for more in ([], ["--json"]):
        command = [sys.executable, "-m", "nco_bench", "list", "decodings", *more]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()  # as `| head -1` does
            assert process.stderr.read() == b""
        assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux's full device")
def test_output_to_a_full_disk_ends_with_one_line() -> None:
    for more in ([], ["--json"]):
        command = [sys.executable, "-m", "nco_bench", "list", "decodings", *more]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.splitlines() == [
            "error: standard output: cannot be written (No space left on device); free some space."
        ]


def test_streams_that_are_closed_or_of_an_old_encoding_end_no_command(tmp_path: Path) -> None:
    call = [sys.executable, "-m", "nco_bench", "run", "nearest-neighbor", "--data", "tsp9:count=2"]
    closed = "import os, sys; os.close(0); os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    alone = subprocess.run(
        [sys.executable, "-c", closed, *call], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=False
    )
    assert alone.returncode == 0
    assert "nearest-neighbor" in alone.stdout
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    again = subprocess.run(call, cwd=tmp_path, capture_output=True, check=False, env=ascii_only)
    assert again.returncode == 0, again.stderr
    assert b"nearest-neighbor" in again.stdout.splitlines()[-4] + again.stdout.splitlines()[-3]


def test_what_a_solver_prints_is_no_part_of_the_document(tmp_path: Path) -> None:
    source = """
import numpy as np
from nco_bench.solvers import register

@register("prints", problems=("tsp",))
class Prints:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 8
    def solve(self, batch, *, seed, time_limit, progress):
        print("hello")
        return [np.arange(i.n) for i in batch]
"""
    (tmp_path / "prints.py").write_text(source)
    call = [sys.executable, "-m", "nco_bench", "test-solver", "prints.py", "--json"]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["solver"] == "prints.py"
    assert "hello" in done.stderr
