"""Long-sightedness, features and attention against policies and layers whose answer is known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nco_bench.datasets.dataset import Dataset, Reference  # noqa: E402
from nco_bench.datasets.load import Places, load_dataset  # noqa: E402
from nco_bench.errors import BadInputError  # noqa: E402
from nco_bench.nn.build import build_path_policy  # noqa: E402
from nco_bench.papers import representations  # noqa: E402
from nco_bench.papers.attention import draw  # noqa: E402
from nco_bench.papers.representations import (  # noqa: E402
    _logits_of_first_token,
    attention_from_origin,
    candidate_features,
    led_along,
    sightedness_of,
)
from nco_bench.reports.figures.networks import cosine_similarity, principal_components, wilson  # noqa: E402
from nco_bench.solvers.path import pens  # noqa: E402
from nco_bench.solvers.path.policy import PathNodes, PathState  # noqa: E402


class Nearest:
    """A policy that always prefers the nearest candidate."""

    def embed(self, nodes: PathNodes) -> torch.Tensor:
        return nodes.coords

    def scores(self, state: PathState) -> torch.Tensor:
        return -(state.coords[:, 1:-1] - state.coords[:, :1]).norm(dim=2)


class Farthest(Nearest):
    """A policy that always prefers the farthest candidate."""

    def scores(self, state: PathState) -> torch.Tensor:
        return -super().scores(state)


# Cities on a line at 0, 1, 3, 6, 10; the tour 0 2 1 3 4 goes to the second nearest first, then to the nearest ones.
LINE = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [6.0, 0.0], [10.0, 0.0]]])
TOUR = torch.tensor([[0, 2, 1, 3, 4]])


def test_nearest_neighbour_is_right_exactly_where_the_nearest_is_next() -> None:
    """Decisions: 2 to 1 (rank 1), 1 to 3 (rank 1); that at 0 has two right answers, and the last node is none."""
    found = sightedness_of("nearest", Nearest(), LINE, TOUR)
    assert found.cases == (2, 0, 0, 0, 0, 0, 0, 0, 0)
    assert found.hits == (2, 0, 0, 0, 0, 0, 0, 0, 0)
    assert found.rates[0] == 100.0


def test_asking_only_beyond_a_rank_counts_the_same_decisions_there() -> None:
    rng = np.random.default_rng(2)
    coords = torch.from_numpy(rng.random((6, 20, 2), dtype=np.float32))
    tours = torch.from_numpy(np.stack([rng.permutation(20) for _ in range(6)]))
    everywhere, far = (sightedness_of("nearest", Farthest(), coords, tours, nearest=k) for k in (0, 5))
    assert far.cases == (0,) * 5 + everywhere.cases[5:]
    assert far.hits == (0,) * 5 + everywhere.hits[5:]
    assert 0 < sum(far.hits) < sum(far.cases)


def test_a_tour_and_its_reverse_count_alike() -> None:
    """On a circle with one gap each city's nearest is the next in one direction and, at the start only, in the other."""
    angles = torch.tensor([0.0, 0.9, 1.9, 3.0, 4.2])  # the way back from 4.2 to 6.28 is the longest
    circle = torch.stack([angles.cos(), angles.sin()], dim=1)[None]
    forwards = sightedness_of("nearest", Nearest(), circle, torch.tensor([[0, 1, 2, 3, 4]]))
    backwards = sightedness_of("nearest", Nearest(), circle, torch.tensor([[0, 4, 3, 2, 1]]))
    assert sum(forwards.hits) == sum(forwards.cases) == sum(backwards.hits) == sum(backwards.cases) == 2


def test_the_position_of_the_right_node_gives_nothing_away() -> None:
    states = list(led_along(Nearest(), LINE, TOUR))
    assert [int(led.best[0]) for led in states] == [0, 0]
    assert states[0].state.coords[0, :, 0].tolist() == [3.0, 1.0, 6.0, 10.0, 0.0]
    assert not any(led.state.closed for led in states)


def test_features_of_the_first_step_are_refused_since_two_nodes_are_right() -> None:
    dataset = load_dataset("tsp20:count=1", Places.from_environment())
    tours = [Reference(cost=1.0, solver="order", solution=np.arange(20))]
    with pytest.raises(BadInputError, match=r"--step 0: expected 1 to 17; .* both neighbours"):
        candidate_features("decoder-6x128:weights=random", replace(dataset, references=tours), 0, 0)


def with_tours(name: str) -> Dataset:
    """Instances whose reference is the order of their nodes."""
    dataset = load_dataset(name, Places.from_environment())
    tours = [Reference(cost=1.0, solver="order", solution=np.arange(one.n)) for one in dataset.instances]
    return replace(dataset, references=tours)


