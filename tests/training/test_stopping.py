"""Training that breaks is not the user's mistake: status 1, one line, and the last checkpoint stays."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nco_bench.cards import trained_by
from nco_bench.cli.app import run
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.training.checkpoint import LAST, load_checkpoint
from nco_bench.training.courses import COURSES, course_for
from nco_bench.training.learner import Loss
from nco_bench.training.progress import Lines, write_log
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.run import train
from nco_bench.training.trainer import Trainer, TrainingStopped


class Breaking:
    """Learns that a number is zero, until an update raises."""

    def __init__(self, policy: nn.Linear, error: Exception, at: int) -> None:
        self.policy, self.error, self.at, self.extra = policy, error, at, nn.ModuleDict()

    def loss(self, step: int, fraction: float) -> Loss:
        """Return the square, or raise."""
        if step == self.at:
            raise self.error
        square = self.policy.weight.square().sum()
        return Loss(square, square, 1)

    def position(self) -> dict[str, Any]:
        """Nothing is read."""
        return {}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Nothing is read."""


def _broken(folder: Path, error: Exception) -> Trainer:
    policy = nn.Linear(1, 1)
    trainer = Trainer(policy, Breaking(policy, error, 2), LoopRecipe(), folder, {})
    trainer.update(0.0)
    trainer.save()
    trainer.update(0.0)
    return trainer


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            RuntimeError("CUDA error: device lost\nmore"),
            r"CUDA error: device lost; the last good checkpoint is .*--resume",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), "smaller batch"),
    ],
)
def test_a_lost_device_names_the_checkpoint(tmp_path: Path, error: Exception, remedy: str) -> None:
    with pytest.raises(TrainingStopped, match=remedy):
        _broken(tmp_path, error).update(0.0)
    assert load_checkpoint(tmp_path / LAST).state["progress"]["step"] == 1


def test_a_bug_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        _broken(tmp_path, RuntimeError("shapes do not fit")).update(0.0)


def test_a_broken_run_ends_with_status_1(
    tmp_path: Path, shards: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    values = {"steps": 9, "batch": 2, "longest": 5, "longest_start": 5, "lr": "1e30", "warmup": 0}
    config = [part for key, value in values.items() for part in ("--config", f"{key}={value}")]
    status = run(
        [
            "train",
            "pens-a",
            "--data",
            str(shards[0]),
            "--out",
            str(tmp_path / "w"),
            "--device",
            "cpu",
            *config,
        ]
    )
    assert status == 1
    assert "loss or gradient is not finite; the last good checkpoint is" in capsys.readouterr().err


def test_courses_fit_models_and_data() -> None:
    assert course_for("bq", {}, has_data=True)[0] == "supervised"
    assert course_for("sit", {}, has_data=True)[0] == "supervised"
    assert course_for("sit", {}, has_data=False)[0] == "self-improved"
    assert course_for("bq", {"learner": "self-improved"}, has_data=False)[0] == "self-improved"
    for learner, entry in COURSES.items():
        for model in trained_by(learner):
            assert course_for(model, {}, has_data=entry.needs_data)


def test_a_model_that_needs_labels_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="bq learns from labelled instances: name them with --data"):
        train("bq", (), {"steps": "1"}, out=tmp_path / "w")


@pytest.mark.parametrize("model", ["dgl", "lkh3"])
def test_a_solver_that_nothing_trains_is_not_called_unknown(model: str) -> None:
    with pytest.raises(BadInputError, match=f"{model}: nothing here trains it"):
        train(model)


@pytest.mark.parametrize(
    ("model", "key"),
    [("pens-r", "initialisation"), ("pens-a", "noise"), ("sigd", "style"), ("bq", "scale")],
)
def test_words_that_a_network_does_not_know_are_refused(
    model: str, key: str, tmp_path: Path, shards: list[Path]
) -> None:
    """They were taken for its usual ones, and stored with the weights."""
    config = {"steps": "1", f"model.{key}": "wrnog"}
    with pytest.raises(UnknownNameError, match=f"{key} of .* 'wrnog'"):
        train(model, shards[:1], config, out=tmp_path / "w", progress="silent")
    assert not list(tmp_path.glob("w*"))


@pytest.mark.parametrize("name", ["validation_f1", "greedy_cost"])
def test_measures_that_are_no_gap_have_their_own_column_and_no_other(tmp_path: Path, name: str) -> None:
    write_log(tmp_path / "log.csv", [{"step": 1, "loss": 0.5}, {"step": 1, name: 0.25}])
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0] == f"step,samples,seconds,loss,grad_norm,samples_per_s,lr,{name}"
    assert lines[2] == "1,,,,,,,0.25"


def test_a_run_says_what_it_measured_by_its_name_and_unit(tmp_path: Path) -> None:
    """AM learns from costs: nothing of it is a gap, nor a percentage."""
    stream = io.StringIO()
    config = {
        "size": "5", "batch": "4", "steps": "3", "epoch_steps": "2", "evaluation": "4", "validation_instances": "6",
    }  # fmt: skip
    result = train("am", (), config, out=tmp_path / "w", progress=Lines(stream))
    assert result.validation is not None
    cost = result.validation.value
    assert 1.0 < cost < 3.5  # five nodes in the unit square
    assert f"greedy cost {cost:.5g}\n" in stream.getvalue()
    assert result.describe().endswith(f"greedy cost {cost:.5g}.")
    assert "gap" not in result.describe()
    assert result.as_dict()["validation_gap"] is None
    assert result.as_dict()["validation"]["name"] == "greedy_cost"
    assert result.log.read_text().splitlines()[0].endswith(",lr,greedy_cost")
