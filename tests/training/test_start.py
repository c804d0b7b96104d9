"""Training can start from weights: the model's own, or a shallower decoder's, which then computes the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nco_bench.errors import BadWeightsError, ResultsError
from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.problem import cvrp_problem, tsp_problem
from nco_bench.solvers.path.step import action_scores, start
from nco_bench.training.run import train
from nco_bench.training.start import RESIDUAL_WEIGHTS, grown, start_from
from nco_bench.weights.shelf import export
from nco_bench.weights.store import load_into, load_state, resolve

CONFIG = {
    "batch": "6",
    "longest": "11",
    "longest_start": "6",
    "validation_instances": "3",
    "compile": "false",
}


def first_scores(policy: nn.Module) -> Tensor:
    problem = tsp_problem(torch.rand(3, 20, 2, generator=torch.Generator().manual_seed(1)))
    with torch.inference_mode():
        return action_scores(policy, problem, policy.embed(problem.nodes), start(problem), None)[0]


@pytest.mark.parametrize("depth", [7, 12, 18])
def test_a_grown_decoder_computes_what_the_shallow_one_did(depth: int) -> None:
    shallow = build_path_policy("decoder-6x128", "tsp")
    deep = build_path_policy("decoder-12x128", "tsp", depth=depth)
    load_into(shallow, resolve("decoder-6x128", "decoder-6x128"))
    start_from(deep, "decoder-6x128", "decoder-12x128", "tsp")
    # Up to rounding: without gradients the last layer joins its last map with the score.
    torch.testing.assert_close(first_scores(deep), first_scores(shallow), rtol=1e-5, atol=1e-5)
    assert sum(not layer.alpha_ffn.detach() for layer in deep.layers) == depth - 6


def test_a_decoder_without_rezero_is_not_grown() -> None:
    state = {"layers.0.ffn_in.weight": torch.ones(2, 2)}
    assert grown(state, 3) == state


@pytest.mark.parametrize(
    ("name", "model"), [("decoder-6x128", "decoder-24x64"), ("lehd", "decoder-6x128"), ("pens-a", "coordns")]
)
def test_weights_that_do_not_fit_are_refused(name: str, model: str) -> None:
    with pytest.raises(BadWeightsError, match=f"do not fit {model}"):
        start_from(build_path_policy(model, "tsp"), name, model, "tsp")


def test_lehd_is_told_which_decoders_it_can_start_from() -> None:
    with pytest.raises(BadWeightsError, match=r"lehd's own, or from a decoder of the same sizes\.$"):
        start_from(build_path_policy("lehd"), "decoder-24x64", "lehd", "tsp")


def test_weights_of_another_configuration_are_refused_with_the_options_that_fit() -> None:
    with pytest.raises(BadWeightsError, match=r"--config model\.output_projection=False\.$"):
        start_from(build_path_policy("pens-r", output_projection=True), "pens-r", "pens-r", "tsp")
    start_from(build_path_policy("pens-r"), "pens-r", "pens-r", "tsp")


def test_weights_of_another_problem_are_refused(tmp_path: Path) -> None:
    policy, weights = build_path_policy("lehd", "cvrp"), resolve("lehd", "lehd")
    start_from(policy, "lehd", "lehd", "cvrp")
    manifest = dataclasses.replace(weights.manifest, problem="cvrp", config={"problem": "cvrp"})
    path = export(policy.state_dict(), manifest, tmp_path / "cvrp.safetensors").path
    with pytest.raises(BadWeightsError, match="weights for cvrp; lehd is to be trained for tsp"):
        start_from(build_path_policy("lehd", "tsp"), str(path), "lehd", "tsp")


@pytest.mark.parametrize(
    ("name", "model"), [("lehd", "sit"), ("sit", "lehd"), ("sit", "bq"), ("pens-a", "sit")]
)
def test_weights_of_another_model_are_no_start_for_the_cvrp(name: str, model: str) -> None:
    with pytest.raises(BadWeightsError, match=f"do not fit {model}"):
        start_from(build_path_policy(model, "cvrp"), name, model, "cvrp")


@pytest.mark.parametrize("model", ["lehd", "sit", "bq"])
def test_a_policy_for_the_cvrp_starts_with_what_it_learned_on_the_tsp(model: str, tmp_path: Path) -> None:
    tsp, cvrp = build_path_policy(model, "tsp").eval(), build_path_policy(model, "cvrp").eval()
    manifest = dataclasses.replace(resolve("lehd", "lehd").manifest, model=model, name=model, config={})
    path = export(tsp.state_dict(), manifest, tmp_path / "tsp.safetensors").path
    drawn = {key: value.clone() for key, value in cvrp.state_dict().items()}
    start_from(cvrp, str(path), model, "cvrp")
    for key, old in tsp.state_dict().items():
        new = cvrp.state_dict()[key]
        if old.dim() == 2 and new.shape[1] > old.shape[1]:
            assert torch.equal(new[:, old.shape[1] :], drawn[key][:, old.shape[1] :])
            new[:, old.shape[1] :] = 0  # loads play no part: both moves to a customer are the TSP's
    coords = torch.rand(3, 20, 2, generator=torch.Generator().manual_seed(1))
    demand = torch.ones(3, 20, dtype=torch.int64).index_fill_(1, torch.tensor(0), 0)
    routes = cvrp_problem(coords, demand, torch.full((3,), 30))
    with torch.inference_mode():
        moves = action_scores(cvrp, routes, cvrp.embed(routes.nodes), start(routes), None)[0].unflatten(
            1, (-1, 2)
        )
    found, wanted = moves.amax(dim=2), first_scores(tsp)
    torch.testing.assert_close(found.log_softmax(1), wanted.log_softmax(1))
    assert not found.allclose(found[:, :1])


def test_training_goes_on_from_weights_and_names_them(tmp_path: Path, shards: list[Path]) -> None:
    out = tmp_path / "more.safetensors"
    config = CONFIG | {"steps": "1", "lr": "1e-12", "scalar_lr": "1e-12"}
    train("decoder-6x128", shards, config, out=out, start="decoder-6x128", progress="silent")
    old, new = (resolve(name, "decoder-6x128") for name in ("decoder-6x128", str(out)))
    assert new.manifest.parent == old.manifest.sha256
    assert f"{old.manifest.samples:,} samples" in new.manifest.notes
    before = load_state(old)
    for name, value in load_state(new).items():
        torch.testing.assert_close(value, before[name].float(), rtol=0, atol=1e-6)


def test_a_run_that_started_from_weights_is_resumed_with_them_only(
    tmp_path: Path, shards: list[Path]
) -> None:
    out = tmp_path / "more.safetensors"
    train(
        "decoder-6x128",
        shards,
        CONFIG | {"steps": "2"},
        out=out,
        start="decoder-6x128",
        progress="silent",
        budget_s=60,
    )
    old, first = (resolve(name, "decoder-6x128").manifest for name in ("decoder-6x128", str(out)))
    with pytest.raises(ResultsError, match="start"):
        train(
            "decoder-6x128",
            shards,
            CONFIG | {"steps": "2"},
            out=out,
            resume=True,
            start=str(out),
            progress="silent",
        )
    train("decoder-6x128", shards, CONFIG | {"steps": "2"}, out=out, resume=True, progress="silent")
    again = resolve(str(out), "decoder-6x128").manifest
    assert (again.parent, again.notes) == (old.sha256, first.notes)
    copy = tmp_path / "copy.safetensors"
    train("decoder-6x128", shards, CONFIG | {"steps": "3"}, out=copy, branch=out, progress="silent")
    assert resolve(str(copy), "decoder-6x128").manifest.parent == old.sha256


def test_lehd_starts_near_the_decoder_whose_layers_it_takes() -> None:
    decoder, lehd = build_path_policy("decoder-6x128"), build_path_policy("lehd")
    load_into(decoder, resolve("decoder-6x128", "decoder-6x128"))
    before = agreement(decoder, lehd)
    start_from(lehd, "decoder-6x128", "lehd", "tsp")
    assert before < 0.2
    assert agreement(decoder, lehd) > 0.5


@pytest.mark.parametrize("factor", [0.3, 0.0])
def test_lehd_without_the_gates_that_it_lacks_computes_what_the_decoder_does(
    tmp_path: Path, factor: float
) -> None:
    decoder = build_path_policy("decoder-6x128", gate=False)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.rpartition(".")[2] in RESIDUAL_WEIGHTS:
                parameter.fill_(factor)
    gated = resolve("decoder-6x128", "decoder-6x128").manifest
    manifest = dataclasses.replace(gated, config=gated.config | {"gate": False})
    path = export(decoder.state_dict(), manifest, tmp_path / "plain.safetensors").path
    lehd = build_path_policy("lehd")
    start_from(lehd, str(path), "lehd", "tsp")
    torch.testing.assert_close(first_scores(lehd), first_scores(decoder), rtol=1e-3, atol=1e-3)


def agreement(decoder: nn.Module, lehd: nn.Module) -> float:
    """Return in how many of the problems both take the same node."""
    problem = tsp_problem(torch.rand(200, 40, 2, generator=torch.Generator().manual_seed(1)))
    with torch.inference_mode():
        chosen = [
            action_scores(one, problem, one.embed(problem.nodes), start(problem), None)[0].argmax(1)
            for one in (decoder, lehd)
        ]
    return float((chosen[0] == chosen[1]).float().mean())
