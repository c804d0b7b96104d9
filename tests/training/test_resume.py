"""A run that is killed, starved or misled: it continues on the same trajectory, or says in one line why not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from nco_bench.errors import BadInputError, ResultsError, UnknownNameError
from nco_bench.training.checkpoint import LAST, PREVIOUS, load_checkpoint
from nco_bench.training.run import TrainResult, train

MODEL = "decoder-6x128"
STEPS = 14
CONFIG = {
    "steps": str(STEPS),
    "batch": "6",
    "longest": "11",
    "longest_start": "6",
    "log_every": "1",
    "validation_instances": "3",
    "checkpoint_every": "0",
    "compile": "false",
}

RUN = """
import json, os, signal, sys, torch
from pathlib import Path
from nco_bench.training.run import train
torch.set_num_threads(1)
model, data, config, out, kill_at = json.loads(sys.argv[1])

class Report:
    def line(self, values):
        if values["step"] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    def tick(self, fraction):
        pass

train(model, data, config, out=Path(out), progress=Report())
"""


def _run(shards: list[Path], out: Path, *, kill_at: int, **config: str) -> int:
    arguments = [MODEL, [str(s) for s in shards], CONFIG | config, str(out), kill_at]
    command = [sys.executable, "-c", RUN, json.dumps(arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, check=False, timeout=300).returncode


def _train(shards: list[Path], out: Path, *, resume: bool = False, **config: str) -> TrainResult:
    return train(MODEL, shards, CONFIG | config, out=out, resume=resume, progress="silent")


def _losses(out: Path) -> list[tuple[int, float, float]]:
    history: list[dict[str, Any]] = load_checkpoint(out / LAST).state["progress"]["history"]
    return [(line["step"], line["loss"], line["grad_norm"]) for line in history if "loss" in line]


def test_a_killed_run_continues_on_the_same_trajectory(tmp_path: Path, shards: list[Path]) -> None:
    moving = {
        "batch_doubles": "4",
        "auxiliary": "0.2",
        "auxiliary_half": "5",
    }  # what depends on the update's number
    _train(shards, tmp_path / "whole", **moving)
    killed = tmp_path / "killed"
    assert _run(shards, killed, kill_at=9, **moving) == -signal.SIGKILL
    assert not killed.with_suffix(".safetensors").exists()
    assert load_checkpoint(tmp_path / "killed.training" / LAST).state["progress"]["step"] == 8
    _train(shards, killed, resume=True, **moving)

    expected, found = (_losses(tmp_path / f"{name}.training") for name in ("whole", "killed"))
    assert [step for step, _, _ in found] == list(range(1, STEPS + 1))
    for (_, *a), (_, *b) in zip(expected, found, strict=True):
        assert b == pytest.approx(a, rel=1e-6, abs=1e-6)
    whole, again = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "killed"))
    for name, tensor in whole.items():
        assert tensor.numpy() == pytest.approx(again[name].numpy(), rel=1e-6, abs=1e-7)


def test_a_finished_run_leaves_weights_manifest_log_and_two_checkpoints(
    tmp_path: Path, shards: list[Path]
) -> None:
    result = _train(shards, tmp_path / "w", steps="4")
    assert (result.complete, result.steps, result.samples) == (True, 4, 24)
    manifest = json.loads(result.manifest.read_text())
    assert (manifest["model"], manifest["steps"], manifest["data"]["size"]) == (MODEL, 4, 10)
    assert manifest["share_of_paper"] == round(24 / 61_440_000, 5)
    lines = result.log.read_text().splitlines()
    assert lines[0].startswith("step,samples,seconds,loss,grad_norm,samples_per_s")
    assert [line.split(",")[:2] for line in lines[1:5]] == [["1", "6"], ["2", "12"], ["3", "18"], ["4", "24"]]
    assert float(lines[-1].split(",")[-1]) == pytest.approx(result.validation_gap, rel=1e-4)
    assert {p.name for p in (tmp_path / "w.training").iterdir()} == {LAST, PREVIOUS}


def test_a_time_budget_pauses_a_run_that_resumes_to_its_steps(tmp_path: Path, shards: list[Path]) -> None:
    config = CONFIG | {"steps": "6"}
    first = train(MODEL, shards, config, budget_s=1e-6, out=tmp_path / "w", progress="silent")
    assert (first.complete, first.steps) == (False, 0)
    assert first.weights.exists()
    second = _train(shards, tmp_path / "w", steps="6", resume=True)
    assert (second.complete, second.steps) == (True, 6)


def test_a_resumed_run_with_another_configuration_is_refused(tmp_path: Path, shards: list[Path]) -> None:
    _train(shards, tmp_path / "w", steps="2")
    with pytest.raises(ResultsError, match=r"batch \(was 6, is 7\), lr \(was 0\.001, is 0\.5\)"):
        _train(shards, tmp_path / "w", resume=True, steps="2", batch="7", lr="0.5")
    with pytest.raises(ResultsError, match=r"seed \(was 1234, is 5\)"):
        train(MODEL, shards, CONFIG | {"steps": "2"}, seed=5, resume=True, out=tmp_path / "w")
    with pytest.raises(BadInputError, match="not what this run was started with"):
        _train(shards[:1], tmp_path / "w", resume=True, steps="2")


def test_options_of_the_model_reach_it_its_manifest_and_its_identity(
    tmp_path: Path, shards: list[Path]
) -> None:
    smaller = {"model.depth": "1", "model.rezero": "false", "steps": "2"}
    result = _train(shards, tmp_path / "w", **smaller)
    manifest = json.loads(result.manifest.read_text(encoding="utf-8"))
    assert (manifest["config"]["depth"], manifest["config"]["rezero"]) == (1, False)
    assert not {"model.depth", "depth"} & set(manifest["recipe"])
    assert not [name for name in load_file(result.weights) if "layers.1" in name or "alpha" in name]
    with pytest.raises(ResultsError, match=r"model\.depth \(was 1, is 2\)"):
        _train(shards, tmp_path / "w", resume=True, **smaller | {"model.depth": "2"})
    with pytest.raises(UnknownNameError, match="option of decoder-6x128 'dept'"):
        _train(shards, tmp_path / "x", **{"model.dept": "1"})
    with pytest.raises(BadInputError, match=r"--config model\.depth is 'many'; expected a whole number"):
        _train(shards, tmp_path / "x", **{"model.depth": "many"})
    with pytest.raises(BadInputError, match=r"--config model\.width: its training \(tasks\)"):
        train(
            "tropical",
            ["knapsack"],
            config={"model.width": "8", "steps": "1"},
            out=tmp_path / "x",
            progress="silent",
        )


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        (
            MODEL,
            {"model.depth": "1"},
            rf"model\.depth=1: makes another network than {MODEL}, .*{MODEL}-depth-1\.safe",
        ),
        (
            None,
            {"model.gate": "false"},
            rf"model\.gate=false: .* called {MODEL}; .*--out {MODEL}-gate-false\.safe",
        ),
    ],
)
def test_another_network_takes_no_name_of_the_models_own(
    name: str | None, change: dict[str, str], told: str, tmp_path: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(BadInputError, match=told):
        train(MODEL, shards, {**CONFIG, "steps": "1", **change}, out=name and Path(name), progress="silent")
    assert sorted(tmp_path.iterdir()) == before


def test_an_option_that_says_what_is_so_anyway_leaves_the_name(
    tmp_path: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = train(MODEL, shards, {**CONFIG, "steps": "1", "model.gate": "true"}, progress="silent")
    assert done.weights == Path(f"{MODEL}.safetensors")


def test_a_run_is_not_overwritten_by_accident(tmp_path: Path, shards: list[Path]) -> None:
    _train(shards, tmp_path / "w", steps="1")
    with pytest.raises(BadInputError, match="continue it with --resume, or choose another --out"):
        _train(shards, tmp_path / "w", steps="1")
    (tmp_path / "w.training").rename(tmp_path / "moved")
    with pytest.raises(BadInputError, match=r"w\.safetensors is there already"):
        _train(shards, tmp_path / "w", steps="1")


@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_files_of_that_name_are_not_overwritten_either(
    suffix: str, tmp_path: Path, shards: list[Path]
) -> None:
    """`lab.json` is what describes the dataset `lab.npz`."""
    told = tmp_path / f"lab{suffix}"
    told.write_text("other work", encoding="utf-8")
    with pytest.raises(BadInputError, match=rf"lab\{suffix} is there already"):
        _train(shards, tmp_path / "lab", steps="1")
    assert told.read_text(encoding="utf-8") == "other work"
    assert list(tmp_path.glob("lab.*")) == [told]


@pytest.mark.parametrize("out", ["", ".", "/", ".."])
def test_an_out_that_is_a_folder_is_refused(out: str, shards: list[Path]) -> None:
    with pytest.raises(BadInputError, match="is a folder; name the weights file, such as"):
        _train(shards, Path(out), steps="1")


def test_an_out_with_another_ending_is_refused(tmp_path: Path, shards: list[Path]) -> None:
    """`new.pt` became `new.pt.safetensors`, and `--branch new.pt` looked for another folder."""
    with pytest.raises(
        BadInputError, match=r"new\.pt: weights are written as \.safetensors; give the file this ending"
    ):
        _train(shards, tmp_path / "new.pt", steps="1")
    assert not list(tmp_path.glob("new*"))


def test_what_was_held_out_stays_so(tmp_path: Path, shards: list[Path]) -> None:
    """A run with `--validation` learns from all labels: those it would hold out without are no longer unseen."""
    config = CONFIG | {"steps": "2"}
    train(MODEL, shards, config, out=tmp_path / "w", validation=shards[0], until_step=1, progress="silent")
    with pytest.raises(BadInputError, match="was started with --validation; resume it so"):
        _train(shards, tmp_path / "w", resume=True, steps="2")
    _train(shards, tmp_path / "v", steps="2")
    with pytest.raises(BadInputError, match="was started without --validation"):
        train(MODEL, shards, config, out=tmp_path / "v", resume=True, validation=shards[0], progress="silent")


def test_a_validation_that_nothing_reads_is_refused(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(
        BadInputError, match=r"--validation .*: am \(policy-gradient\) is validated on instances"
    ):
        train("am", config={"steps": "1"}, out=tmp_path / "w", validation=shards[0], progress="silent")


def test_resuming_nothing_and_resuming_damage_are_refused(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(ResultsError, match="no checkpoint to resume from"):
        _train(shards, tmp_path / "w", resume=True)
    _train(shards, tmp_path / "v", steps="1")
    path = tmp_path / "v.training" / LAST
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ResultsError, match=r"checkpoint\.safetensors: damaged checkpoint"):
        _train(shards, tmp_path / "v", steps="1", resume=True)


def test_a_loss_that_is_no_number_stops_with_the_last_good_checkpoint(
    tmp_path: Path, shards: list[Path]
) -> None:
    with pytest.raises(
        ResultsError, match=r"stopped at step (\d+): loss or gradient is not finite.*checkpoint"
    ):
        _train(shards, tmp_path / "w", lr="1e30", warmup="0", schedule="constant")
    state = load_checkpoint(tmp_path / "w.training" / LAST)
    assert state.state["progress"]["step"] >= 1
    assert not (tmp_path / "w.safetensors").exists()


def test_a_run_that_needs_a_time_is_told_so(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(BadInputError, match="add --budget 30m"):
        _train(shards, tmp_path / "w", steps="0")


def test_learning_learns(tmp_path: Path, shards: list[Path]) -> None:
    """On polygons the next node is the nearest one on the boundary: a few updates must beat fresh weights by far."""
    config = {"batch": "16", "longest": "11", "longest_start": "11", "validation_instances": "20", "ema": "0"}
    fresh = train(
        "decoder-6x128", shards, config | {"steps": "1", "lr": "1e-9"}, out=tmp_path / "a", progress="silent"
    )
    trained = train("decoder-6x128", shards, config | {"steps": "150"}, out=tmp_path / "b", progress="silent")
    assert fresh.validation_gap is not None
    assert trained.validation_gap is not None
    assert trained.validation_gap < 0.3 * fresh.validation_gap
