"""Policy gradient: the baselines, the test that moves one, and that something is learned."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.logit_scale import ScaleContext
from nco_bench.solvers.stepwise import rollout
from nco_bench.training.courses import Assignment
from nco_bench.training.learners import policy_gradient
from nco_bench.training.learners.fresh_instances import FreshInstances
from nco_bench.training.learners.policy_gradient import (
    POMO_SETTINGS,
    PolicyGradient,
    PolicyGradientSettings,
)
from nco_bench.training.learners.policy_gradient_course import COURSE, prepare
from nco_bench.training.learners.rollout_baseline import greedy_costs, p_value
from nco_bench.training.recipes import Recipe
from nco_bench.training.run import train
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import read_manifest
from nco_bench.weights.store import load_into, resolve

SMALL: dict[str, Any] = {"width": 32, "heads": 4, "ffn": 64}
CPU = torch.device("cpu")
QUICK = PolicyGradientSettings(epoch_steps=5, evaluation=64, shrink=0.5)


def recipe(batch: int) -> Recipe:
    return Recipe(batch=batch, lr=1e-3, weight_decay=0.0, schedule="constant", steps=1000, log_every=1000)


def fresh_am(problem: str = "tsp") -> torch.nn.Module:
    torch.manual_seed(1)
    return build_path_policy("am", problem, normalization="layer", centred=True, **SMALL, layers=1)


def test_p_value_is_that_of_a_one_sample_test_on_the_differences() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(50), rng.random(50) + 0.1
    assert p_value(a, b) == pytest.approx(ttest_1samp(a - b, 0, alternative="less").pvalue)
    assert p_value(a, b) < 0.05 < 0.95 < p_value(b, a)
    assert p_value(a, a) == 0.5


@pytest.mark.parametrize(
    ("problem", "source"),
    [("tsp", FreshInstances("tsp", 8)), ("cvrp", FreshInstances("cvrp", 6, 3.0, "unit"))],
)
def test_am_learns_with_the_rollout_baseline(tmp_path: Path, problem: str, source: FreshInstances) -> None:
    policy = fresh_am(problem)
    learner = PolicyGradient(policy, source, recipe(32), 3, CPU, replace(QUICK, shrink=1.0))
    held_out = source.draw(256, np.random.default_rng(99))
    before = greedy_costs(policy.eval(), held_out).mean()
    trainer = Trainer(policy.train(), learner, recipe(32), tmp_path, {"problem": problem})
    for _ in range(40):
        trainer.update(0.0)
    assert greedy_costs(policy.eval(), held_out).mean() < 0.9 * before
    assert learner.position()["copies"] >= 1


def test_a_moving_average_keeps_counters_as_they_are(tmp_path: Path) -> None:
    policy = build_path_policy("am", "tsp", **SMALL, layers=1)  # with BatchNorm
    averaged = replace(recipe(4), ema=0.5)
    learner = PolicyGradient(policy, FreshInstances("tsp", 6), averaged, 3, CPU, QUICK)
    trainer = Trainer(policy.train(), learner, averaged, tmp_path, {"problem": "tsp"})
    for _ in range(3):
        trainer.update(0.0)
    counters = {k: v for k, v in trainer.average.items() if not v.is_floating_point()}
    assert counters
    assert all(torch.equal(v, policy.state_dict()[k]) for k, v in counters.items())
    weight = next(k for k, v in policy.named_parameters() if v.dim() == 2)
    assert not torch.equal(trainer.weights()[weight], policy.state_dict()[weight])


def test_pomo_learns_with_the_shared_baseline(tmp_path: Path) -> None:
    torch.manual_seed(1)
    policy = build_path_policy("pomo", "tsp", **SMALL, head_dim=8, layers=1)
    source = FreshInstances("tsp", 8)
    learner = PolicyGradient(policy, source, recipe(32), 3, CPU)
    assert learner.settings.baseline == "shared"
    held_out = source.draw(256, np.random.default_rng(99))
    before = greedy_costs(policy.eval(), held_out).mean()
    trainer = Trainer(policy.train(), learner, recipe(32), tmp_path, {"problem": "tsp"})
    for _ in range(30):
        trainer.update(0.0)
    assert greedy_costs(policy.eval(), held_out).mean() < 0.95 * before


@pytest.mark.parametrize("source", [FreshInstances("tsp", 40), FreshInstances("cvrp", 33, 3.0, "unit")])
@pytest.mark.parametrize("model", ["am", "pomo"])
def test_an_update_in_compiled_loops_is_that_of_single_steps(
    model: str, source: FreshInstances, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradients() -> dict[str, torch.Tensor]:
        torch.manual_seed(1)
        sizes: dict[str, Any] = {"normalization": "layer"} if model == "am" else {"head_dim": 8}
        policy = build_path_policy(model, source.problem, **SMALL, **sizes, layers=1)
        settings = QUICK if model == "am" else POMO_SETTINGS
        learner = PolicyGradient(policy.train(), source, recipe(8), 3, CPU, replace(settings, epoch_steps=1))
        learner.seek({**learner.position(), "epochs": 1})  # AM: compared with a greedy roll-out
        learner.loss(1, 0.0).total.backward()
        return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}

    compiled = gradients()
    monkeypatch.setattr(rollout, "KERNELS", False)
    monkeypatch.setattr(
        policy_gradient, "MANY_TRAJECTORIES", 1
    )  # one pass, whose gradients are kept step by step
    for name, expected in gradients().items():
        torch.testing.assert_close(compiled[name], expected, rtol=1e-4, atol=1e-4, msg=name)


def elg(**settings: Any) -> Trainer:
    torch.manual_seed(1)
    policy = build_path_policy("elg", "tsp", **SMALL, head_dim=8, layers=1)
    chosen = replace(POMO_SETTINGS, **settings)
    learner = PolicyGradient(policy.train(), FreshInstances("tsp", 8), recipe(4), 3, CPU, chosen)
    return Trainer(policy, learner, recipe(4), Path("unused"), {"problem": "tsp"})


def test_elgs_advantages_are_shares_of_the_best_one() -> None:
    plain, scaled = elg().learner, elg(scale_advantage=True).learner
    problem = plain.source.draw(4, np.random.default_rng(0))  # type: ignore[attr-defined]
    cost = torch.tensor([[1.0, 2.0, 6.0], [4.0, 5.0, 9.0]]).double().repeat(2, 1)
    log_prob = -torch.tensor([[1.0, 2.0, 3.0], [1.0, 1.0, 2.0]]).double().repeat(2, 1)
    for learner in (plain, scaled):
        learner._sample = lambda *_: (cost, log_prob)  # type: ignore[attr-defined]
    # Means 3 and 6; the best is better by 2 both times.
    by_hand = -((-2) * 1 + (-1) * 2 + 3 * 3 + (-2) * 1 + (-1) * 1 + 3 * 2) / 6
    assert float(plain._shared(problem, 0).total) == pytest.approx(by_hand)  # type: ignore[attr-defined]
    assert float(scaled._shared(problem, 0).total) == pytest.approx(by_hand / 2)  # type: ignore[attr-defined]
    cost[0] = 1.0  # nothing to divide by: the batch stays as it is
    even = float(plain._shared(problem, 0).total)  # type: ignore[attr-defined]
    assert float(scaled._shared(problem, 0).total) == pytest.approx(even)  # type: ignore[attr-defined]


def test_elgs_local_policy_comes_in_later_with_a_fresh_optimiser() -> None:
    trainer = elg(local_from=2)
    local = {id(p) for name, p in trainer.parameters.items() if name.startswith("local.")}
    before = {name: p.detach().clone() for name, p in trainer.parameters.items() if id(p) in local}
    for _ in range(2):
        trainer.update(0.0)
    steps = {float(state["step"]) for p, state in trainer.optimizer.state.items()}
    assert not local & {id(p) for p in trainer.optimizer.state}
    assert steps == {2.0}
    assert all(torch.equal(p, before[name]) for name, p in trainer.parameters.items() if id(p) in local)
    exported = trainer.weights()
    assert not exported["local.combine.weight"].any(), "an untrained local policy would speak"
    trainer.update(0.0)
    assert local <= {id(p) for p in trainer.optimizer.state}
    assert {float(state["step"]) for state in trainer.optimizer.state.values()} == {1.0}
    assert trainer.weights()["local.combine.weight"].any()


def test_elgs_cvrp_draws_three_kinds_of_instances() -> None:
    """Few points of a cluster (standard deviation 0.07) have their fifth neighbour beyond 0.12, most uniform ones do."""
    source = FreshInstances("cvrp", 60, 50.0, distribution="uniform+clustered+mixed")
    apart = []
    for seed in range(30):
        coords = source.draw(4, np.random.default_rng(seed)).coords.double()
        assert coords.shape == (4, 61, 2)
        assert 0 <= float(coords.min()) <= float(coords.max()) <= 1
        far = torch.cdist(coords, coords).sort(dim=2).values[:, :, 5].gt(0.12).double().mean(dim=1)
        assert float(far.max() - far.min()) < 0.3, "a batch is of one kind"
        apart.append(float(far.mean()))
    assert np.histogram(apart, [0.0, 0.25, 0.65, 1.0])[0].min() >= 4, "every kind is drawn"
    plain, drawn = FreshInstances("cvrp", 60, 50.0), []
    for one in (plain, replace(plain, distribution="uniform")):
        drawn.append(one.draw(2, np.random.default_rng(1)).coords)
    assert torch.equal(*drawn)


def test_other_distributions_are_refused_where_they_mean_nothing(tmp_path: Path) -> None:
    small = {"size": "6", "batch": "2", "steps": "1", "validation_instances": "2"}
    with pytest.raises(UnknownNameError, match="uniform\\+clustered\\+mixed"):
        train("pomo", config={**small, "distribution": "clustred"}, out=tmp_path / "w", progress="silent")
    mixture = {**small, "distribution": "uniform+clustered+mixed"}
    with pytest.raises(BadInputError, match="rollout baseline"):
        train("am", config=mixture, out=tmp_path / "w", progress="silent")
    done = train("pomo", config=mixture, out=tmp_path / "w", progress="silent")
    manifest = read_manifest(done.manifest)
    assert manifest.data.distribution == "clustered, mixed, uniform"
    assert "uniform instances" in manifest.validation[0].on


def test_only_elg_has_a_local_policy() -> None:
    with pytest.raises(BadInputError, match="only elg"):
        PolicyGradient(
            build_path_policy("pomo", "tsp", **SMALL, head_dim=8, layers=1), FreshInstances("tsp", 8), recipe(4), 3, CPU,
            replace(POMO_SETTINGS, local_from=3),
        )  # fmt: skip


def test_a_resumed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    def fresh(folder: Path) -> Trainer:
        policy = fresh_am()
        learner = PolicyGradient(policy, FreshInstances("tsp", 6), recipe(16), 3, CPU, QUICK)
        return Trainer(policy.train(), learner, recipe(16), folder, {"problem": "tsp"})

    whole = fresh(tmp_path / "whole")
    for _ in range(12):
        whole.update(0.0)
    first = fresh(tmp_path / "cut")
    for _ in range(7):
        first.update(0.0)
    first.save()
    second = fresh(tmp_path / "cut")
    second.resume()
    for _ in range(5):
        second.update(0.0)
    for key, value in whole.weights().items():
        assert torch.equal(value, second.weights()[key]), key


def test_a_worse_policy_shrinks_the_learning_rate_and_leaves_the_baseline(tmp_path: Path) -> None:
    policy = fresh_am()
    source = FreshInstances("tsp", 8)
    learner = PolicyGradient(policy, source, recipe(32), 3, CPU, QUICK)
    trainer = Trainer(policy.train(), learner, recipe(32), tmp_path, {"problem": "tsp"})
    for _ in range(41):
        trainer.update(0.0)
    copies, rate = learner.position()["copies"], learner.rate
    with torch.no_grad():  # spoil the policy: it now decodes nonsense
        for parameter in policy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(5)))
    for _ in range(5):
        trainer.update(0.0)
    assert learner.position()["copies"] == copies
    assert learner.rate == 0.5 * rate
    assert trainer.optimizer.param_groups[0]["peak"] == pytest.approx(1e-3 * learner.rate)

    trainer.save()
    trainer.update(0.0)
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(1e-3 * learner.rate)
    again = fresh_am()
    learner = PolicyGradient(again, source, recipe(32), 3, CPU, QUICK)
    resumed = Trainer(again.train(), learner, recipe(32), tmp_path, {"problem": "tsp"})
    resumed.resume()
    resumed.update(0.0)
    assert resumed.optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 1e-3 * rate)


def test_other_instances_than_the_checkpoint_s_are_refused() -> None:
    learner = PolicyGradient(fresh_am(), FreshInstances("tsp", 8), recipe(8), 3, CPU, QUICK)
    other = PolicyGradient(fresh_am(), FreshInstances("tsp", 9), recipe(8), 3, CPU, QUICK)
    with pytest.raises(BadInputError, match=r"uniform tsp8.*uniform tsp9"):
        other.seek(learner.position())


def test_a_capacity_below_a_demand_is_refused() -> None:
    with pytest.raises(BadInputError, match="capacity 8 is below a demand of 9"):
        PolicyGradient(fresh_am("cvrp"), FreshInstances("cvrp", 8, 8.0), recipe(8), 3, CPU, QUICK)


def test_instances_grow_from_the_first_size_to_the_last() -> None:
    settings = replace(QUICK, first_size=5, grow=0.5)
    drawn: list[int] = []

    class Watched(FreshInstances):
        def draw(self, count: int, rng: np.random.Generator) -> Any:
            drawn.append(self.size)
            return super().draw(count, rng)

    learner = PolicyGradient(fresh_am(), Watched("tsp", 20), recipe(4), 3, CPU, settings)
    for step, fraction in enumerate((0.0, 0.25, 0.5, 0.9)):
        learner.loss(step, fraction)
    assert drawn == [5, 10, 20, 20]  # 5 x 4^(fraction / 0.5)
    drawn.clear()
    learner.loss(5, 0.25)
    assert set(drawn) == {10}  # the baseline is tested on instances of the size that is learned from
    with pytest.raises(BadInputError, match="first_size=21"):
        PolicyGradient(
            fresh_am(), FreshInstances("tsp", 20), recipe(4), 3, CPU, replace(settings, first_size=21)
        )


def gradient_against(average: float, settings: PolicyGradientSettings) -> torch.Tensor:
    """Gradient of one batch of four instances in the first epoch, where this moving average is the baseline."""
    policy = fresh_am()
    learner = PolicyGradient(policy.train(), FreshInstances("tsp", 8), recipe(4), 3, CPU, settings)
    learner._state["average"] = average
    found = learner.loss(0, 0.0)
    assert found.samples == 4  # instances, however many tours each
    found.total.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])


def test_without_their_mean_advantages_do_not_depend_on_the_level_of_the_baseline() -> None:
    several = replace(QUICK, tours=3)
    free = replace(several, zero_mean=True)
    low, high = gradient_against(0.0, free), gradient_against(50.0, free)
    torch.testing.assert_close(low, high, rtol=1e-3, atol=1e-4)
    assert (gradient_against(0.0, several) - gradient_against(50.0, several)).norm() > low.norm()
    assert (gradient_against(0.0, replace(free, tours=1)) - low).norm() > 0.01 * low.norm()


def test_a_policy_can_be_trained_with_another_logit_scale() -> None:
    scaled = COURSE.recipe("am", {"logit_scale": "ln-n-over-d", "size": "20"})
    plain = COURSE.recipe("am", {"size": "20"})
    policies = [prepare(Assignment("am", recipe, problem="tsp")).policy for recipe in (plain, scaled)]
    factors = [
        [policy.logit_scale(ScaleContext(100, 100, 16, place=place)) for place in ("encoder", "glimpse")]
        for policy in policies
    ]
    assert factors[0] == [1.0, 1.0]
    assert factors[1] == pytest.approx([4 * math.log(100) / 16, 1.0])  # (ln n / d) in place of 1 / sqrt(d)
    assert scaled.logit_scale == "ln-n-over-d:at=encoder"


def test_an_unknown_logit_scale_is_named() -> None:
    recipe = COURSE.recipe("am", {"logit_scale": "ln-n-over-dd"})
    with pytest.raises(UnknownNameError, match="ln-n-over-d"):
        prepare(Assignment("am", recipe, problem="tsp"))


def test_eies_second_network_has_heads_of_32_and_four_layers(tmp_path: Path) -> None:
    """EIE, Table 6: three attention layers become four, d = 16 becomes 32, training on 100 nodes becomes 120."""
    recipe = COURSE.recipe("am", {"recipe": "eie-d32"})
    assert (recipe.size, recipe.batch, recipe.steps, recipe.shrink) == (120, 256, 5000, 0.95)
    assert COURSE.papers("am")["eie-d32"].network == {"width": 256, "layers": 4}
    config = {
        "recipe": "eie-d32", "batch": "2", "steps": "1", "evaluation": "2", "validation_instances": "2", "size": "6",
    }  # fmt: skip
    done = train("am", (), config, out=tmp_path / "wide", progress="silent")
    file = resolve(str(done.weights), "am", "tsp")
    assert file.manifest.config["width"] // file.manifest.config["heads"] == 32
    assert file.manifest.ours["batch"] == "2; the paper: 256"
    policy: Any = build_path_policy("am", "tsp", **file.manifest.config)
    load_into(policy, file)
    assert len(policy.encoder) == 4
    deeper = train("am", (), config | {"model.layers": "5"}, out=tmp_path / "deep", progress="silent")
    shaped = resolve(str(deeper.weights), "am", "tsp").manifest.config
    assert (shaped["width"], shaped["layers"]) == (256, 5)


def test_what_the_recipe_decides_is_no_option_of_the_model() -> None:
    assignment = Assignment("am", COURSE.recipe("am", {}), options={"normalization": "layer"})
    with pytest.raises(BadInputError, match=r"model\.normalization: choose it with normalization="):
        prepare(assignment)
