"""EIE: the exact entropy, the learned curve, and what the scales do to policies."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.eie import EieConfig, build, curve, integrate, learned_scale, requr, sampled_entropy
from nco_bench.nn.entropy import exact_scale, expected_entropy
from nco_bench.nn.logit_scale import ScaleContext, logit_scale
from nco_bench.solvers.stepwise.problem import RoutingProblem
from nco_bench.solvers.stepwise.steps import begin
from nco_bench.training.learners.eie import departures
from nco_bench.weights.store import SHIPPED, verify


@pytest.mark.parametrize(
    ("n", "scale", "entropy"), [(100, 0.25, 4.1254), (1600, 0.702, 4.17), (1600, 0.25, 6.88)]
)
def test_entropy_at_head_width_16_is_that_of_independent_samples(
    n: int, scale: float, entropy: float
) -> None:
    # Monte-Carlo values of the specification, three and four digits.
    assert expected_entropy(n, scale, 16) == pytest.approx(entropy, abs=0.01 if n > 100 else 0.0005)


@pytest.mark.parametrize(("n", "scale", "head_dim"), [(2, 0.5, 16), (40, 0.3, 1), (300, 1.5, 8)])
def test_entropy_is_the_mean_over_drawn_queries_and_keys(n: int, scale: float, head_dim: int) -> None:
    rng = np.random.default_rng(0)
    query, key = rng.standard_normal((2000, 1, head_dim)), rng.standard_normal((2000, head_dim, n))
    logits = scale * (query @ key)[:, 0]
    weight = np.exp(logits - logits.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    rows = -(weight * np.log(np.maximum(weight, 1e-300))).sum(axis=1)
    error = rows.std() / math.sqrt(len(rows))
    assert abs(expected_entropy(n, scale, head_dim) - rows.mean()) < 4 * error


def test_entropy_without_scale_is_that_of_equal_weights_and_one_key_has_none() -> None:
    assert expected_entropy(1600, 0.0, 16) == pytest.approx(math.log(1600), abs=1e-12)
    assert expected_entropy(1, 0.7, 16) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("head_dim", "size", "exact"),
    [(16, 100, (0.400, 0.516, 0.617, 0.709)), (32, 120, (0.281, 0.360, 0.428, 0.491))],
)
def test_exact_scale_is_that_of_the_specification_and_keeps_the_entropy(
    head_dim: int, size: int, exact: tuple[float, ...]
) -> None:
    goal = expected_entropy(size, head_dim**-0.5, head_dim)
    assert exact_scale(size, head_dim, size) == pytest.approx(head_dim**-0.5, rel=1e-15)
    for doubling, expected in enumerate(exact, start=1):
        found = exact_scale(size * 2**doubling, head_dim, size)
        assert found == pytest.approx(expected, abs=0.003)  # the spread of the specification's estimators
        assert expected_entropy(size * 2**doubling, found, head_dim) == pytest.approx(goal, abs=1e-7)


def test_gauss_rule_gives_the_published_integrals_of_one_over_x() -> None:
    ends = torch.tensor([200.0, 400.0, 800.0, 1600.0], dtype=torch.float64)
    expected = [0.693147, 1.386261, 2.077722, 2.752051]
    assert integrate(lambda x: 1 / x, torch.tensor(100.0), ends).tolist() == pytest.approx(expected, abs=1e-6)


def test_requr_is_a_parabola_and_then_a_line() -> None:
    assert requr(torch.tensor([-1.0, 0.3, 0.5, 2.0])).tolist() == pytest.approx([0, 0.09, 0.25, 1.75])


def test_the_network_has_the_paper_s_691_weights() -> None:
    assert sum(p.numel() for p in build(EieConfig()).parameters()) == 691


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("eie-*.safetensors")), ids=lambda path: path.stem)
def test_every_learned_curve_rises_strictly_from_the_training_scale_and_stays_near_the_exact_one(
    path: Path,
) -> None:
    file = verify(path)
    config = EieConfig(**file.manifest.config)
    network = curve(config.head_dim, config.training_size)
    lengths = torch.arange(config.training_size, config.largest_size + 1, dtype=torch.float64)
    with torch.inference_mode():
        scales = network(lengths)
    assert float(scales[0]) == pytest.approx(config.head_dim**-0.5, rel=1e-15)
    assert bool((scales.diff() > 0).all())
    assert float(departures(network, 40).abs().max()) < 0.02
    assert file.manifest.parameters == 691


def test_a_curve_first_used_in_inference_mode_serves_outside_of_it_too() -> None:
    curve.cache_clear()
    learned_scale.cache_clear()
    with torch.inference_mode():
        learned_scale(400.0, 16, 100)
    network = curve(16, 100)
    assert not any(p.is_inference() for p in network.parameters())
    network(torch.tensor([400.0], dtype=torch.float64)).sum().backward()
    network.zero_grad()


def test_sampled_entropy_and_its_gradient_agree_with_the_exact_ones() -> None:
    lengths = torch.full((400,), 200)
    scale = torch.full((400,), 0.4, requires_grad=True)
    found = sampled_entropy(lengths, scale, 16, 8, torch.Generator().manual_seed(2)).mean()
    found.backward()
    assert scale.grad is not None
    assert float(found.detach()) == pytest.approx(expected_entropy(200, 0.4, 16), abs=0.03)
    slope = (expected_entropy(200, 0.401, 16) - expected_entropy(200, 0.399, 16)) / 0.002
    assert float(scale.grad.sum()) == pytest.approx(slope, rel=0.03)


def test_the_four_factors_of_the_paper_at_400_keys() -> None:
    context = ScaleContext(400, 400, 16)
    found = {
        name: logit_scale(name)(context) / 4 for name in ("none", "ln-n-over-d", "ln-n-over-sqrt-d", "eie")
    }
    assert found["none"] == 0.25
    assert found["ln-n-over-d"] == pytest.approx(5.9915 / 16, abs=1e-5)
    assert found["ln-n-over-sqrt-d"] == pytest.approx(5.9915 / 4, abs=1e-4)
    assert found["eie"] == pytest.approx(0.516, rel=0.02)


@pytest.mark.parametrize("scale", ["eie", "eie-exact"])
def test_a_scale_below_the_training_size_is_refused_in_one_line(scale: str) -> None:
    with pytest.raises(
        BadInputError, match=r"n=50, below the training size N=100.*--logit-scale none"
    ) as error:
        logit_scale(scale)(ScaleContext(50, 50, 16))
    assert "\n" not in str(error.value)


def test_a_shrinking_sub_problem_of_a_large_instance_gets_no_scale_below_the_training_size() -> None:
    assert logit_scale("eie-exact")(ScaleContext(30, 400, 16)) == 1.0
    assert logit_scale("eie-exact")(ScaleContext(200, 400, 16)) == pytest.approx(
        4 * exact_scale(200, 16, 100)
    )


def test_a_length_beyond_the_curve_and_a_missing_curve_name_the_exact_scale() -> None:
    with pytest.raises(BadInputError, match=r"ends at n=1600, asked for n=1601.*eie-exact"):
        learned_scale(1601, 16, 100)
    with pytest.raises(BadWeightsError, match=r"no learned curve for heads of width 24.*eie-exact"):
        learned_scale(200, 24, 100)


def test_an_unknown_scale_is_told_of_the_lazy_ones_too() -> None:
    with pytest.raises(UnknownNameError, match="eie-exact"):
        logit_scale("eie-exakt")


@pytest.mark.parametrize(
    ("model", "problem"), [("am", "tsp"), ("am", "cvrp"), ("pomo", "tsp"), ("elg", "tsp")]
)
def test_eie_changes_no_bit_at_the_training_size_and_much_beyond(model: str, problem: str) -> None:
    torch.manual_seed(0)
    plain: Any = build_path_policy(model, problem)
    scaled: Any = build_path_policy(model, problem, logit_scale="eie")
    unscaled: Any = build_path_policy(model, problem, logit_scale="none")
    for policy in (scaled, unscaled):
        policy.load_state_dict(plain.state_dict())
    for size, same in ((100, True), (150, False)):
        instance = _instance(problem, size)
        with torch.inference_mode():
            state = begin(instance, 1).state
            if state.current is None and plain.needs_start:
                first = torch.zeros(1, 1, dtype=torch.int64)
                state = type(state)(first, first, state.blocked)
            logits = [p.logits(p.encode(instance.nodes()), state) for p in (plain, unscaled, scaled)]
        assert torch.equal(logits[0], logits[1])
        assert torch.equal(logits[0], logits[2]) is same


@pytest.mark.parametrize(
    ("place", "encoder", "glimpse"), [("", 1, 0), (":at=glimpse", 0, 1), (":at=both", 1, 1)]
)
def test_lambda_is_the_factor_of_q_k_in_the_self_attention_of_equations_1_to_4(
    place: str, encoder: int, glimpse: int
) -> None:
    torch.manual_seed(0)
    plain: Any = build_path_policy("am", "tsp", normalization="layer")
    scaled: Any = build_path_policy("am", "tsp", normalization="layer", logit_scale=f"eie{place}")
    scaled.load_state_dict(plain.state_dict())
    nodes = _instance("tsp", 400).nodes()
    factor = learned_scale(400, 16, 100)  # 0.516 in place of 0.25
    with torch.inference_mode():
        x = plain.embed(nodes)
        for layer in plain.encoder:
            x = _layer_by_equations(layer, x, factor if encoder else 0.25)
        # The current node's part of the glimpse's query (Kool et al., section 3.2).
        query = (factor if glimpse else 0.25) * (x @ plain.step_projection.weight[:, 128:].T)
        found = scaled.encode(nodes)
    torch.testing.assert_close(found.current, query, rtol=1e-4, atol=1e-5)


def _layer_by_equations(layer: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
    heads = []
    for q, k, v in zip(*(part.split(16) for part in layer.qkv.weight.split(128)), strict=True):
        weights = torch.softmax(factor * (x @ q.T) @ (x @ k.T).transpose(1, 2), dim=2)  # Equation 2
        heads.append(weights @ (x @ v.T))
    x = layer.norm_attention(x + torch.cat(heads, dim=2) @ layer.out.weight.T)  # Equation 4
    return layer.norm_feed_forward(x + layer.feed_forward(x))


def test_attend2pack_scales_its_self_attention_and_leaves_the_glimpse_unless_told() -> None:
    torch.manual_seed(0)
    policies: dict[str, Any] = {
        text: build_path_policy("attend2pack", "bpp3d", logit_scale=text)
        for text in ("none", "eie", "eie:at=glimpse", "eie:at=both", "ln-n-over-d")
    }
    for policy in policies.values():
        policy.load_state_dict(policies["none"].state_dict())
    sides = torch.randint(10, 51, (1, 200, 3)).sort(dim=2).values
    with torch.inference_mode():
        found = {text: policy.encode(sides) for text, policy in policies.items()}
    boxes, keys = {t: e.boxes for t, e in found.items()}, {t: e.keys for t, e in found.items()}
    factor = 4 * learned_scale(200, 16, 100)
    assert torch.equal(boxes["eie:at=glimpse"], boxes["none"])
    torch.testing.assert_close(keys["eie:at=glimpse"], factor * keys["none"])
    assert torch.equal(boxes["eie:at=both"], boxes["eie"])
    torch.testing.assert_close(keys["eie:at=both"], factor * keys["eie"])
    assert float((boxes["eie"] - boxes["none"]).abs().max()) > 1e-4
    assert float((boxes["ln-n-over-d"] - boxes["none"]).abs().max()) > 1e-4


def _instance(problem: str, size: int) -> RoutingProblem:
    from nco_bench.training.learners.fresh_instances import FreshInstances

    return FreshInstances(problem, size, 10.0, "unit").draw(1, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["lehd", "bq", "sigd", "pens-a", "decoder-6x128"])
def test_path_models_take_the_learned_scale(name: str) -> None:
    from nco_bench.solvers.path.policy import PathNodes, path_state

    torch.manual_seed(0)
    policies: list[Any] = [build_path_policy(name, logit_scale=scale) for scale in ("none", "eie")]
    with torch.no_grad():
        for key, parameter in policies[0].named_parameters():
            if "alpha" in key or (key.endswith("weight") and parameter.numel() == 1):
                parameter.fill_(0.5)
    policies[1].load_state_dict(policies[0].state_dict())
    coords = torch.rand(1, 150, 2)
    rows = torch.arange(150)[None]
    scores = []
    for policy in policies:
        nodes = PathNodes(coords, None, 150)
        with torch.inference_mode():
            scores.append(policy.scores(path_state(nodes, policy.embed(nodes), rows, closed=True)))
    assert float((scores[0] - scores[1]).abs().max()) > 1e-4
