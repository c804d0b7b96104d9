"""GLOP and H-TSP: official outputs, published sizes, what their parts compute, against calculations by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.nn.build import count_parameters
from nco_bench.parity import check_fixture
from nco_bench.solvers.divide.glop import GlopConfig, lengths_of
from nco_bench.solvers.divide.glop import build as build_glop
from nco_bench.solvers.divide.glop_routes import partition_graph
from nco_bench.solvers.divide.htsp import Htsp, HtspConfig, UpperEncoder
from nco_bench.solvers.divide.htsp import build as build_htsp
from nco_bench.solvers.divide.htsp_episode import (
    Episode,
    Sizes,
    begin,
    construct,
    fragment_at,
    improve,
    nearest_lists,
    replace_stretch,
    state_of,
)
from nco_bench.solvers.divide.htsp_paths import path_lengths, path_tours, solve_paths


@pytest.mark.parametrize("name", ["glop-tsp", "glop-cvrp", "htsp-tsp"])
def test_ours_computes_what_the_official_code_computes(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.details["failed"] == []
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


def test_the_check_does_not_hang_on_the_number_of_threads(official: Callable[[str], Path]) -> None:
    """Where a test before had left torch three threads, GLOP's partition was 1.3e-4 off."""
    before = torch.get_num_threads()
    alone = check_fixture(official("glop-cvrp")).max_relative_error
    torch.set_num_threads(3)
    try:
        assert check_fixture(official("glop-cvrp")).max_relative_error == alone
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("glop-tsp", "reviser10.project_out.weight"),
        ("glop-cvrp", "par_net_heu.lins.0.weight"),
        ("htsp-tsp", "low_level_model.decoder.Wq_target.weight"),
    ],
)
def test_a_changed_weight_fails_the_check(shared: Path, tmp_path: Path, name: str, key: str) -> None:
    tensors = load_file(shared / "parity" / f"{name}.safetensors")
    tensors[f"state_dict.{key}"][0, 0] += 1.0
    save_file(tensors, tmp_path / f"{name}.safetensors")
    (tmp_path / f"{name}.json").write_text((shared / "parity" / f"{name}.json").read_text())
    assert not check_fixture(tmp_path / f"{name}.safetensors").ok


def test_parameters_are_those_of_the_state_dicts_that_the_authors_describe() -> None:
    # Spec of a reviser: placeholder 256, input 384, six layers of 4 x 128 x 128 + 2 x 128 x 512 + 512 + 128 + 2 x 256,
    # projections 128 x (384 + 128 + 256 + 128).
    layer = 4 * 128 * 128 + 2 * 128 * 512 + 512 + 128 + 4 * 128
    reviser = 256 + 3 * 128 + 6 * layer + 128 * (384 + 128 + 256 + 128)
    assert count_parameters(build_glop(GlopConfig())) == 4 * reviser
    # Partition: 3 + 2 inputs, twelve layers of five maps and two norms, a head of 48-48-48-1.
    partition = (3 + 1) * 48 + (2 + 1) * 48 + 12 * (5 * 49 * 48 + 4 * 48) + 2 * 49 * 48 + 49
    assert count_parameters(build_glop(GlopConfig("cvrp", "20"))) == reviser + partition


def test_lengths_are_whole_numbers_each_once() -> None:
    assert lengths_of("100,50-20") == [100, 50, 20]
    for wrong in ("", "100,,20", "20,20", "3", "10.5", "-20"):
        with pytest.raises(Exception, match="lengths="):
            lengths_of(wrong)


def small() -> Htsp:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return build_htsp(HtspConfig("tsp", 8, 8, 8, 16, 2, 16, 2)).eval()


def random_cities(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 2)).astype(np.float32)


