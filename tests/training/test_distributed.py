"""Two processes that train together follow the trajectory of one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nco_bench.cli import app
from nco_bench.errors import ResultsError
from nco_bench.training.campaign import CampaignResult
from nco_bench.training.checkpoint import LAST, load_checkpoint
from nco_bench.training.distributed import Group, joined
from nco_bench.training.run import train
from nco_bench.training.trainer import TrainingStopped

CONFIG = {
    "steps": "6", "batch": "7", "longest": "11", "longest_start": "6", "log_every": "1", "validation_instances": "3",
}  # fmt: skip
RUN = """
import json, sys, torch
from pathlib import Path
from nco_bench.training.run import train
torch.set_num_threads(1)
data, config, out = json.loads(sys.argv[1])
train("decoder-24x64", data, config, out=Path(out), progress="silent")
"""


def test_shares_of_a_batch_make_the_batch() -> None:
    for count in (1, 2, 5, 8):
        parts = [Group(rank, 3) for rank in range(3)]
        assert sum(part.share(count) for part in parts) == pytest.approx(1.0)
        rows = torch.cat([part.rows(count) for part in parts if part.share(count)])
        assert rows.sort().values.tolist() == list(range(count))


def test_the_first_process_of_a_machine_alone_tells_of_a_mistake(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    told = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert app.run(["train", "no-such-model"]) == 2
        told[rank] = capfd.readouterr().err
    assert told["0"].startswith("error: ")
    assert told["1"] == ""
    assert app.run(["show", "no-such-solver"]) == 2
    assert capfd.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(("alone", "tellers"), [(False, ["0"]), (True, ["0", "1"])])
def test_a_loss_that_is_no_number_is_told_once_and_a_full_gpu_by_its_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], alone: bool, tellers: list[str]
) -> None:
    """All processes see the same mean loss; of a full GPU only its own process knows."""

    def stop(*_: object, **__: object) -> None:
        stopped = TrainingStopped("Training stopped at step 3")
        stopped.alone = alone
        raise stopped

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("nco_bench.training.run.train", stop)
    told = []
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert app.run(["train", "decoder-24x64", "--data", "x.npz"]) == 1
        if capfd.readouterr().err == "error: Training stopped at step 3\n":
            told.append(rank)
    assert told == tellers


def test_what_a_campaign_came_to_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("")
    done = CampaignResult(("turn 1 of 1: done",), (), complete=True)
    monkeypatch.setattr("nco_bench.training.campaign.run_campaign", lambda *_, **__: done)
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = {}
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        assert app.run(["train", "--campaign", str(file)]) == 0
        said[rank] = capfd.readouterr().err
    assert "turn 1 of 1: done" in said["0"]
    assert said["1"] == ""


def test_a_process_that_waits_for_one_that_has_ended_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it raised was a traceback below the one line of the process that had refused the command."""
    place = {
        "WORLD_SIZE": "2",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend: None)
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: None)
    with pytest.raises(ResultsError, match="Another process of this training has ended"), joined("cpu"):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:40588.")
    with pytest.raises(RuntimeError, match="out of memory"), joined("cpu"):
        raise RuntimeError("out of memory")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "rel", "near"), [({}, 1e-5, 1e-5), ({"optimizer": "muon", "lr": "2e-3"}, 1e-3, 2e-4)]
)
def test_two_processes_learn_what_one_learns(
    tmp_path: Path, shards: list[Path], config: dict[str, str], rel: float, near: float
) -> None:
    # Muon's iterations, in bf16 where the processor has it, magnify how sums over two halves are rounded;
    # weights move by some 2e-3.
    config = {**CONFIG, **config}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = json.dumps([[str(s) for s in shards], config, str(tmp_path / "two")])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN, arguments],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0]
    train("decoder-24x64", shards, config, out=tmp_path / "one", progress="silent")
    histories = [
        [
            line["loss"]
            for line in load_checkpoint(tmp_path / f"{n}.training" / LAST).state["progress"]["history"]
            if "loss" in line
        ]
        for n in ("one", "two")
    ]
    assert histories[1] == pytest.approx(histories[0], rel=rel)
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        assert torch.allclose(tensor, two[name], rtol=1e-3, atol=near), name