def test_features_are_what_the_last_layer_gives_the_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder's scores come from within its last layer where no gradients are asked for: there was nothing to show."""
    torch.manual_seed(5)
    policy: Any = build_path_policy("decoder-6x128")
    monkeypatch.setattr(representations, "load_policy", lambda solver: (solver, policy))
    found = candidate_features("decoder-6x128", with_tours("tsp20:count=1"), 0, 3)
    assert found.values.shape == (16, 128)
    scores = policy.score(torch.from_numpy(found.values).float())
    assert int(scores.argmax()) == found.picked
    assert float(scores.detach().std()) > 0


def test_features_of_a_network_whose_last_layer_scores_are_refused() -> None:
    with pytest.raises(BadInputError, match="last layer gives scores and no features"):
        candidate_features("bq:weights=random", with_tours("tsp20:count=1"), 0, 3)


def test_missing_tours_are_asked_for_as_far_as_they_are_needed() -> None:
    dataset = load_dataset("tsp20:count=9", Places.from_environment())
    with pytest.raises(BadInputError, match="'nco-bench reference tsp20:count=9 --limit 1 --solver lkh3'"):
        candidate_features("decoder-6x128:weights=random", replace(dataset, references=[None] * 9), 0, 3)


@pytest.mark.parametrize("scale_bias", [False, True])
def test_attention_logits_give_the_layers_own_output(scale_bias: bool) -> None:
    """With one head, softmax of the logits over the values must be what the layer's attention returns."""
    torch.manual_seed(3)
    config = pens.PensConfig(width=16, heads=1, scale_bias=scale_bias)
    layer = pens.Attention(config)
    x, coords = torch.randn(1, 7, 16), torch.rand(1, 7, 2)
    geometry = pens.Geometry(coords, slopes=torch.tensor([10.0]))
    with torch.inference_mode():
        logits = _logits_of_first_token(layer, x, geometry, 1.7)
        value = layer.qkv(x)[0, :, 32:]
        expected = layer(x, geometry, 1.7)[0, 0]
        found = layer.out(torch.softmax(logits, dim=0) @ value)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_principal_components_of_points_on_a_line() -> None:
    values = np.outer([-1.0, 0.0, 1.0], [3.0, 4.0])
    points, share = principal_components(values)
    assert np.abs(points[:, 0]) == pytest.approx([5.0, 0.0, 5.0])
    assert share == pytest.approx((1.0, 0.0))


def test_cosines_by_hand() -> None:
    found = cosine_similarity(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]))
    assert found[0] == pytest.approx([1.0, 2**-0.5, 0.0])


def test_wilson_interval_of_8_in_10() -> None:
    """Published example values: 0.4902 to 0.9433."""
    low, high = wilson(np.array([8]), np.array([10]))
    assert (float(low[0]), float(high[0])) == (
        pytest.approx(0.4902, abs=1e-4),
        pytest.approx(0.9433, abs=1e-4),
    )


def test_attention_is_drawn_of_a_thousand_cities_unless_asked_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's 10,000 cities keep a processor busy for hours."""
    pytest.importorskip("matplotlib")
    places, drawn = Places(tmp_path), []

    def noted(solver: str, dataset: Dataset, *rest: Any) -> Any:
        drawn.append((len(dataset), dataset.sizes))
        return attention_from_origin(solver, dataset, *rest)

    monkeypatch.setattr("nco_bench.papers.representations.attention_from_origin", noted)
    draw("pens-a", data=None, instance=0, scales=[1.0], places=places, out=tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert drawn == [(1, (1000, 1000))]


def test_an_instance_that_is_not_there_and_a_scale_that_is_no_number_are_refused(tmp_path: Path) -> None:
    """The first was a traceback from PyTorch, the second a picture titled "scale nan"."""
    dataset = load_dataset("tsp6:count=2", Places(tmp_path))
    with pytest.raises(BadInputError, match=r"--instance 3: .* holds instances 1\.\.2"):
        candidate_features("decoder-6x128:weights=random", dataset, 2, 1)
    given: dict[str, Any] = {"data": "tsp10:count=2", "places": Places(tmp_path), "out": tmp_path / "x.png"}
    with pytest.raises(BadInputError, match=r"--instance 3: .* holds instances 1\.\.2"):
        draw("pens-a:weights=random", instance=2, scales=[1.0], **given)
    with pytest.raises(BadInputError, match="--scale 1, nan: expected finite numbers"):
        draw("pens-a:weights=random", instance=0, scales=[1.0, float("nan")], **given)
    assert list(tmp_path.glob("*.png")) == []
