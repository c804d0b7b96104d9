"""Every way of learning, calibration, checkpoints and resuming on a device that is not the CPU."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import second
import torch
from safetensors.torch import load_file

from nco_bench.cards import network_card, networks
from nco_bench.nn.build import build_path_policy, count_parameters, model_config
from nco_bench.nn.eie import EieConfig
from nco_bench.runs.calibrating import calibrate
from nco_bench.training import learners
from nco_bench.training.courses import COURSES, course_for
from nco_bench.training.learner import Loss
from nco_bench.training.learners.eie import EieRecipe, train_curve
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.run import train
from nco_bench.training.trainer import Trainer, TrainingStopped
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.shelf import export

SMALL = {"model.width": "16", "model.heads": "2", "model.ffn": "16"}
SIT = {**SMALL, "model.head_dim": "8", "model.layers": "2"}
LABELLED = {
    "batch": "3", "longest": "6", "longest_start": "4", "validation_instances": "2", "compile": "false", "model.depth": "1",
}  # fmt: skip
SELF = {
    "learner": "self-improved", "size": "5", "instances": "3", "batch": "3", "rounds_updates": "1", "iterations": "1",
    "longest": "6", "longest_start": "6", "validation_instances": "2", "judged_updates": "1", "schedule": "constant",
}  # fmt: skip
GRADIENT = {
    "size": "5", "batch": "4", "evaluation": "4", "epoch_steps": "1", "validation_instances": "2", "model.layers": "1",
    **SMALL,
}  # fmt: skip
PACKING = {
    "boxes": "3",
    "batch": "2",
    "samples": "2",
    "bin": "60x50",
    "validation_instances": "2",
    "warmup": "0",
}
LRA = {"width": "16", "layers": "1", "heads": "2", "batch": "4", "validation_instances": "4"}
WAYS: dict[str, tuple[str, list[str] | None, dict[str, str], str | None]] = {
    "supervised": ("decoder-6x128", None, LABELLED, None),
    "supervised, muon": ("decoder-6x128", None, {**LABELLED, "optimizer": "muon"}, None),
    "supervised, bf16": ("decoder-6x128", None, {**LABELLED, "precision": "bf16"}, None),
    "self-improved by re-construction, tsp": ("sit", [], {**SELF, **SIT}, "tsp"),
    "self-improved by re-construction, cvrp": ("sit", [], {**SELF, **SIT}, "cvrp"),
    "self-improved by samples": ("sigd", [], {**SELF, **SMALL, "model.blocks": "1"}, "tsp"),
    "policy gradient, tsp": ("am", [], GRADIENT, "tsp"),
    "policy gradient, cvrp": ("am", [], GRADIENT, "cvrp"),
    "policy gradient, shared baseline": ("pomo", [], {**GRADIENT, "baseline": "shared", "tours": "3"}, "tsp"),
    "packing": ("attend2pack", [], PACKING, None),
    "lra": ("lra-tropical", ["lra-listops16"], LRA, None),
    "tasks": ("tropical", ["quickselect"], {"batch": "4"}, None),
}
EVERY = {"log_every": "1", "checkpoint_every": "0"}
USUAL: dict[str, tuple[list[str] | None, dict[str, str]]] = {
    "supervised": (None, {key: value for key, value in LABELLED.items() if not key.startswith("model.")}),
    "on-policy": (
        None,
        {
            **{key: value for key, value in LABELLED.items() if not key.startswith("model.")},
            "rollouts": "2",
            "cuts": "2",
            "share": "1",
        },
    ),
    "diffusion": (
        None,
        {"batch": "3", "model.width": "32", "validation_instances": "2", "validation_steps": "2"},
    ),
    "turned-copies": (
        [],
        {"size": "5", "batch": "4", "copies": "2", "evaluation": "1", "epoch_steps": "1", **SMALL},
    ),
    "self-improved": ([], SELF),
    "policy-gradient": ([], {key: value for key, value in GRADIENT.items() if not key.startswith("model.")}),
}
"""Data and settings for networks that are not named above; a way to learn that is not here takes its card's recipe."""
DEPTHS = ("layers", "depth", "blocks", "decoder_layers")
ALONE = frozenset({"eie"})
"""Modules of `nco_bench.training.learners` that are ways to learn and no course."""


