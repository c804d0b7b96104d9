"""Networks trained in the background: started once, continued where they were, described in a line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nco_bench.errors import BadInputError
from nco_bench.training.campaign import last_checkpoint
from nco_bench.training.campaign_file import Stage, read_networks
from nco_bench.training.checkpoint import load_state
from nco_bench.training.flagships import (
    describe,
    is_running,
    share_cores,
    start,
    train_on,
)

CONFIG = """
[[network]]
name = "two-layers"
model = "decoder-24x64"
seed = 5
labels = "labels"
validation = "labels/shard-2.npz"
config = { recipe = "flagship", batch = 4, longest = 11, longest_start = 11, checkpoint_every = 0, log_every = 1,
           validation_instances = 2, "model.depth" = 2 }
"""


@pytest.fixture
def campaign(tmp_path: Path, shards: list[Path]) -> tuple[Path, Stage]:
    file = tmp_path / "flagships.toml"
    file.write_text(CONFIG.replace("\n           ", " "))
    return file, read_networks(file)[0]


def _until(done: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)


def _steps(folder: Path, flagship: Stage) -> int:
    path = last_checkpoint(folder, flagship.name)
    return int(load_state(path)["progress"]["step"]) if path.exists() else -1


def _pid(folder: Path, flagship: Stage) -> int:
    return int((folder / f"{flagship.name}.lock").read_text())


def test_a_network_is_started_once_killed_and_continued(campaign: tuple[Path, Stage], tmp_path: Path) -> None:
    file, flagship = campaign
    assert describe(tmp_path, flagship) == "two-layers: stopped, no checkpoint yet"
    start(file, tmp_path, flagship)
    _until(lambda: _steps(tmp_path, flagship) >= 3)
    pid = _pid(tmp_path, flagship)
    assert is_running(tmp_path, flagship)
    assert os.getpriority(os.PRIO_PROCESS, pid) == 15
    with pytest.raises(BadInputError, match="trains two-layers already"):
        train_on(tmp_path, flagship)
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not is_running(tmp_path, flagship))
    reached = _steps(tmp_path, flagship)
    state = load_state(last_checkpoint(tmp_path, flagship.name))["progress"]
    assert 0 < state["core_seconds"] <= state["seconds"] + 1
    assert describe(tmp_path, flagship).startswith(
        f"two-layers: stopped, {state['samples']:,} samples, 0.00 core-hours"
    )

    # More labels may be there by then.
    np.savez(tmp_path / "labels" / "shard-3.npz", **np.load(tmp_path / "labels" / "shard-0.npz"))
    start(file, tmp_path, flagship)
    _until(lambda: _steps(tmp_path, flagship) > reached)
    os.kill(_pid(tmp_path, flagship), signal.SIGKILL)
    _until(lambda: not is_running(tmp_path, flagship))
    history = load_state(last_checkpoint(tmp_path, flagship.name))["progress"]["history"]
    assert [line["step"] for line in history if "loss" in line] == list(
        range(1, _steps(tmp_path, flagship) + 1)
    )
    assert [set(line["changed"]) for line in history if "changed" in line] == [{"data"}]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[[network]]\nmodel = 'sit'", "labels is missing or unknown"),
        (CONFIG + "sede = 3", "sede is missing or unknown"),
        ("[[stage]]\nmodel = 'sit'", "expected a list of"),
        ("[[network", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, cause: str) -> None:
    file = tmp_path / "flagships.toml"
    file.write_text(text.replace("\n           ", " "))
    with pytest.raises(BadInputError, match=cause):
        read_networks(file)


def test_the_campaign_of_this_project_is_readable() -> None:
    flagships = read_networks(Path(__file__).parents[2] / "campaigns" / "flagships.toml")
    assert [flagship.model for flagship in flagships] == ["pens-a", "decoder-6x128"]


def test_two_processes_train_one_network(campaign: tuple[Path, Stage], tmp_path: Path) -> None:
    file, _ = campaign
    file.write_text(file.read_text().replace("seed = 5", "seed = 5\nprocesses = 2"))
    (flagship,) = read_networks(file)
    start(file, tmp_path, flagship)
    _until(lambda: _steps(tmp_path, flagship) >= 2)
    assert is_running(tmp_path, flagship)
    os.kill(_pid(tmp_path, flagship), signal.SIGKILL)
    _until(lambda: not is_running(tmp_path, flagship))
    assert load_state(last_checkpoint(tmp_path, flagship.name))["progress"]["samples"] % 4 == 0


def test_two_processes_end_quietly_with_a_checkpoint(campaign: tuple[Path, Stage], tmp_path: Path) -> None:
    """What SIGTERM ended as it should had torchrun's traceback around it."""
    file, _ = campaign
    file.write_text(file.read_text().replace("seed = 5", "seed = 5\nprocesses = 2"))
    (flagship,) = read_networks(file)
    start(file, tmp_path, flagship)
    _until(lambda: _steps(tmp_path, flagship) >= 2)
    launcher = int(Path(f"/proc/{_pid(tmp_path, flagship)}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(launcher, signal.SIGTERM)
    _until(lambda: not is_running(tmp_path, flagship))
    _until(lambda: not _alive(launcher))
    told = (tmp_path / f"{flagship.name}.log").read_text().splitlines()
    assert [line for line in told if not line.startswith("step ")] == [
        "ending with a checkpoint after this update; once more ends at once"
    ]


def _alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(("cores", "shares"), [(0, []), (1, [1]), (2, [2]), (3, [2, 1]), (9, [2, 1])])
def test_the_first_networks_get_the_cores_that_there_are(cores: int, shares: list[int]) -> None:
    flagships = read_networks(Path(__file__).parents[2] / "campaigns" / "flagships.toml")
    assert [flagship.processes for flagship in share_cores(flagships, cores)] == shares


def test_a_network_without_processes_is_refused(campaign: tuple[Path, Stage]) -> None:
    file, _ = campaign
    file.write_text(file.read_text().replace("seed = 5", "seed = 5\nprocesses = 0"))
    with pytest.raises(BadInputError, match="network 1: processes = 0: expected 1 or more"):
        read_networks(file)


def test_a_reader_that_leaves_early_gets_no_traceback(campaign: tuple[Path, Stage], tmp_path: Path) -> None:
    """As ``--status | head`` does."""
    file, _ = campaign
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "nco_bench.training.flagships", str(file), str(tmp_path), "--status"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")
