"""Policy gradient for packing: the gradient is that of the definition, draws repeat, training resumes and teaches."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy import stats

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.logit_scale import ScaleContext
from nco_bench.solvers.decoding.search import sampling
from nco_bench.solvers.packing.decode import roll_out
from nco_bench.training.courses import Assignment
from nco_bench.training.learners.packing import (
    COURSE,
    HeldOut,
    PackingLearner,
    p_value,
    prepare,
)
from nco_bench.training.run import train
from nco_bench.weights.store import load_state, resolve

TINY = {
    "boxes": "4",
    "batch": "8",
    "samples": "4",
    "bin": "60x50",
    "validation_instances": "4",
    "warmup": "0",
}


def learner(**config):
    recipe = COURSE.recipe("attend2pack", {**TINY, **config})
    torch.manual_seed(0)
    length, width = (int(side) for side in recipe.bin.split("x"))
    policy = build_path_policy(
        "attend2pack", "bpp3d", width=16, heads=2, ffn=32, layers=1, bin_length=length, bin_width=width
    )
    return PackingLearner(policy, recipe, seed=1)


def test_the_paper_recipe_is_that_of_eie():
    recipe = COURSE.recipe("attend2pack", {"recipe": "paper"})
    assert (recipe.boxes, recipe.batch, recipe.steps, recipe.epoch_steps) == (100, 64, 500 * 10, 10)
    assert (recipe.bin, recipe.baseline, recipe.lr) == ("120x100", "rollout", 1e-4)


def test_costs_are_one_minus_the_load_rate():
    one = learner()
    sides = torch.tensor([[[10, 20, 30], [30, 30, 30]]])
    # 6,000 + 27,000 on 60 x 50 with height 40
    assert one.costs(sides, torch.tensor([40.0])).item() == pytest.approx(1 - 33_000 / 120_000)


def test_samples_are_compared_with_the_other_samples_of_their_instance():
    cost = torch.tensor([0.1, 0.2, 0.3, 0.6, 0.5, 0.5, 0.5, 0.1])
    found = learner()._baseline(torch.zeros(2, 4, 3), cost, 4)
    expected = [1.1 / 3, 1.0 / 3, 0.9 / 3, 0.6 / 3, 1.1 / 3, 1.1 / 3, 1.1 / 3, 1.5 / 3]
    assert found.tolist() == pytest.approx(expected)


def test_an_update_repeats_for_its_number_only():
    one, other = learner(), learner()
    assert one.loss(5, 0.0).total.item() == other.loss(5, 0.0).total.item()
    assert (one.draw(5, 8) == other.draw(5, 8)).all()
    assert (one.draw(5, 8) != other.draw(6, 8)).any()


def test_following_the_gradient_lowers_the_cost():
    one = learner(batch="64", samples="8", boxes="3", bin="50x50")
    unseen = one.draw(10**6, 128)

    def sampled_costs():
        with torch.no_grad():
            choose = sampling(torch.arange(128), 0, 1)
            return one.costs(unseen, roll_out(one.policy, one.policy.encode(unseen), unseen, choose).height)

    before = sampled_costs().numpy()
    optimizer = torch.optim.Adam(one.policy.parameters(), lr=3e-3)
    for step in range(20):
        optimizer.zero_grad()
        one.loss(step, 0.0).total.backward()
        optimizer.step()
    assert stats.ttest_rel(sampled_costs().numpy(), before, alternative="less").pvalue < 1e-3


def test_the_rollout_baseline_is_replaced_only_by_better_weights():
    one = learner(baseline="rollout", epoch_steps="2", rollout_instances="16")
    start = {k: v.clone() for k, v in one.tensors().items()}
    one.loss(0, 0.0)
    one.loss(2, 0.0)  # the same weights are not better
    assert all((one.tensors()[k] == v).all() for k, v in start.items())
    with torch.no_grad():
        for parameter in one.best.parameters():
            parameter.mul_(0.0)  # always the first box, in the first place
    beaten = {k: v.clone() for k, v in one.tensors().items()}
    costs = [one._greedy(policy, one.draw(2, 16, stream=1)).numpy() for policy in (one.best, one.policy)]
    one.loss(2, 0.0)
    replaced = any((one.tensors()[k] != v).any() for k, v in beaten.items())
    assert replaced == (stats.ttest_rel(costs[0], costs[1], alternative="greater").pvalue < 0.05)


def test_p_values_are_those_of_scipy_and_equal_packings_prove_nothing():
    rng = np.random.default_rng(0)
    one, other = rng.random(50), rng.random(50)
    assert p_value(one - other) == pytest.approx(stats.ttest_rel(one, other, alternative="greater").pvalue)
    assert p_value(np.zeros(9)) == 0.5


def test_significantly_worse_weights_learn_slower_as_eie_has_it():
    """EIE, section 5: where the p-value exceeds 0.95, the learning rate is scaled down by 0.95."""
    assert COURSE.recipe("attend2pack", {"recipe": "paper"}).shrink == 0.95
    one = learner(baseline="rollout", epoch_steps="2", rollout_instances="64", shrink="0.95")
    optimizer = torch.optim.Adam([{"params": list(one.policy.parameters()), "peak": 0.01}])
    one.follow(optimizer)
    one.loss(2, 0.0)  # the same weights are no worse
    assert optimizer.param_groups[0]["peak"] == 0.01
    with torch.no_grad():
        for parameter in one.best.parameters():
            parameter.zero_()  # always the first box, in the first place
    costs = [one._greedy(policy, one.draw(4, 64, stream=1)).numpy() for policy in (one.policy, one.best)]
    assert stats.ttest_rel(*costs, alternative="greater").pvalue < 0.05
    one.loss(4, 0.0)
    assert optimizer.param_groups[0]["peak"] == pytest.approx(0.0095)
    other, fresh = learner(baseline="rollout", shrink="0.95"), torch.nn.Parameter(torch.zeros(1))
    again = torch.optim.Adam([{"params": [fresh], "peak": 0.01}])
    other.follow(again)
    other.seek(one.position())
    assert again.param_groups[0]["peak"] == pytest.approx(0.0095)


def test_validation_instances_are_packed_by_the_referee_and_the_network_alike():
    recipe = COURSE.recipe("attend2pack", TINY)
    held_out = HeldOut.of(recipe)
    rates = held_out.rates(learner().policy.eval())
    assert ((rates > 0) & (rates <= 100)).all()
    assert held_out.instances[0].name == "bpp3d4-00000"
    assert (held_out.reference <= 100).all()


def test_training_writes_weights_with_a_true_manifest(tmp_path):
    config = {**TINY, "steps": "3", "validate_every": "1000"}
    whole = train("attend2pack", (), config, out=tmp_path / "whole.safetensors", progress="silent")
    manifest = json.loads(whole.manifest.read_text())
    assert (manifest["problem"], manifest["steps"], manifest["samples"]) == ("bpp3d", 3, 24)
    assert manifest["config"]["bin_length"] == 60
    assert manifest["data"]["size"] == 4
    assert manifest["share_of_paper"] == pytest.approx(24 * 4 / (500 * 10 * 64 * 100), abs=1e-5)
    assert resolve(str(whole.weights), "attend2pack", "bpp3d").manifest.parameters == manifest["parameters"]
    with pytest.raises(BadInputError, match="resume"):
        train("attend2pack", (), config, out=tmp_path / "whole.safetensors", progress="silent")


def test_eies_second_network_has_four_layers_of_heads_32_wide(tmp_path):
    """EIE, Table 6: four attention layers instead of three, d = 32 instead of 16, trained on 120 boxes."""
    recipe = COURSE.recipe("attend2pack", {"recipe": "paper-d32"})
    assert (recipe.boxes, recipe.batch, recipe.steps) == (120, 64, 5000)
    assert COURSE.papers("attend2pack")["paper-d32"].network == {"width": 256, "layers": 4}
    config = {**TINY, "recipe": "paper-d32", "steps": "1", "validate_every": "1000"}
    done = train("attend2pack", (), config, out=tmp_path / "wide.safetensors", progress="silent")
    manifest = json.loads(done.manifest.read_text())
    assert (manifest["config"]["width"] // manifest["config"]["heads"], manifest["config"]["layers"]) == (
        32,
        4,
    )
    assert manifest["share_of_paper"] == pytest.approx(8 * 4 / (500 * 10 * 64 * 120), abs=1e-5)
    assert "the paper trains on 120" in manifest["notes"]
    weights = resolve(str(done.weights), "attend2pack", "bpp3d")
    assert build_path_policy("attend2pack", "bpp3d", **weights.manifest.config).load_state_dict(
        load_state(weights)
    )


@pytest.mark.parametrize(
    ("config", "cause"),
    [
        ({"model.width": "100", "model.heads": "8"}, "expected a width that the heads divide"),
        ({"model.bin_length": "60"}, "choose it with bin=LxW"),
        ({"model.layers": "0"}, "expected 1 or more"),
    ],
)
def test_networks_that_cannot_be_are_refused(config, cause):
    with pytest.raises(BadInputError, match=cause):
        train("attend2pack", (), {**TINY, "steps": "1", **config}, progress="silent")


def test_a_rival_of_eie_is_trained_with_its_scale(tmp_path):
    """EIE, section 4.2: Su (2021), whose scale is ln n / d, "necessitates the Transformer model to be retrained"."""
    recipe = COURSE.recipe("attend2pack", {**TINY, "logit_scale": "ln-n-over-d"})
    policy = prepare(Assignment("attend2pack", recipe)).policy
    factors = [policy.logit_scale(ScaleContext(100, 100, 16, place=p)) for p in ("encoder", "glimpse")]
    assert factors == pytest.approx([4 * np.log(100) / 16, 1.0])
    config = {**TINY, "steps": "2", "logit_scale": "ln-n-over-d"}
    made = train("attend2pack", (), config, out=tmp_path / "rival.safetensors", progress="silent")
    assert json.loads(made.manifest.read_text())["recipe"]["logit_scale"] == "ln-n-over-d:at=encoder"


@pytest.mark.parametrize(
    ("config", "error"),
    [
        ({"baseline": "critic"}, UnknownNameError),
        ({"recipe": "large"}, UnknownNameError),
        ({"samples": "1"}, BadInputError),
        ({"batch": "9"}, BadInputError),
        ({"boxes": "0"}, BadInputError),
        ({"shrink": "0"}, BadInputError),
        ({"bin": "60"}, BadInputError),
        ({"box": "3"}, UnknownNameError),
        ({"logit_scale": "ln-n-over-d:at=decoder"}, UnknownNameError),
    ],
)
def test_recipes_that_make_no_sense_are_refused(config, error):
    with pytest.raises(error):
        COURSE.recipe("attend2pack", {**TINY, **config})


def test_labelled_data_is_refused():
    with pytest.raises(BadInputError, match="leave --data out"):
        train("attend2pack", ["bpp3d10:120x100"], {**TINY, "steps": "1"}, progress="silent")
