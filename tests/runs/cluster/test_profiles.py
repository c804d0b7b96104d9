"""Profiles, and what is refused before anything is submitted."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nco_bench.cli.app import run
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.runs.cluster.profile import python_command, read_profile

CLUSTER = """\
partition = "gpu"
time = "1-02:30:01"
memory = "16G"
gpus = 1
setup = ["module load python", "source venv/bin/activate"]
container = "nco bench.sif"
extra = { constraint = "a100", exclusive = true }
"""


def test_a_profile_is_a_file_or_a_name_and_the_command_line_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "nco-bench" / "clusters"
    folder.mkdir(parents=True)
    (folder / "ours.toml").write_text(CLUSTER)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = read_profile("ours", {"partition": "cpu", "extra": "nice=5,requeue", "job_minutes": "0.5"})
    assert found == read_profile(
        str(folder / "ours.toml"), {"partition": "cpu", "extra": "nice=5,requeue", "job_minutes": "0.5"}
    )
    assert (found.partition, found.memory, found.gpus) == ("cpu", "16G", 1)
    assert found.time == 26 * 60 + 31  # a day, 2:30 h, and a started minute
    assert found.setup == ("module load python", "source venv/bin/activate")
    assert found.extra == {"nice": "5", "requeue": True}
    assert found.target_seconds == 30
    assert python_command(found, gpu=True) == "apptainer exec --nv 'nco bench.sif' python3"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"time": "soon"}, "minutes, H:MM:SS"),
        ({"memory": "much"}, "16G"),
        ({"gpus": "-1"}, "at least 0"),
        ({"cpus": "0"}, "at least 1"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_with_what_is_expected(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(BadInputError, match=said):
        read_profile(None, given)


def test_unknown_profiles_and_keys_name_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UnknownNameError, match="cluster profile 'ours'"):
        read_profile("ours", {})
    with pytest.raises(UnknownNameError, match="'partition'"):
        read_profile(None, {"partitoin": "gpu"})
    file = tmp_path / "cluster.toml"
    file.write_text("memmory = '1G'\n")
    with pytest.raises(UnknownNameError, match="memory"):
        read_profile(str(file), {})


def test_without_sbatch_nothing_runs_and_one_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = [
        "run",
        "nearest-neighbor",
        "--data",
        "tsp20:count=2",
        "--executor",
        "slurm",
        "--results",
        "there",
    ]
    assert run(command) == 2
    assert capfd.readouterr().err.strip().splitlines() == [
        "error: --executor slurm: there is no 'sbatch' here; log in to a node that submits to SLURM, or leave "
        "--executor slurm out."
    ]
    assert not (tmp_path / "there").exists()


def test_where_slurm_cannot_be_had_one_line_says_so(tmp_path: Path) -> None:
    user = tmp_path / "id"
    user.write_text("#!/bin/sh\necho 1000\n")
    user.chmod(0o755)
    script = Path(__file__).parents[3] / "tools/cluster/one_node.sh"
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["bash", str(script), str(tmp_path / "node"), "touch", str(tmp_path / "ran")]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 77
    assert done.stderr == "one_node.sh: skipped: needs root to start SLURM's daemons\n"
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("train", "am", "--slurm", "gpus=1"), "add it, or leave them out"),
        (("train", "am", "--executor", "cloud"), "expected local or slurm"),
        (("reproduce", "pens", "--table", "4", "--detach"), "add it, or leave them out"),
        (("reproduce", "pens", "--status", "--executor", "slurm"), "leave --executor slurm out"),
        (
            ("train", "am", "--executor", "slurm", "--cluster", "ours", "--budget", "1h"),
            "cluster profile 'ours'",
        ),
        (("train", "am", "--executor", "slurm", "--slurm", "gpuz=1", "--budget", "1h"), "gpuz"),
        (("train", "am", "--executor", "slurm", "--device", "cuda", "--budget", "1h"), "--slurm gpus=1"),
        (("train", "decoder-6x128", "--executor", "slurm"), "--data"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line_before_anything_is_submitted(
    given: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    assert run(list(given)) == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert said in line
    assert not list(tmp_path.iterdir())


def test_settings_of_slurm_without_slurm_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "nearest-neighbor", "--data", "tsp20:count=2", "--detach"]) == 2
    assert "--executor slurm" in capfd.readouterr().err
