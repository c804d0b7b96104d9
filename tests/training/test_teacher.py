"""A teacher's probabilities take the place of labels: what is learned, from whom, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.build import build_path_policy
from nco_bench.training.data import LabelStream
from nco_bench.training.learners.pieces import SubPaths
from nco_bench.training.learners.supervised import Supervised
from nco_bench.training.learners.teacher import Teacher
from nco_bench.training.recipes import Recipe, recipe_for
from nco_bench.training.run import train
from nco_bench.training.trainer import Trainer
from nco_bench.weights.store import find_any, load_into

SMALL = {"model.depth": "1", "model.width": "16", "model.heads": "2", "model.head_dim": "8"}
CONFIG = {
    **SMALL,
    "batch": "8",
    "longest": "11",
    "longest_start": "11",
    "validation_instances": "2",
    "log_every": "1",
}
CPU = torch.device("cpu")


@pytest.fixture
def taught(tmp_path: Path, shards: list[Path]) -> Path:
    """Weights of a small decoder after a few updates."""
    train(
        "decoder-24x64",
        shards,
        {**CONFIG, "steps": "40", "lr": "1e-2"},
        out=tmp_path / "t",
        progress="silent",
    )
    return tmp_path / "t.safetensors"


def student(taught: Path, shards: list[Path], weight: float = 1.0) -> Supervised:
    torch.manual_seed(5)
    policy = build_path_policy("decoder-24x64", **find_any(str(taught), "test").manifest.config)
    recipe = Recipe(
        batch=8, longest=11, longest_start=11, shortest=11, teacher=str(taught), teacher_weight=weight
    )
    return Supervised(policy, LabelStream(shards, 0), recipe, 0, CPU)


def slope(learner: Supervised) -> float:
    learner.policy.zero_grad()
    learner.loss(0, 0.0).total.backward()
    return float(sum(p.grad.norm() for p in learner.policy.parameters() if p.grad is not None))


def test_who_has_the_teachers_weights_has_nothing_to_learn_from_it(taught: Path, shards: list[Path]) -> None:
    learner = student(taught, shards)
    assert slope(learner) > 1e-2
    load_into(learner.policy, find_any(str(taught), "test"))
    assert slope(learner) < 1e-5
    labels = student(taught, shards, weight=0.0)
    load_into(labels.policy, find_any(str(taught), "test"))
    assert slope(labels) > 1e-2


def test_a_student_comes_nearer_to_its_teacher(taught: Path, shards: list[Path]) -> None:
    learner = student(taught, shards)
    assert learner.teacher is not None
    pieces = SubPaths(torch.rand(64, 7, 2), False, 10)
    aimed = learner.teacher.probabilities(pieces)
    assert aimed.shape == (64, 5)
    assert torch.allclose(aimed.sum(1), torch.ones(64))

    def divergence() -> float:
        policy = Teacher(str(taught), CPU)
        policy.policy = learner.policy
        return float(nn.functional.kl_div(policy.probabilities(pieces).log(), aimed, reduction="batchmean"))

    before = divergence()
    optimizer = torch.optim.Adam(learner.policy.parameters(), 1e-2)
    for step in range(40):
        optimizer.zero_grad()
        learner.loss(step, 0.0).total.backward()
        optimizer.step()
    assert divergence() < before / 2


@pytest.mark.parametrize("how", ["supervised", "on-policy"])
def test_the_manifest_names_the_teacher(how: str, taught: Path, shards: list[Path], tmp_path: Path) -> None:
    if how == "on-policy":
        pytest.importorskip("fast_tsp", reason="fast-tsp is not installed")
    config = {**CONFIG, "learner": how, "steps": "2", "teacher": str(taught), "teacher_weight": "0.5"}
    train("decoder-24x64", shards, config, out=tmp_path / "s", progress="silent")
    manifest, teacher = (find_any(str(tmp_path / f"{name}.safetensors"), "test").manifest for name in "st")
    assert f"50% of the loss: Next-node probabilities of t (sha256 {teacher.sha256[:12]})" in manifest.notes
    assert manifest.recipe["teacher"] == str(taught)


def test_weights_that_are_not_there_or_damaged_are_refused(
    taught: Path, shards: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(BadWeightsError, match=r"^--config teacher=no-such-weights: "):
        Teacher("no-such-weights", CPU)
    checkpoint = tmp_path / "theirs.pt"
    checkpoint.touch()
    with pytest.raises(BadWeightsError, match=r"^--config teacher=.*'nco-bench weights import MODEL "):
        Teacher(str(checkpoint), CPU)
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(taught.read_bytes()[:-4] + b"abcd")
    shutil.copy(taught.with_suffix(".json"), damaged.with_suffix(".json"))
    with pytest.raises(BadWeightsError, match="damaged"):
        student(damaged, shards)


def test_a_network_that_makes_no_paths_teaches_nobody(taught: Path) -> None:
    manifest = taught.with_suffix(".json")
    facts = {key: v for key, v in json.loads(manifest.read_text()).items() if key not in ("seal", "sealed")}
    manifest.write_text(json.dumps({**facts, "model": "am"}))
    with pytest.raises(BadInputError, match=r"teacher=.*: am is no path model; expected one"):
        Teacher(str(taught), CPU)


def test_a_share_of_no_teacher_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"teacher_weight=0\.5: .*--config teacher=WEIGHTS"):
        recipe_for("decoder-24x64", {"teacher_weight": "0.5"})


def test_routes_are_taught_by_nobody(
    taught: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadInputError, match=r"teacher=sit-cvrp: solves cvrp; expected the TSP"):
        Teacher("sit-cvrp", CPU)
    stream = LabelStream(shards, 0)
    monkeypatch.setattr(LabelStream, "problem", "cvrp")
    policy = build_path_policy("decoder-24x64", **find_any(str(taught), "test").manifest.config)
    with pytest.raises(BadInputError, match="teaches the TSP, not cvrp"):
        Supervised(policy, stream, Recipe(teacher=str(taught)), 0, CPU)


def test_batches_that_are_accumulated_make_one_update(shards: list[Path], tmp_path: Path) -> None:
    config = {**CONFIG, "steps": "3", "batch": "4", "accumulate": "2"}
    train("decoder-24x64", shards, config, out=tmp_path / "w", progress="silent")
    manifest = find_any(str(tmp_path / "w.safetensors"), "test").manifest
    assert (manifest.steps, manifest.samples) == (3, 24)


def test_the_gradient_of_an_update_is_the_mean_over_its_batches(shards: list[Path], tmp_path: Path) -> None:
    def fresh(accumulate: int) -> Trainer:
        torch.manual_seed(1)
        policy = build_path_policy("decoder-24x64", depth=1, width=16, heads=2, head_dim=8)
        recipe = Recipe(batch=4, accumulate=accumulate, longest=11, longest_start=11)
        return Trainer(
            policy, Supervised(policy, LabelStream(shards, 0), recipe, 0, CPU), recipe, tmp_path, {}
        )

    each = []
    for step in range(3):
        alone = fresh(1)
        losses = [
            alone.learner.loss(drawn, 0.0) for drawn in range(step + 1)
        ]  # a stream goes on with every batch
        losses[-1].total.backward()
        each.append([p.grad.clone() for p in alone.policy.parameters() if p.grad is not None])
    together = fresh(3)
    value, samples = together._gradients(0.0, CPU)
    assert samples == 12
    assert np.isfinite(float(value))
    found = [p.grad for p in together.policy.parameters() if p.grad is not None]
    for place, gradient in enumerate(found):
        torch.testing.assert_close(gradient, sum(one[place] for one in each) / 3, rtol=1e-4, atol=1e-7)
