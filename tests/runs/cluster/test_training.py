"""Training as SLURM jobs: several processes, preemption, campaigns. Needs the node that ``make cluster-test`` brings up."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import orjson
import pytest
from one_node import PATIENCE, Place, until

from nco_bench.training.job import FIRST_PORT, MODULE, PORTS, launch_command
from nco_bench.training.together import MODULE as TOGETHER

torch = pytest.importorskip("torch")

SLURM = ("--executor", "slurm", "--slurm", "memory=1800M")
MODEL = "decoder-6x128"
CONFIG = {
    "batch": "7", "longest": "11", "longest_start": "6", "log_every": "1", "validation_instances": "3",
    "model.depth": "2", "checkpoint_every": "0",
}  # fmt: skip
"""Of a small network, each update of which leaves a checkpoint."""


@pytest.fixture
def labels(tmp_path: Path) -> str:
    """Instances whose optimal tours are known: points on a circle."""
    rng = np.random.default_rng(0)
    angles = rng.random((40, 10)) * 2 * np.pi
    coords = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    np.savez(tmp_path / "labels.npz", coords=coords, tours=np.argsort(angles, axis=1))
    return "labels.npz"


def line(out: str, steps: int, data: str) -> list[str]:
    """Return a training's command without its executor."""
    config = [
        word for key, one in {**CONFIG, "steps": steps}.items() for word in ("--config", f"{key}={one}")
    ]
    return ["train", MODEL, "--data", data, *config, "--device", "cpu", "--out", out]


def trained_here(folder: Path, steps: int, data: str) -> dict[str, torch.Tensor]:
    """Train in this process, with a checkpoint at the end alone, and return the weights."""
    from nco_bench.training.run import train

    torch.set_num_threads(1)
    config = {**CONFIG, "steps": str(steps), "checkpoint_every": "600"}
    done = train(MODEL, [folder / data], config, out=folder / "here", progress="silent")
    return weights(done.weights)


def weights(file: Path) -> dict[str, torch.Tensor]:
    """Read the tensors of a weights file."""
    from safetensors.torch import load_file

    return load_file(file)


def losses(out: Path) -> list[float]:
    """Read the loss of each update from the last checkpoint."""
    from nco_bench.training.checkpoint import LAST, load_state

    history = load_state(out.with_suffix(".training") / LAST)["progress"]["history"]
    return [line["loss"] for line in history if "loss" in line]


def steps_done(out: Path) -> int:
    """Return the updates behind the last checkpoint."""
    from nco_bench.training.checkpoint import LAST, load_state

    last = out.with_suffix(".training") / LAST
    return int(load_state(last)["progress"]["step"]) if last.exists() else 0


def test_a_preempted_training_ends_with_the_weights_of_one_that_was_not(place: Place, labels: str) -> None:
    steps = 100
    command = line("there/often.safetensors", steps, labels)
    place.call(*command, *SLURM, "--detach")
    out = place.folder / "there" / "often.safetensors"
    until(lambda: steps_done(out) > 5, "some updates")
    job = subprocess.run(["squeue", "-h", "--me", "-o", "%A"], capture_output=True, text=True, check=True)
    subprocess.run(["scontrol", "requeue", job.stdout.split()[0]], check=True)
    reached = steps_done(out)
    assert reached < steps, "too fast to be preempted"
    again = place.call(*command, *SLURM, "--json")
    assert "in hand" in again.stderr
    (done,) = json.loads(again.stdout)["results"]
    assert (done["steps"], done["complete"]) == (steps, True)
    mine, theirs = weights(out), trained_here(place.folder, steps, labels)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], tensor) for name, tensor in theirs.items())
    assert "choose another --out" in place.call(*command, *SLURM, status=2).stderr


def test_processes_of_a_job_learn_what_one_learns(place: Place, labels: str) -> None:
    two = ("--slurm", "cpus=2", "--slurm", "processes=2")
    place.call(*line("there/two.safetensors", 4, labels), *SLURM, *two)
    trained_here(place.folder, 4, labels)
    alone = losses(place.folder / "here.safetensors")
    assert losses(place.folder / "there/two.safetensors") == pytest.approx(alone, rel=1e-5)
    assert len(set(alone)) == 4
    (log,) = (place.folder / "there" / "slurm").glob("*/jobs/*_log.out")
    assert all(f"process {number} of 2" in log.read_text() for number in (1, 2))


@pytest.mark.slow
def test_a_campaign_is_a_job_per_network_and_what_begins_with_another_follows_it(
    place: Place, labels: str
) -> None:
    config = ", ".join(f'"{key}" = "{value}"' for key, value in {**CONFIG, "steps": 2}.items())
    stage = f'[[stage]]\nmodel = "{MODEL}"\ndata = ["{labels}"]\nconfig = {{ {config} }}\n'
    names = ("a", "b", "c")
    text = "".join(f'{stage}name = "{name}"\n' for name in names) + 'start = "a"\n'
    (place.folder / "campaign.toml").write_text(text)
    said = place.call("train", "--campaign", "campaign.toml", "--out", "there", *SLURM)
    assert "2 jobs for train a, c, train b" in said.stderr
    assert all((place.folder / "there" / f"{name}.safetensors").exists() for name in names)
    state = json.loads((place.folder / "there" / "campaign.json").read_text())
    assert state["done"] == dict.fromkeys(names, 1)


def test_nodes_meet_at_the_first_one() -> None:
    command = launch_command(4, 2, {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "first"})
    assert command[3:] == [
        TOGETHER, "--nproc-per-node=4", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=7",
        f"--rdzv-endpoint=first:{FIRST_PORT + 7 % PORTS}", "-m", "--", MODULE,
    ]  # fmt: skip
    assert launch_command(1, 1, {})[-2:] == ["-m", MODULE]
    assert "--standalone" in launch_command(2, 1, {})


@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_leaves_the_options_of_train_alone(nodes: int) -> None:
    """It knows abbreviations: --start was ambiguous among its --start-method and --start_method."""
    from torch.distributed import run

    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "first"}
    command = launch_command(2, nodes, job)
    given = ["--start", "pens-a", "--log", "x", "--no"]
    read = run.get_args_parser().parse_args([*command[command.index(TOGETHER) + 1 :], *given])
    assert (read.training_script, read.training_script_args) == (MODULE, given)
    assert read.module


@pytest.mark.slow
def test_two_nodes_that_are_one_machine_learn_what_one_learns(tmp_path: Path, labels: str) -> None:
    call = {
        "model": MODEL, "data": [str(tmp_path / labels)], "config": {**CONFIG, "steps": "4"}, "validation": [],
        "out": str(tmp_path / "both.safetensors"), "places": {"instances": str(tmp_path), "mirror": None},
    }  # fmt: skip
    asked = tmp_path / "asked.json"
    asked.write_bytes(orjson.dumps(call))
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "localhost"}
    command = [*launch_command(1, 2, job), str(asked), str(tmp_path / "answer.json"), str(tmp_path / "stop")]
    nodes = [subprocess.Popen(command, cwd=tmp_path) for _ in "ab"]
    assert [node.wait(timeout=PATIENCE) for node in nodes] == [0, 0]
    assert "result" in orjson.loads((tmp_path / "answer.json").read_bytes())
    trained_here(tmp_path, 4, labels)
    alone = losses(tmp_path / "here.safetensors")
    assert losses(tmp_path / "both.safetensors") == pytest.approx(alone, rel=1e-5)
