"""Logit scales: published values, and their effect on every model that takes them."""

from __future__ import annotations

import pytest
import torch

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.logit_scale import ScaleContext, logit_scale, resolved
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import path_state
from nco_bench.solvers.path.problem import tsp_problem


@pytest.mark.parametrize(
    ("name", "context", "value"),
    [
        ("ssmax", ScaleContext(100, 1000, 16), 4.6151),  # PENS, N = 100
        ("ssmax", ScaleContext(10_000, 10_000, 16), 9.2104),
        ("log-ratio", ScaleContext(5, 1000, 16), 1.5),  # decoder scaling: 1.5 at N = 1000, whatever is left
        ("esf", ScaleContext(250, 1000, 16), 1.199),  # ESF, base 100
        ("esf-static", ScaleContext(250, 10_000, 16), 2.0),
        ("ln-n-over-d", ScaleContext(100, 100, 16), 4.6052 / 16 * 4),  # on logits divided by sqrt(16)
        ("ln-n-over-d", ScaleContext(100, 100, 16, divisor=1.0), 4.6052 / 16),  # on BQ-NCO's, which are not
        ("none", ScaleContext(7, 7, 16), 1.0),
    ],
)
def test_published_values(name: str, context: ScaleContext, value: float) -> None:
    assert logit_scale(name)(context) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(
    "name", ["lehd", "bq", "sigd", "sigd-lehd", "sit", "pens-a", "pens-r", "decoder-6x128"]
)
def test_any_scale_works_with_any_model_and_a_learned_one_gets_gradients(name: str) -> None:
    torch.manual_seed(0)
    factor = torch.nn.Parameter(torch.tensor(1.3))
    policy = build_path_policy(name, logit_scale=lambda context: factor)
    with torch.no_grad():
        for key, parameter in policy.named_parameters():
            if "alpha" in key or (key.endswith("weight") and parameter.numel() == 1):
                parameter.fill_(0.5)
    problem = tsp_problem(torch.rand(2, 12, 2))
    state = path_state(problem.nodes, policy.embed(problem.nodes), problem.rows, closed=True)
    learned = policy.scores(state)
    learned.logsumexp(1).sum().backward()
    assert factor.grad is not None
    assert float(factor.grad.abs()) > 0
    policy.logit_scale = lambda context: 1.3
    torch.testing.assert_close(policy.scores(state).detach(), learned.detach())
    policy.logit_scale = logit_scale("ln-n-over-d")
    assert (policy.scores(state) - learned).abs().max() > 1e-6
    assert sorted(greedy(policy, problem).order[0].tolist()) == list(range(1, 12))


@pytest.mark.parametrize(
    ("text", "encoder", "glimpse"),
    [
        (
            "ln-n-over-d",
            1.2,
            1.0,
        ),  # EIE, Equation 2: the scale of self-attention; ln 122 = 4.8 = 1.2 sqrt(16)
        ("ln-n-over-d:at=glimpse", 1.0, 1.2),
        ("ln-n-over-d:at=both", 1.2, 1.2),
        ("ln-n-over-sqrt-d", 4.8, 1.0),
        ("ssmax", 4.81, 4.81),  # PENS scales all attention
        ("ssmax:at=encoder", 4.81, 1.0),
    ],
)
def test_a_scale_acts_where_it_is_told_to(text: str, encoder: float, glimpse: float) -> None:
    scale = logit_scale(text)
    found = [scale(ScaleContext(122, 122, 16, place=place)) for place in ("encoder", "glimpse")]
    assert found == pytest.approx([encoder, glimpse], abs=5e-3)


@pytest.mark.parametrize(
    ("text", "glimpse", "kept"),
    [
        ("eie", True, "eie:at=encoder"),  # a bare eie is in records of versions that scaled both
        ("eie:at=both", True, "eie:at=both"),
        ("eie", False, "eie"),  # self-attention only: its numbers did not move, nor do its records' keys
        ("none", True, "none"),
        ("none:at=glimpse", True, "none"),
        ("ssmax", True, "ssmax"),
        ("ssmax:at=both", True, "ssmax"),
        ("ssmax:at=glimpse", True, "ssmax:at=glimpse"),
    ],
)
def test_records_keep_where_a_scale_acts(text: str, glimpse: bool, kept: str) -> None:
    assert resolved(text, glimpse=glimpse, model="am") == kept


def test_an_impossible_place_is_refused_in_one_line() -> None:
    with pytest.raises(BadInputError, match=r"lehd: --logit-scale eie:at=glimpse: .*leave :at=glimpse out"):
        build_path_policy("lehd", logit_scale="eie:at=glimpse")
    with pytest.raises(UnknownNameError, match=r"place of logit scale eie .decoder.*encoder"):
        logit_scale("eie:at=decoder")
    with pytest.raises(BadInputError, match=r"expected NAME or NAME:at=encoder\|glimpse\|both"):
        logit_scale("eie:encoder")