def completed() -> None:
    """Add every network with every way to learn that its card names, where it is not among `WAYS` yet."""
    known = {
        (network_card(model).network, course_of(model, config, data))
        for model, data, config, _ in WAYS.values()
    }
    for name, card in networks().items():
        for learner in (*card.learners, *card.learners_if_asked):
            if (card.network, learner) in known:
                continue
            known.add((card.network, learner))
            data, config = USUAL.get(learner, ([], {}))
            fields = {one.name for one in dataclasses.fields(model_config(name))}
            shallow = {f"model.{key}": "2" for key in DEPTHS if key in fields}
            problem = card.problems[0] if data == [] else None
            WAYS[f"{learner}, {name}"] = name, data, {**config, **shallow, "learner": learner}, problem


def course_of(model: str, config: Mapping[str, str], data: list[str] | None) -> str:
    return course_for(model, config, has_data=data is None)[0]


completed()


def test_every_way_to_learn_is_taken() -> None:
    """By the cards, by the table of courses, and by the modules that no other uses."""
    taken = {course_of(model, config, data) for model, data, config, _ in WAYS.values()}
    assert taken == set(COURSES)
    texts = {path.stem: path.read_text() for path in Path(next(iter(learners.__path__))).glob("[a-z]*.py")}
    courses = {entry.target.partition(":")[0].rpartition(".")[2] for entry in COURSES.values()}
    used = {name for name in texts if any(f"learners.{name} import" in text for text in texts.values())}
    assert texts.keys() - used - courses == ALONE


