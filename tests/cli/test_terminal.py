"""What a terminal of 80 columns shows: names in one piece, commands to copy with all their characters."""

from __future__ import annotations

import json
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