def test_nearest_lists_are_those_of_the_sorted_distances() -> None:
    coords = random_cities(700)
    exact = np.linalg.norm(coords[:, None].astype(float) - coords[None], axis=2)
    np.fill_diagonal(exact, np.inf)
    assert np.array_equal(nearest_lists(coords, 12), np.argsort(exact, axis=1)[:, :12])
    # All at one point: lower indices first, never the city itself.
    assert nearest_lists(np.zeros((4, 2), dtype=np.float32), 2).tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]


def test_the_state_holds_neighbours_in_the_tour_and_who_can_still_grow() -> None:
    coords = np.array([[0, 0], [0.1, 0], [0.2, 0], [0.9, 0.9]], dtype=np.float32)
    episode = Episode(coords, nearest_lists(coords, 1), np.array([0, 1, 2]))
    expected = np.zeros((4, 8), dtype=np.float32)
    expected[:, :2] = coords
    expected[:3, 2] = 1  # nobody's only neighbour is city 3: none is available
    expected[:3, 4] = [0.1, 0.2, 0]
    expected[:3, 6] = [0.2, 0, 0.1]
    assert np.array_equal(state_of(episode), expected)


def line(count: int) -> np.ndarray:
    return np.stack([np.arange(count) / count, np.zeros(count)], axis=1).astype(np.float32)


def test_a_fragment_is_a_stretch_around_the_anchor_with_new_cities_inside() -> None:
    coords = line(10)
    episode = Episode(coords, nearest_lists(coords, 2), np.array([0, 1, 2, 3]))
    found = fragment_at(episode, np.array([1.0, -1.0]), Sizes(5, 2, 2))
    # The point is (1, 0): city 9 is nearest to it, 3 is the tour's city nearest to that, 4 the free one nearest to 3. Three
    # of the tour stay: one before the anchor, the anchor, the one after it.
    assert found.anchor == 3
    assert found.new.tolist() == [4, 5]
    assert found.cities.tolist() == [2, 4, 5, 3, 0]
    replace_stretch(episode, found.cities)
    assert episode.tour.tolist() == [1, 2, 4, 5, 3, 0]
    episode.tour = np.arange(10)
    replace_stretch(episode, np.array([3, 5, 4, 6]))
    assert episode.tour.tolist() == [0, 1, 2, 3, 5, 4, 6, 7, 8, 9]


def test_paths_keep_both_ends_together_and_lead_from_one_to_the_other() -> None:
    lower, points = small().lower, torch.rand(3, 9, 2, generator=torch.Generator().manual_seed(0))
    source, target = torch.tensor([0, 4, 8]), torch.tensor([8, 2, 0])
    with torch.inference_mode():
        tours = path_tours(lower, points, source, target, torch.arange(9)).tours
        order, length = solve_paths(lower, points)
    assert torch.equal(tours.sort(dim=2).values, torch.arange(9).expand(3, 9, -1))
    assert torch.equal(tours[:, :, 0], torch.arange(9).expand(3, -1))
    for row in range(3):
        at = [(t == source[row]).nonzero().item() - (t == target[row]).nonzero().item() for t in tours[row]]
        assert all(abs(gap) in (1, 8) for gap in at)
    assert order[:, 0].tolist() == [0, 0, 0]
    assert order[:, -1].tolist() == [8, 8, 8]
    assert torch.equal(order.sort(dim=1).values, torch.arange(9).expand(3, -1))
    # Square 0 1 2 3 of side 1: the path 0 - 1 - 2 - 3 is 3 long, the tour without its edge 3 - 0.
    square = torch.tensor([[[0.0, 0], [0, 1], [1, 1], [1, 0]]])
    ends = torch.tensor([0]), torch.tensor([3])
    assert path_lengths(square, torch.tensor([[[0, 1, 2, 3]]]), *ends).item() == 3
    assert bool((length > 0).all())


