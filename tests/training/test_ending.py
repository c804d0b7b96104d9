"""Ctrl-C and SIGTERM end a training with a checkpoint after the running update, and nothing of it is lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from nco_bench.cli.app import _interrupted, run
from nco_bench.interrupts import Ending
from nco_bench.training import loop
from nco_bench.training.checkpoint import LAST, load_state
from nco_bench.training.progress import Lines, measures_of

CONFIG = [
    "size=5", "batch=4", "steps=30", "epoch_steps=10", "evaluation=4", "validation_instances=4", "log_every=1",
    "checkpoint_every=1e6",
]  # fmt: skip
TRAIN = [
    "train",
    "am",
    "--device",
    "cpu",
    "--json",
    *(part for value in CONFIG for part in ("--config", value)),
]


def _ended_at(step: int, number: signal.Signals, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Train with a signal during an update; the exit status."""
    ticks = []

    def tick(self: Lines, fraction: float) -> None:
        ticks.append(fraction)
        if len(ticks) == step:
            signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(Lines, "tick", tick)
        patch.setattr(loop, "QUESTION_SECONDS", 0.0)  # small updates are asked about now and then
        return run([*TRAIN, *map(str, arguments)])


def test_a_training_that_is_ended_and_resumed_ends_as_one_that_never_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, out = tmp_path / "whole.safetensors", tmp_path / "w.safetensors"
    assert run([*TRAIN, "--out", str(whole)]) == 0
    capfd.readouterr()
    more: list[str] = []
    for number, status, reached in ((signal.SIGINT, 130, 7), (signal.SIGTERM, 143, 14)):
        assert _ended_at(7, number, monkeypatch, "--out", out, *more) == status
        told, err = capfd.readouterr()
        assert "ending with a checkpoint after this update" in err
        assert json.loads(told)["interrupted"]
        assert load_state(out.with_suffix(".training") / LAST)["progress"]["step"] == reached
        more = ["--resume"]
    assert run([*TRAIN, "--out", str(out), "--resume"]) == 0
    ended, uninterrupted = load_file(out), load_file(whole)
    assert all((ended[name] == value).all() for name, value in uninterrupted.items())
    assert load_state(out.with_suffix(".training") / LAST)["progress"]["step"] == 30


def test_who_asks_for_an_end_waits_for_no_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was due after the very update in which the signal came, and may take longer than the update."""
    out = tmp_path / "w.safetensors"
    always = ("--config", "validate_every=1e-9")
    assert _ended_at(3, signal.SIGTERM, monkeypatch, "--out", out, *always) == 143
    progress = load_state(out.with_suffix(".training") / LAST)["progress"]
    validated = [line["step"] for line in progress["history"] if measures_of([line])]
    assert (progress["step"], validated) == (3, [1, 2])


def test_before_the_work_asks_and_when_it_comes_again_a_signal_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Ending():
        signal.raise_signal(signal.SIGINT)
    with Ending() as ending:
        assert not ending()
        signal.raise_signal(signal.SIGINT)
        assert ending()
        assert ending.status == 130
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_torchrun_may_pass_on_what_has_come_already(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    with Ending() as ending:
        ending()
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        assert ending()


def test_the_command_that_goes_on_names_no_branch() -> None:
    """It is refused beside --resume."""
    told = _interrupted(["train", "sit", "--branch", "old.safetensors", "--out", "new"])
    assert "To go on: nco-bench train sit --out new --resume (" in told
    told = _interrupted(["train", "sit", "--out", "new"])
    assert told.endswith(
        "--out new --resume (where that finds none, training had not begun: leave --resume out)"
    )
    told = _interrupted(["train", "sit", "--branch=old.safetensors", "--resume"])
    assert told == "interrupted; the last checkpoint is kept. To go on: nco-bench train sit --resume"
