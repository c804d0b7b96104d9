"""Muon against a singular value decomposition, against torch's own, and over a stop in the middle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from nco_bench.cards import networks
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.training.muon import Muon, inside_layer, orthogonalised
from nco_bench.training.optimizer import optimizer_of
from nco_bench.training.recipes import rate, recipe_for
from nco_bench.training.run import train

PATH_MODELS = {name: card for name, card in networks().items() if card.family == "path"}
SHAPES = [(16, 16), (48, 16), (16, 64)]


def _quintic(values: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    for _ in range(steps):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return values


@pytest.mark.parametrize("shape", SHAPES)
def test_newton_schulz_is_the_quintic_on_the_singular_values(shape: tuple[int, int]) -> None:
    stack = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0)).double()
    found = orthogonalised(stack, 5).numpy()
    for matrix, own in zip(stack.numpy(), found, strict=True):
        u, s, v = np.linalg.svd(matrix, full_matrices=False)
        np.testing.assert_allclose(own, u * _quintic(s / np.linalg.norm(s), 5) @ v, atol=2e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_five_steps_come_near_the_orthogonal_polar_factor(shape: tuple[int, int]) -> None:
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(1)).double()
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    rotated = u @ torch.diag(s.clamp_min(0.05 * s[0])) @ v
    found = torch.linalg.svdvals(orthogonalised(rotated[None], 5)[0])
    # The fixed band of these coefficients: 1 +- 0.32.
    assert found.min() > 0.66
    assert found.max() < 1.21
    polar = u @ v
    assert torch.linalg.matrix_norm(orthogonalised(rotated[None], 5)[0] - polar, 2) < 0.34


def test_a_zero_gradient_stays_zero() -> None:
    assert torch.equal(orthogonalised(torch.zeros(1, 4, 3), 5), torch.zeros(1, 4, 3))


def _groups(shapes: list[tuple[int, ...]], seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]


def _descend(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], steps: int) -> list[Tensor]:
    for step in range(steps):
        generator = torch.Generator().manual_seed(step)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [p.detach().clone() for p in parameters]


def test_matrices_move_as_with_torch_muon_up_to_its_bf16() -> None:
    mine, theirs = _groups(SHAPES, 3), _groups(SHAPES, 3)
    begin = [p.detach().clone() for p in mine]
    rest = _groups([(4,)], 4)
    own = Muon({"params": mine, "weight_decay": 0.01}, [{"params": rest}], lr=0.02)
    other = torch.optim.Muon(
        theirs, lr=0.02, weight_decay=0.01, momentum=0.95, nesterov=True, adjust_lr_fn="match_rms_adamw"
    )
    for a, b, c in zip(_descend(own, mine, 6), _descend(other, theirs, 6), begin, strict=True):
        assert torch.linalg.norm(a - b) < 0.02 * torch.linalg.norm(a - c)


def test_an_update_has_the_root_mean_square_of_adamw() -> None:
    mine = _groups(SHAPES, 5)
    before = [p.detach().clone() for p in mine]
    own = Muon({"params": mine}, [{"params": _groups([(4,)], 4)}], lr=1.0)
    for after, begin in zip(_descend(own, mine, 1), before, strict=True):
        assert float((after - begin).square().mean().sqrt()) == pytest.approx(0.2, rel=0.25)


def test_everything_else_moves_exactly_as_with_adamw() -> None:
    shapes: list[tuple[int, ...]] = [(5, 2), (7,), ()]
    mine, theirs, matrix = _groups(shapes, 6), _groups(shapes, 6), _groups([(4, 4)], 7)
    own = Muon({"params": matrix}, [{"params": mine, "weight_decay": 0.1}], lr=3e-3, betas=(0.9, 0.98))
    other = torch.optim.AdamW(theirs, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.1, fused=True)
    for a, b in zip(_descend(own, mine, 4), _descend(other, theirs, 4), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("model", sorted(PATH_MODELS))
def test_every_path_model_has_matrices_inside_layers(model: str) -> None:
    problem = "tsp" if "tsp" in PATH_MODELS[model].problems else PATH_MODELS[model].problems[0]
    policy = build_path_policy(model, problem)
    inner = {name for name, p in policy.named_parameters() if inside_layer(name, p)}
    outer = {name for name, p in policy.named_parameters() if p.dim() == 2} - inner
    assert len(inner) >= 10
    assert not any(word in name for name in inner for word in ("embedding", "score", "markers"))
    assert not any("attention" in name or "ff" in name for name in outer)


def test_matrices_of_the_decoder_and_nothing_else_go_to_muon() -> None:
    policy = build_path_policy("decoder-6x128", "tsp")
    parameters = dict(policy.named_parameters())
    parameters["extra.neighbours.layers.0.weight"] = nn.Parameter(torch.zeros(3, 3))
    optimizer = optimizer_of(parameters, recipe_for("decoder-6x128", {"optimizer": "muon"}))
    assert isinstance(optimizer, Muon)
    names = {id(p): name for name, p in parameters.items()}
    found = {names[id(p)] for p in optimizer.matrices["params"]}
    parts = ("attention.qkv", "attention.out", "attention.gate", "ffn_in", "ffn_out")
    assert found == {f"layers.{k}.{part}.weight" for k in range(6) for part in parts}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(parameters)


def test_the_two_matrices_of_a_pointer_have_a_rate_of_their_own() -> None:
    parameters = dict(build_path_policy("pens-a", width=16, heads=2, ffn=16, layers=1).named_parameters())
    config = {"optimizer": "muon", "lr": "3e-3", "head_lr": "3e-4"}
    pointer = {parameters["query.weight"], parameters["key.weight"]}
    for group in optimizer_of(parameters, recipe_for("pens-a", config)).param_groups:
        at_its_own = [parameter in pointer for parameter in group["params"]]
        assert all(at_its_own) or not any(at_its_own)
        assert group["peak"] == (3e-4 if any(at_its_own) else 3e-3)


def test_a_model_without_layers_is_refused() -> None:
    parameters = {"score.weight": nn.Parameter(torch.zeros(2, 2))}
    with pytest.raises(BadInputError, match="no matrices inside layers"):
        optimizer_of(parameters, recipe_for("decoder-6x128", {"optimizer": "muon"}))


CONFIG = {
    "optimizer": "muon",
    "schedule": "constant",
    "warmup": "0",
    "batch": "6",
    "longest": "11",
    "longest_start": "6",
    "validation_instances": "3",
    "log_every": "1",
    "grow": "0",
    "lr": "3e-3",
}


def _train(
    shards: list[Path], out: Path, steps: int, *, resume: bool = False, **more: str
) -> dict[str, Tensor]:
    config = CONFIG | {"steps": str(steps)} | more
    result = train("decoder-24x64", shards, config, out=out, resume=resume, adopt=resume, progress="silent")
    return load_file(result.weights)


def test_a_resumed_run_ends_with_the_same_weights_to_the_bit(tmp_path: Path, shards: list[Path]) -> None:
    whole = _train(shards, tmp_path / "whole", 8)
    _train(shards, tmp_path / "half", 5)
    again = _train(shards, tmp_path / "half", 8, resume=True)
    assert all(torch.equal(tensor, again[name]) for name, tensor in whole.items())


def test_a_trapezoid_is_constant_and_then_falls_in_a_line() -> None:
    recipe = recipe_for(
        "decoder-6x128", {"schedule": "trapezoid", "warmup": "10", "fall": "0.2", "final_lr": "0"}
    )
    assert rate(recipe, 4, 0.0) == pytest.approx(0.5)
    assert [rate(recipe, 100, f) for f in (0.3, 0.8, 0.9, 1.0)] == pytest.approx([1.0, 1.0, 0.5, 0.0])
    with pytest.raises(BadInputError, match="fall=0"):
        recipe_for("decoder-6x128", {"schedule": "trapezoid", "fall": "0"})
    with pytest.raises(BadInputError, match="momentum=1"):
        recipe_for("decoder-6x128", {"momentum": "1"})


def test_a_decayed_copy_branches_off_and_the_constant_run_goes_on(tmp_path: Path, shards: list[Path]) -> None:
    straight = _train(shards, tmp_path / "straight", 12)
    _train(shards, tmp_path / "run", 8)
    kept = (tmp_path / "run.training" / "checkpoint.safetensors").read_bytes()
    decay = CONFIG | {"schedule": "trapezoid", "steps": "10"}
    copy = train(
        "decoder-24x64",
        shards,
        decay,
        out=tmp_path / "copy",
        branch=tmp_path / "run.safetensors",
        progress="silent",
    )
    lines = copy.log.read_text().splitlines()
    rates = [float(line.split(",")[6]) for line in lines[1:] if line.split(",")[6]]
    assert copy.steps == len(rates) == 10
    assert rates[:8] == [3e-3] * 8
    assert 3e-3 >= rates[8] > rates[9] > 0
    assert (tmp_path / "run.training" / "checkpoint.safetensors").read_bytes() == kept
    gone_on = _train(shards, tmp_path / "run", 12, resume=True)
    assert all(torch.equal(tensor, gone_on[name]) for name, tensor in straight.items())
    with pytest.raises(BadInputError, match="leave --resume"):
        train("decoder-24x64", shards, decay, out=tmp_path / "x", branch=tmp_path / "run", resume=True)
