"""PENS: what its positional encodings are blind to, and that blocks and tokens do not change results."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import PerDevice
from nco_bench.nn.layers import KERNELS
from nco_bench.solvers.path import pens, pens_geometry
from nco_bench.solvers.path.pens import Pens
from nco_bench.solvers.path.pens_geometry import Geometry, attend_with_distances
from nco_bench.solvers.path.pens_vectors import gaussian_vectors
from nco_bench.solvers.path.policy import PathNodes, path_state

COORDS = torch.rand(2, 14, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ROWS = torch.cat([torch.arange(14), torch.zeros(1, dtype=torch.int64)]).expand(2, -1)


def small(name: str, **options: object) -> Pens:
    torch.manual_seed(2)
    policy = build_path_policy(name, width=32, heads=2, ffn=32, layers=2, **options)
    assert isinstance(policy, Pens)
    return policy.double()


def scores(policy: Pens, coords: Tensor, rows: Tensor = ROWS, *, closed: bool = True) -> Tensor:
    nodes = PathNodes(coords, None, 14)
    with torch.no_grad():
        return policy.scores(path_state(nodes, policy.embed(nodes), rows, closed=closed))


def rotated(coords: Tensor, degrees: float) -> Tensor:
    angle = math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
    return coords @ turn.T


SHIFT = torch.tensor([0.3, -1.7]).double()
MIRROR = torch.tensor([-1.0, 1.0]).double()


@pytest.mark.parametrize(
    ("name", "moved", "blind"),
    [
        ("pens-a", rotated(COORDS, 37) + SHIFT, True),
        ("pens-a", COORDS * MIRROR, True),
        ("pens-a", COORDS * 1.5, False),
        ("pens-r", COORDS + SHIFT, True),
        ("pens-r", rotated(COORDS, 37), False),
        ("pens-ar", COORDS + SHIFT, True),
        ("pens-ar", rotated(COORDS, 37), False),
        ("coordns", COORDS + SHIFT, False),
    ],
)
def test_scores_are_blind_to_just_the_motions_of_the_encoding(name: str, moved: Tensor, blind: bool) -> None:
    policy = small(name)
    difference = (scores(policy, moved) - scores(policy, COORDS)).abs().max()
    assert bool(difference < 1e-6) is blind


@pytest.mark.parametrize("initialisation", ["gaussian", "zero"])
def test_permuting_candidates_permutes_scores(initialisation: str) -> None:
    policy = small("pens-ar", initialisation=initialisation)
    shuffle = torch.randperm(13)
    rows = torch.cat([ROWS[:, :1], ROWS[:, 1:-1][:, shuffle], ROWS[:, -1:]], dim=1)
    torch.testing.assert_close(scores(policy, COORDS, rows), scores(policy, COORDS)[:, shuffle])


def test_blocks_of_queries_compute_the_plain_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """softmax(s q.k - m D) v, written out, against blocks of one, some and all queries, with gradients and without."""
    query, key, value = torch.randn(3, 2, 4, 14, 8, dtype=torch.float64)
    slopes = torch.tensor([10.0, 5.0, 2.5, 1.25]).double()
    bias = slopes[:, None, None] * torch.cdist(COORDS, COORDS)[:, None]
    logits = 0.7 * query @ key.transpose(2, 3) - bias
    padded = torch.arange(14).view(1, 1, 1, -1) < 11
    for real in (None, padded):
        seen = logits if real is None else logits.masked_fill(~real, -torch.inf)
        expected, where = torch.softmax(seen, dim=-1) @ value, Geometry(COORDS, real=real)
        for rows in (1, 5, 2**20):
            size = 2 * 4 * 14 * 8 * rows
            monkeypatch.setattr(pens_geometry, "BIAS_BLOCK_BYTES", PerDevice(size, size))
            monkeypatch.setattr(pens_geometry, "HEAD_ROWS", rows)
            for gradients in (True, False):
                with torch.set_grad_enabled(gradients):
                    ours = attend_with_distances(query, key, value, slopes, where, 0.7)
                torch.testing.assert_close(ours, expected, atol=1e-7, rtol=1e-6)


def test_keeping_biases_does_not_change_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = scores(small("pens-a"), COORDS)
    monkeypatch.setattr(pens_geometry, "BIAS_BLOCK_BYTES", PerDevice(0, 0))
    torch.testing.assert_close(scores(small("pens-a"), COORDS), kept)


def test_scores_without_gradients_are_those_with_them() -> None:
    policy = small("pens-ar")
    nodes = PathNodes(COORDS, None, 14)
    state = path_state(nodes, policy.embed(nodes), ROWS, closed=True)
    learned = policy.scores(state).detach()
    with torch.inference_mode():
        torch.testing.assert_close(policy.scores(state), learned)


@pytest.mark.parametrize("name", ["pens-a", "pens-r", "pens-ar", "coordns"])
@pytest.mark.parametrize("output_projection", [False, True])
@pytest.mark.parametrize(("instances", "quick"), [(2, True), (90, True), (2, False)])
def test_layers_in_place_compute_what_they_do_with_gradients(
    name: str, output_projection: bool, instances: int, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pens, "KERNELS", quick and pens.KERNELS)
    policy = small(name, output_projection=output_projection).float().eval()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    coords = torch.rand(instances, 14, 2)
    nodes = PathNodes(coords, None, 14)
    state = path_state(nodes, policy.embed(nodes), ROWS[:1].expand(instances, -1), closed=True)
    learned = policy.scores(state).detach()
    asked = []
    if KERNELS:
        from nco_bench.nn import compiled_attention

        monkeypatch.setattr(
            compiled_attention, "pays", lambda tokens, *_: asked.append(tokens) or instances == 2
        )
    with torch.inference_mode():
        torch.testing.assert_close(policy.scores(state), learned, atol=2e-4, rtol=1e-4)
    assert bool(asked) is (KERNELS and name in ("pens-a", "pens-ar"))


def test_layers_that_somebody_listens_to_are_called() -> None:
    policy, heard = small("pens-a").float(), []
    policy.layers[0].register_forward_hook(lambda module, given, out: heard.append(out))
    attention = policy.layers[1].attention
    attention.register_forward_pre_hook(lambda module, given: heard.append(given[0]))  # type: ignore[operator]
    listened = scores(policy, COORDS.float())
    assert [one.shape for one in heard] == [(2, 14, 32)] * 2
    torch.testing.assert_close(
        listened, scores(small("pens-a").float(), COORDS.float()), atol=1e-5, rtol=1e-5
    )


def test_slopes_and_frequencies_are_the_published_ones() -> None:
    policy = build_path_policy("pens-ar")
    slopes = [10, 7.0711, 5, 3.5355, 2.5, 1.7678, 1.25, 0.8839, 0.625, 0.4419, 0.3125, 0.2210]
    assert policy.slopes.tolist() == pytest.approx(slopes, abs=1e-4)
    assert policy.frequencies.tolist() == pytest.approx([14, 4.4272, 1.4, 0.4427], abs=1e-4)


def test_trainable_slopes_begin_as_the_fixed_ones_and_are_learned() -> None:
    """Appendix A.3: the authors tried them first."""
    fixed, trainable = small("pens-a"), small("pens-a", trainable_slopes=True)
    torch.testing.assert_close(scores(trainable, COORDS), scores(fixed, COORDS))
    nodes = PathNodes(COORDS, None, 14)
    state = path_state(nodes, trainable.embed(nodes), ROWS, closed=True)
    trainable.scores(state).square().sum().backward()
    slopes = dict(trainable.named_parameters())["slopes"]
    assert slopes.grad is not None
    assert bool((slopes.grad != 0).all())
    assert "slopes" in trainable.state_dict()
    assert "slopes" not in fixed.state_dict()


def test_slopes_that_fall_to_zero_cost_the_penalty() -> None:
    policy = small("pens-a", trainable_slopes=True, slope_penalty=0.5)
    assert float(policy.penalty().detach()) == 0.0  # type: ignore[union-attr]
    with torch.no_grad():
        policy.slopes.mul_(0.0)
    policy.penalty().backward()  # type: ignore[union-attr]
    assert float(policy.penalty().detach()) == 0.5  # type: ignore[union-attr]
    assert bool((policy.slopes.grad < 0).all())  # type: ignore[operator]
    assert small("pens-r", trainable_slopes=True).penalty() is None  # no ALiBi, no slopes


def test_origin_and_destination_in_one_city_make_one_token() -> None:
    """A closed tour of N nodes has N tokens: the scale sees 14, and 15 where the ends differ."""
    seen = []
    policy = small("pens-r")
    policy.logit_scale = lambda context: seen.append(context.tokens) or 1.0  # type: ignore[func-returns-value]
    scores(policy, COORDS)
    scores(policy, COORDS, closed=False)
    assert seen == [14, 15]


def test_node_vectors_are_standard_normal_and_follow_key_and_step() -> None:
    keys = torch.arange(4000)[None]
    vectors = gaussian_vectors(keys, 1, 192)
    assert float(vectors.mean()) == pytest.approx(0, abs=0.01)
    assert float(vectors.std()) == pytest.approx(1, abs=0.01)
    assert float((vectors**4).mean()) == pytest.approx(3, abs=0.06)
    correlation = torch.corrcoef(vectors[0].T).fill_diagonal_(0)
    assert float(correlation.abs().max()) < 0.09  # 18k pairs of 4000 samples: five standard errors
    torch.testing.assert_close(gaussian_vectors(keys.flip(1), 1, 192).flip(1), vectors)
    assert float((gaussian_vectors(keys, 2, 192) * vectors).mean()) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("step", [0, 1, 99])
def test_vectors_of_the_compiled_pass_are_the_same_bits(step: int) -> None:
    quick = pytest.importorskip("nco_bench.solvers.path.pens_quick")
    keys = torch.randint(-(2**63), 2**63 - 1, (5, 23), generator=torch.Generator().manual_seed(step))
    assert torch.equal(quick.gaussian_vectors(keys, step, 192), gaussian_vectors(keys, step, 192))


def test_noise_is_drawn_per_step_or_per_solve_and_by_the_seed() -> None:
    nodes = PathNodes(COORDS, None, 14)
    fresh, kept = small("pens-a"), small("pens-a", noise="solve")
    shorter = ROWS[:, [0, *range(2, 15)]]

    def vectors(policy: Pens, rows: Tensor) -> Tensor:
        return policy._vectors(path_state(nodes, policy.embed(nodes), rows))

    torch.testing.assert_close(vectors(kept, shorter)[:, 1:], vectors(kept, ROWS)[:, 2:])
    assert (vectors(fresh, shorter)[:, 1:] - vectors(fresh, ROWS)[:, 2:]).abs().max() > 0.1
    before = vectors(fresh, ROWS)
    fresh.reseed(1)
    assert (vectors(fresh, ROWS) - before).abs().max() > 0.1
    fresh.reseed(0)
    torch.testing.assert_close(vectors(fresh, ROWS), before)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("name", ["pens-a", "pens-ar"])
def test_flex_attention_computes_what_the_blocks_do(name: str) -> None:
    policy = small(name)
    expected = scores(policy, COORDS)
    policy.flex = True
    torch.testing.assert_close(scores(policy, COORDS), expected, rtol=1e-4, atol=1e-5)