@pytest.mark.parametrize("kind", ["uniform", "two far clusters", "all at one point", "few"])
def test_episodes_end_in_tours(kind: str) -> None:
    """In two clusters the first search finds fewer cities than a fragment holds."""
    coords = random_cities(6 if kind == "few" else 40)
    if kind == "two far clusters":
        coords = (coords * 0.01 + (np.arange(40) % 2)[:, None] * 0.9).astype(np.float32)
    if kind == "all at one point":
        coords[:] = 1.0
    policy, sizes = small(), Sizes(30, 20, 4).fit(len(coords))
    episodes = [begin(coords, sizes.neighbours)]
    with torch.inference_mode():
        construct(policy, episodes, sizes)
        built = episodes[0].length()
        tours = improve(policy, episodes, sizes, 3, [np.random.default_rng(0)])
    assert sorted(tours[0].tolist()) == list(range(len(coords)))
    best = Episode(coords, episodes[0].near, tours[0])
    assert best.length() <= built


def test_the_image_has_x_along_its_first_axis_and_takes_the_largest_of_a_pixel() -> None:
    encoder = UpperEncoder(2)
    images: list[torch.Tensor] = []
    encoder.cnn.register_forward_pre_hook(lambda module, inputs: images.append(inputs[0]))
    with torch.no_grad():
        encoder.input_transform[0].weight.zero_()
        encoder.input_transform[0].weight[0, 0] = 1.0  # the x coordinate, normalised over the cities
        state = torch.zeros(1, 3, 8)
        state[0, :, :2] = torch.tensor([[0.031, 0.990], [0.039, 0.999], [0.0, 0.0]])
        encoder(state)
    (image,) = images
    assert image.nonzero().tolist() == [[0, 0, 3, 99]]
    x = torch.tensor([0.031, 0.039, 0.0], dtype=torch.float64)
    expected = (0.039 - x.mean()) / (x.var(unbiased=False) + 1e-3).sqrt()
    assert image[0, 0, 3, 99].item() == pytest.approx(expected.item(), rel=1e-4)


def test_features_for_cvrplib_are_distances_and_shifted_cosines() -> None:
    """Written out on whole matrices from the official features: neighbours by the sum, edges of (1 - distance, cosine)."""
    rng = np.random.default_rng(3)
    coords, demand, k = rng.random((700, 2)), rng.integers(1, 10, 700), 30  # more rows than one block
    graph = partition_graph(torch.from_numpy(coords).float(), torch.from_numpy(demand), 50, k, library=True)
    away = coords - coords[0]
    length = np.sqrt((away**2).sum(1))
    cosine = away @ away.T / (np.outer(length, length) + 1e-10)
    shifted = (cosine + cosine.min()) / cosine.max()
    near = 1 - np.sqrt(((coords[:, None] - coords) ** 2).sum(-1))
    total = np.sort(shifted + near, axis=1)[:, ::-1][:, :k]
    rows, to = np.arange(700)[:, None], graph.neighbours.numpy()
    np.testing.assert_allclose((shifted + near)[rows, to], total, atol=2e-5)
    np.testing.assert_allclose(graph.edges[..., 0].numpy(), near[rows, to], atol=2e-5)
    np.testing.assert_allclose(graph.edges[..., 1].numpy(), shifted[rows, to], atol=2e-5)
    np.testing.assert_allclose(graph.nodes[:, 0].numpy(), demand / 50, rtol=1e-6)


def test_parity_of_glop_takes_the_features_that_the_fixture_names(shared: Path, tmp_path: Path) -> None:
    source = shared / "parity" / "glop-cvrp.safetensors"
    tensors = {
        k: v
        for k, v in load_file(source).items()
        if not k.startswith("expected.") or k == "expected.edge_features"
    }
    meta = json.loads(source.with_suffix(".json").read_text())
    save_file(tensors, tmp_path / "x.safetensors")
    for library in (False, True):
        config = meta["config"] | {"cvrplib_features": library}
        (tmp_path / "x.json").write_text(json.dumps(meta | {"config": config}))
        failed = check_fixture(tmp_path / "x.safetensors").details["failed"]
        assert bool(failed) == library  # the fixture was made with the other features
        assert "inst0.edge_features" in failed or not library