def test_an_update_of_eies_curve_is_that_of_the_cpu() -> None:
    config, recipe = EieConfig(training_size=20, largest_size=60), EieRecipe(steps=1, batch=4, goal_rows=50)
    fresh, here = (train_curve(config, replace(recipe, lr=lr)) for lr in (1e-12, recipe.lr))
    with second.watching() as watch:
        there = train_curve(config, recipe, device=second.NAME)
    assert watch.operations > 100
    assert not watch.hidden, "indices on the CPU into tensors of the device"
    for ours, theirs in zip(there.parameters(), here.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert any(not torch.equal(a, b) for a, b in zip(fresh.parameters(), here.parameters(), strict=True))


@pytest.fixture
def labels(tmp_path: Path) -> list[Path]:
    """Labelled instances of 8 nodes on a circle, whose optimal tour is their order by angle."""
    angles = np.random.default_rng(0).random((12, 8)) * 2 * np.pi
    coords = 0.5 + 0.5 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    np.savez(tmp_path / "labels.npz", coords=coords, tours=np.argsort(angles, axis=1))
    return [tmp_path / "labels.npz"]


@pytest.mark.parametrize("way", WAYS)
def test_an_update_is_that_of_the_cpu(way: str, labels: list[Path], tmp_path: Path) -> None:
    model, data, config, problem = WAYS[way]

    def update(device: str) -> tuple[list[float], dict[str, torch.Tensor]]:
        done = train(
            model, labels if data is None else data, {**config, **EVERY, "steps": "1"},
            out=tmp_path / device, problem=problem, device=device, progress="silent",
        )  # fmt: skip
        with done.log.open() as log:
            line = next(csv.DictReader(log))
        return [float(line["loss"]), float(line["grad_norm"])], load_file(done.weights)

    here, weights = update("cpu")
    with second.watching() as watch:
        there, others = update(second.NAME)
    assert not watch.hidden, "indices on the CPU into tensors of the device"
    assert there == pytest.approx(here, rel=0.1 if "bf16" in way else 1e-3, abs=1e-6)
    assert weights.keys() == others.keys()
    assert all(value.isfinite().all() for value in others.values())


def test_losses_that_are_read_an_update_later_are_all_there(labels: list[Path], tmp_path: Path) -> None:
    def logged(device: str) -> list[dict[str, str]]:
        done = train(
            "decoder-6x128", labels, {**LABELLED, "log_every": "3", "steps": "6"},
            out=tmp_path / device, device=device, progress="silent",
        )  # fmt: skip
        with done.log.open() as log:
            return [line for line in csv.DictReader(log) if line["loss"]]

    for here, there in zip(logged("cpu"), logged(second.NAME), strict=True):
        for column in ("step", "loss", "grad_norm"):
            assert float(there[column]) == pytest.approx(float(here[column]), rel=1e-3)


class Breaking:
    """A learner whose loss is no number from an update on."""

    def __init__(self, policy: torch.nn.Linear, at: int) -> None:
        self.policy, self.at, self.extra = policy, at, torch.nn.ModuleDict()

    def loss(self, step: int, fraction: float) -> Loss:
        square = self.policy.weight.square().sum() * (float("nan") if step >= self.at else 1.0)
        return Loss(square, square, 1)

    def position(self) -> dict[str, int]:
        return {}


def test_a_loss_that_is_no_number_is_met_an_update_later_and_never_kept(tmp_path: Path) -> None:
    def begun() -> Trainer:
        policy = torch.nn.Linear(1, 1).to(second.NAME)
        trainer = Trainer(policy, Breaking(policy, 1), LoopRecipe(), tmp_path, {})  # type: ignore[arg-type]
        for _ in range(2):
            trainer.update(0.0, wait=False)
        return trainer

    with pytest.raises(TrainingStopped, match="not finite"):
        begun().update(0.0, wait=False)
    with pytest.raises(TrainingStopped, match="not finite"):
        begun().save()
    assert not list(tmp_path.iterdir())


def test_a_run_resumes_on_the_device_and_goes_on_elsewhere(labels: list[Path], tmp_path: Path) -> None:
    def steps(
        count: int, out: str, device: str = second.NAME, *, resume: bool = False
    ) -> dict[str, torch.Tensor]:
        done = train(
            "decoder-6x128", labels, {**LABELLED, **EVERY, "steps": str(count)},
            out=tmp_path / out, device=device, resume=resume, adopt=resume, progress="silent",
        )  # fmt: skip
        assert done.steps == count
        return load_file(done.weights)

    whole = steps(3, "whole")
    steps(1, "cut")
    cut = steps(3, "cut", resume=True)
    assert all(torch.equal(value, cut[name]) for name, value in whole.items())
    steps(4, "cut", "cpu", resume=True)
    steps(5, "cut", resume=True)


def test_a_resumed_run_draws_on_where_the_device_stood(
    labels: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session seeds all generators: the device's would draw the numbers of the session before once more."""
    device, restored = torch.get_device_module(second.NAME), []
    monkeypatch.setattr(
        device, "get_rng_state", lambda _: torch.tensor([1, 2, 3], dtype=torch.uint8), raising=False
    )
    monkeypatch.setattr(
        device, "set_rng_state", lambda state, _: restored.append(state.tolist()), raising=False
    )
    for steps in ("1", "2"):
        train(
            "decoder-6x128", labels, {**LABELLED, **EVERY, "steps": steps},
            out=tmp_path / "cut", device=second.NAME, resume=steps == "2", adopt=True, progress="silent",
        )  # fmt: skip
    assert restored == [[1, 2, 3]]


def test_a_model_is_calibrated(tmp_path: Path) -> None:
    config = dataclasses.asdict(dataclasses.replace(model_config("pens-a"), layers=1))
    torch.manual_seed(0)
    policy = build_path_policy("pens-a", **config)
    manifest = Manifest(
        "pens-a", "pens-a", config, "tsp", count_parameters(policy), "", 0, 0, TrainingData("uniform", 100, 0), {}, 0, 0.0,
        {}, "test",
    )  # fmt: skip
    weights = str(export(policy.state_dict(), manifest, tmp_path / "pens-a.safetensors").path)
    grid = (0.8, 1.0, 1.2)
    (here,) = calibrate("pens-a", [5], weights=weights, instances=2, grid=grid)
    (there,) = calibrate("pens-a", [5], weights=weights, instances=2, grid=grid, device=second.NAME)
    assert (there.factor, there.mean_lengths) == (here.factor, here.mean_lengths)
