"""Parity replays what a fixture holds: any of its groups, steps under other numbers, and what it leaves out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.cli import app
from nco_bench.errors import BadInputError
from nco_bench.parity import check_fixture

PARTS = [
    ("am-tsp", "beam5"),
    ("bq-cvrp", "greedy_knn"),
    ("bq-tsp", "scores_sub|beam"),
    ("dgl-tsp", "step2|step37"),
    ("dgl-cvrp", "step20|greedy"),
    ("difusco-tsp", "fwd_out|pairs_cosine_50"),
    ("difusco-tsp-sparse", "train_loss"),
    ("difusco-tsp-mcts", "mcts_tour|restart1_tour"),
    ("elg-cvrp", "late|steps"),
    ("esf-cvrp", "step3"),
    ("esf-tsp", "static"),
    ("glop-tsp", "rev10|w3_noprune"),
    ("glop-cvrp", "net_out"),
    ("htsp-tsp", r"low\.step1|ppo"),
    ("htsp-tsp", "step0|step5"),
    ("invit-cvrp", "step0"),
    ("lehd-tsp", "step_b"),
    ("pomo-cvrp", "forced"),
    ("sigd-cvrp", "beam_knn"),
    ("sil-cvrp", "step_c"),
    ("tropical-tropical", "n21"),
]
INTEGERS = ("mcts_tour", "restart1_tour", "pairs_cosine_50")
NEVER = r"expected\.(.*\.direct_mask|late\.probs|step\d\.done|beam5\.ids)"
"""What the fixtures hold of the official code's insides that ours does not have."""


def cut(source: Path, folder: Path, keep: str) -> tuple[Path, dict[str, torch.Tensor]]:
    """Copy a fixture without what it expects outside some groups."""
    kept = re.compile(rf"expected\.({keep})(\.|$)")
    tensors = {k: v for k, v in load_file(source).items() if not k.startswith("expected.") or kept.match(k)}
    (folder / "cut.json").write_text(source.with_suffix(".json").read_text())
    save_file(tensors, folder / "cut.safetensors")
    return folder / "cut.safetensors", tensors


@pytest.mark.parametrize(("name", "keep"), PARTS)
def test_a_part_of_a_fixture_is_compared_and_can_fail(
    name: str, keep: str, shared: Path, tmp_path: Path
) -> None:
    path, tensors = cut(shared / "parity" / f"{name}.safetensors", tmp_path, keep)
    found = check_fixture(path)
    assert found.ok, found.details["failed"]
    assert {key for key in found.not_compared if not re.fullmatch(NEVER, key)} == set()
    for group in set(keep.split("|")) - {"steps"}:
        form = re.compile(rf"expected\.{group}(\.|$)")
        key = next(
            k for k, v in tensors.items() if form.match(k) and not re.fullmatch(NEVER, k) and floats(k, v)
        )
        save_file(tensors | {key: tensors[key] + 1}, path)
        assert not check_fixture(path).ok, key


def floats(key: str, value: torch.Tensor) -> bool:
    """Whether a changed entry must show; some integers are read at valid places only."""
    return value.is_floating_point() or key.removeprefix("expected.") in INTEGERS


@pytest.mark.parametrize(
    ("name", "old", "new", "compared"),
    [
        ("htsp-tsp", "low.step7", "low.step4", "low.step4.probs"),
        ("esf-cvrp", "step3", "step11", "step11.probs"),
        ("lehd-cvrp", "step_b", "step_x", "step_x.raw_logits"),
        ("sil-tsp", "step_a", "step_q", "step_q.probs"),
    ],
)
def test_steps_go_by_the_names_that_the_fixture_gives_them(
    name: str, old: str, new: str, compared: str, shared: Path, tmp_path: Path
) -> None:
    path, tensors = cut(shared / "parity" / f"{name}.safetensors", tmp_path, re.escape(old))
    save_file({key.replace(f".{old}.", f".{new}."): value for key, value in tensors.items()}, path)
    found = check_fixture(path)
    assert found.ok
    assert compared in found.details


def test_a_step_whose_inputs_are_missing_is_an_error_not_a_gap(shared: Path, tmp_path: Path) -> None:
    path, tensors = cut(shared / "parity" / "htsp-tsp.safetensors", tmp_path, "low")
    del tensors["input.low.step1.mask"]
    save_file(tensors, path)
    with pytest.raises(BadInputError, match=r"holds no tensor input\.low\.step1\.mask"):
        check_fixture(path)


def test_what_no_check_reads_is_named(
    shared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path, _ = cut(shared / "parity" / "sigd-tsp.safetensors", tmp_path, "greedy|sbs_wor")
    assert app.run(["parity", str(path)]) == 0
    assert "expected, but not compared: expected.sbs_wor.gumbel, " in capfd.readouterr().out
    path, _ = cut(shared / "parity" / "sigd-tsp.safetensors", tmp_path, "sbs_wor")
    assert not check_fixture(path).ok  # nothing was compared


@pytest.mark.parametrize(
    ("name", "norm", "ok"), [("esf-pomo-tsp", "instance", True), ("esf-cvrp", "instance", False)]
)
def test_normalisations_of_esf_are_those_that_the_fixture_names(
    name: str, norm: str, ok: bool, shared: Path, tmp_path: Path
) -> None:
    """POMO's is by instance, so naming it changes nothing; the CVRP fixture was made with the other one."""
    path, _ = cut(shared / "parity" / f"{name}.safetensors", tmp_path, "encoded_nodes")
    meta = json.loads(path.with_suffix(".json").read_text())
    path.with_suffix(".json").write_text(json.dumps(meta | {"config": meta["config"] | {"norm": norm}}))
    assert check_fixture(path).ok == ok
    path.with_suffix(".json").write_text(json.dumps(meta | {"config": meta["config"] | {"norm": "layer"}}))
    with pytest.raises(BadInputError, match="norm 'layer' is unknown; ours are instance and batch_no_track"):
        check_fixture(path)
