"""What a manifest says of a short training of each way to learn, field by field: as version 0.2.0 said it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nco_bench.nn.eie import EieConfig
from nco_bench.seals import unseal_document
from nco_bench.training.checkpoint import LAST
from nco_bench.training.learners.eie import EieRecipe, train_and_export
from nco_bench.training.run import train
from nco_bench.training.task_campaign import Member, train_member
from nco_bench.weights.manifest import manifest_path

SAID = Path(__file__).parent / "manifests.json"
"""Written by version 0.2.0 from the same trainings; recipes and configurations may have gained fields since."""

OF_THIS_MACHINE = {"sha256", "machine", "code_version", "hours", "core_hours", "fingerprint"}
NUMBER = r"\d+(\.\d+)?"
LIGHT = {"model.width": "16", "model.heads": "2", "model.ffn": "32", "model.layers": "1"}

TRAININGS: dict[str, tuple[str, tuple[str, ...], str | None, dict[str, str]]] = {
    "supervised": (
        "decoder-24x64", ("labels",), None,
        {"model.depth": "2", "batch": "4", "longest": "11", "longest_start": "6", "steps": "3", "validation_instances": "3"},
    ),
    "supervised, its paper's recipe": (
        "pens-a", ("labels",), None,
        {"recipe": "paper", "model.width": "16", "model.heads": "2", "batch": "2", "longest": "11", "longest_start": "11",
         "steps": "2", "validation_instances": "0"},
    ),
    "self-improved": (
        "sit", (), "cvrp",
        {**LIGHT, "model.head_dim": "16", "model.repeats": "2", "learner": "self-improved", "size": "10", "instances": "4",
         "batch": "2", "steps": "3", "rounds_updates": "2", "judged_updates": "1", "iterations": "1", "longest": "11",
         "longest_start": "11", "validation_instances": "3"},
    ),
    "policy-gradient": (
        "am", (), "cvrp",
        {"recipe": "eie-small", "model.width": "16", "model.heads": "2", "model.layers": "1", "size": "6", "first_size": "4",
         "batch": "3", "steps": "3", "epoch_steps": "2", "evaluation": "4", "validation_instances": "3"},
    ),
    "packing": (
        "attend2pack", (), None,
        {**LIGHT, "boxes": "4", "batch": "8", "samples": "4", "bin": "60x50", "validation_instances": "4", "warmup": "0",
         "steps": "2"},
    ),
    "tasks": ("vanilla", ("scc",), None, {"graph_batch": "2", "steps": "2"}),
    "lra": (
        "lra-vanilla", ("lra-listops16",), None,
        {"width": "16", "layers": "1", "heads": "2", "batch": "4", "validation_instances": "5", "steps": "2"},
    ),
}  # fmt: skip
"""Model, data, problem and configuration."""


def _same(known: Any, now: Any, place: str = "") -> None:
    """Compare values; of what this machine measured, only that it is there."""
    if place in OF_THIS_MACHINE:
        assert type(now) is type(known), place
    elif isinstance(known, dict):
        later = set(now) - set(known) if place in ("recipe", "config", "ours", "data") else set()
        assert [key for key in now if key not in later] == list(known), place
        for key, value in known.items():
            _same(value, now[key], key)
    elif isinstance(known, list):
        assert len(now) == len(known), place
        for one, other in zip(known, now, strict=True):
            _same(one, other, place)
    elif place == "notes":
        assert re.sub(NUMBER, "#", now) == re.sub(NUMBER, "#", known)
    elif place in ("gap_percent", "ci95_percent"):
        assert now == pytest.approx(known, rel=0.02)
    else:
        assert now == known, place


@pytest.mark.parametrize("name", TRAININGS)
def test_a_manifest_says_what_it_always_said(name: str, shards: list[Path], tmp_path: Path) -> None:
    model, data, problem, config = TRAININGS[name]
    made = train(
        model, shards if data == ("labels",) else data, config, out=tmp_path / "w", problem=problem, progress="silent"
    )  # fmt: skip
    known, now = json.loads(SAID.read_text())[name], unseal_document(made.manifest.read_bytes())
    _same(known, now)


def test_a_network_of_the_task_campaign_says_it_too(tmp_path: Path) -> None:
    train_member(Member("scc", "vanilla", 0), 128, tmp_path, float("inf"))
    now = unseal_document((tmp_path / "round-128" / "vanilla-scc-seed0.json").read_bytes())
    _same(json.loads(SAID.read_text())["task campaign"], now)


def test_the_lambda_network_of_eie_says_it_too(tmp_path: Path) -> None:
    file = train_and_export(
        EieConfig(4, 5, 20, width=4), tmp_path, EieRecipe(steps=2, batch=3, goal_rows=100), seed=7
    )
    _same(json.loads(SAID.read_text())["eie"], unseal_document(manifest_path(file.path).read_bytes()))


def test_a_checkpoint_of_version_0_2_0_is_continued(tmp_path: Path) -> None:
    """Two updates, as in the training ``lra`` above."""
    folder = tmp_path / "w.training"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "checkpoint-0.2.0.safetensors", folder / LAST)
    model, data, _, config = TRAININGS["lra"]
    more = config | {"steps": "3"}
    done = train(model, data, more, out=tmp_path / "w", resume=True, adopt=True, progress="silent")
    manifest = unseal_document(done.manifest.read_bytes())
    assert (manifest["steps"], manifest["samples"]) == (3, 12)
    assert manifest["recipe_changes"] == [{"step": 2, "changed": {"steps": 3}, "was": {"steps": 2}}]
