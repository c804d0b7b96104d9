"""DIFUSCO: official outputs, published size, the processes by hand, and graphs that are worked on in blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from nco_bench.errors import BadInputError, NcoBenchError, UnknownNameError
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.nn.device import PerDevice
from nco_bench.parity import check_fixture
from nco_bench.solvers.decoding.draws import streams
from nco_bench.solvers.edges import difusco, difusco_training
from nco_bench.solvers.edges.diffusion import (
    categorical_posterior,
    gaussian_step,
    heat_maps,
    nearest_graph,
    time_pairs,
)
from nco_bench.solvers.edges.difusco import Difusco, DifuscoConfig, EdgeGraph, build, kept, transition

FIXTURES = ("difusco-tsp", "difusco-tsp-sparse", "difusco-tsp-gaussian", "difusco-tsp-mcts")
SMALL = DifuscoConfig(layers=2, width=32)


def small(kind: str = "categorical") -> Difusco:
    """A network with all weights drawn, so that edges do change (their last map is 0 in a fresh network)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(DifuscoConfig(layers=2, width=32, kind=kind)).eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize("name", FIXTURES)
def test_ours_computes_what_the_official_code_computes(official: Callable[[str], Path], name: str) -> None:
    outcome = check_fixture(official(name))
    assert outcome.details["failed"] == []
    assert outcome.tours_identical
    assert outcome.max_relative_error < 1e-4


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("difusco-tsp", "state_dict.layers.0.C.weight"),
        ("difusco-tsp-sparse", "state_dict.out.0.weight"),
        ("difusco-tsp-mcts", "input.heatmap"),
    ],
)
def test_a_changed_number_fails_the_check(shared: Path, tmp_path: Path, name: str, key: str) -> None:
    tensors = load_file(shared / "parity" / f"{name}.safetensors")
    tensors[key][..., 3] += 1.0
    save_file(tensors, tmp_path / f"{name}.safetensors")
    (tmp_path / f"{name}.json").write_text((shared / "parity" / f"{name}.json").read_text())
    assert not check_fixture(tmp_path / f"{name}.json").ok


def test_the_published_network_has_its_5_3_million_parameters() -> None:
    # By hand: embeddings and time 2 (256 256 + 256) + (256 128 + 128) + (128 128 + 128); per layer five maps, the time
    # (128 256 + 256), the last map and three norms of 512; the head 512 + 2 256 + 2.
    square = 256 * 256 + 256
    layer = 6 * square + (128 * 256 + 256) + 3 * 512
    total = 2 * square + (256 * 128 + 128) + (128 * 128 + 128) + 12 * layer + 512 + 514
    assert count_parameters(build_path_policy("difusco")) == total == 5_333_762


def test_the_posterior_is_bayes_rule() -> None:
    share = kept(SMALL)
    now, then = share[600], share[400]
    for state in (0, 1):
        for edge in (0.0, 0.3, 1.0):
            expected = 0.0
            for clean, weight in ((0, 1 - edge), (1, edge)):
                joint = transition(then)[clean, 1] * transition(now / then)[1, state]
                other = transition(then)[clean, 0] * transition(now / then)[0, state]
                expected += weight * joint / (joint + other)
            found = categorical_posterior(torch.tensor(edge), torch.tensor(float(state)), now, then)
            assert float(found) == pytest.approx(expected, rel=1e-5)
    # At time 0 it is the prediction itself.
    edges = torch.rand(5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(categorical_posterior(edges, torch.ones(5), share[30], 1.0), edges, atol=1e-6)


def test_the_true_noise_leads_back_to_the_clean_edges() -> None:
    share = kept(SMALL)
    random = torch.Generator().manual_seed(0)
    clean, noise = torch.ones(4), torch.randn(4, generator=random)
    state = share[300] ** 0.5 * clean + (1 - share[300]) ** 0.5 * noise
    assert torch.allclose(gaussian_step(noise, state, share[300], 1.0), clean, atol=1e-5)


def test_signals_fade_as_published() -> None:
    # prod (1 - beta) for beta from 1e-4 to 2e-2, computed with logarithms.
    beta = [1e-4 + (2e-2 - 1e-4) * k / 999 for k in range(1000)]
    assert kept(SMALL)[1000] == pytest.approx(np.exp(np.log1p([-b for b in beta]).sum()), rel=1e-9)
    assert kept(SMALL)[0] == 1.0
    cosine = kept(DifuscoConfig(noise="cosine"))
    assert cosine[500] == pytest.approx(
        np.cos(np.pi / 2 * 0.508 / 1.008) ** 2 / np.cos(np.pi / 2 * 0.008 / 1.008) ** 2, rel=1e-9
    )


def test_inference_goes_from_noise_to_edges_with_finer_steps_at_the_end() -> None:
    pairs = time_pairs("cosine", 50)
    assert pairs[0][0] == 1000
    assert pairs[-1] == (1, 0)
    assert all(s == t for (_, s), (t, _) in pairwise(pairs))
    assert pairs[0][0] - pairs[0][1] > pairs[-2][0] - pairs[-2][1]
    assert time_pairs("linear", 4) == [(1000, 750), (750, 500), (500, 250), (250, 0)]
    with pytest.raises(UnknownNameError, match="cubic"):
        time_pairs("cubic", 5)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_all_neighbours_are_the_complete_graph(kind: str) -> None:
    model, n = small(kind), 9
    coords = torch.rand(2, n, 2, generator=torch.Generator().manual_seed(1))
    state = (torch.rand(2, n, n, generator=torch.Generator().manual_seed(2)) < 0.5).float()
    near = torch.stack([torch.from_numpy(nearest_graph(c.double().numpy(), n)) for c in coords])
    with torch.inference_mode():
        dense = model(EdgeGraph(coords), state, torch.tensor([5.0, 900.0]))
        sparse = model(EdgeGraph(coords, near), state.gather(2, near), torch.tensor([5.0, 900.0]))
    assert torch.allclose(dense.gather(2, near[..., None].expand_as(sparse)), sparse, atol=1e-3)


def test_blocks_do_not_change_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small()
    coords = torch.rand(1, 30, 2, generator=torch.Generator().manual_seed(1))
    near = torch.from_numpy(nearest_graph(coords[0].double().numpy(), 7))[None]
    state = (torch.rand(1, 30, 7, generator=torch.Generator().manual_seed(2)) < 0.5).float()
    with torch.inference_mode():
        whole = model(EdgeGraph(coords, near), state, torch.tensor([500.0]))
        monkeypatch.setattr(difusco, "ENTRIES_AT_A_TIME", PerDevice(cpu=4 * 7 * 32, gpu=1))
        parts = model(EdgeGraph(coords, near), state, torch.tensor([500.0]))
    assert torch.allclose(whole, parts, atol=1e-3)


@pytest.mark.parametrize("neighbours", [None, 5])
@pytest.mark.parametrize("each", [False, True])
def test_compiled_layers_compute_what_torchs_operations_do(
    neighbours: int | None, each: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(1)
    model, coords = small(), torch.rand(2, 11, 2, generator=generator)
    for name, parameter in model.named_parameters():
        if "norm" in name or "bias" in name:
            parameter.data.uniform_(-1, 1, generator=generator)
    near = None
    if neighbours:
        near = torch.stack([torch.from_numpy(nearest_graph(c.double().numpy(), neighbours)) for c in coords])
    graph = EdgeGraph(coords, near)
    state = torch.rand(graph.shape, generator=generator)
    time = torch.randint(1, 1000, (2, 11) if each else (2,), generator=generator).float()
    monkeypatch.setattr(difusco, "ENTRIES_AT_A_TIME", PerDevice(cpu=8 * 4 * graph.shape[2] * 32, gpu=1))
    monkeypatch.setattr(difusco_training, "ENTRIES_AT_A_TIME", 4 * graph.shape[2] * 32)
    weight = torch.randn((*graph.shape, 2), generator=generator)

    def outputs_and_gradients() -> tuple[Tensor, dict[str, Tensor]]:
        model.zero_grad(set_to_none=True)
        found = model(graph, state, time)
        (found * weight).sum().backward()
        return found.detach(), {k: p.grad for k, p in model.named_parameters() if p.grad is not None}

    trained, gradients = outputs_and_gradients()
    with torch.inference_mode():
        decoded = model(graph, state, time)
    monkeypatch.setattr(difusco, "compiled_training_for", lambda h: False)
    plain, expected = outputs_and_gradients()
    for compiled in (trained, decoded):
        torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-4)
    largest = max(float(g.abs().max()) for g in expected.values())
    assert largest > 0.1
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-4, atol=1e-5 * largest, msg=name)


def test_edges_that_are_0_or_1_are_embedded_as_all_others_are() -> None:
    """Without gradients two rows are computed for them; with gradients every edge is."""
    generator = torch.Generator().manual_seed(1)
    model, graph = small(), EdgeGraph(torch.rand(2, 9, 2, generator=generator))
    state, time = (torch.rand(2, 9, 9, generator=generator) > 0.5).float(), torch.tensor([1.0, 700.0])
    with torch.inference_mode():
        looked_up = model(graph, state, time)
        blurred = model(graph, state * 0.9, time)
    assert torch.allclose(looked_up, model(graph, state, time).detach(), atol=1e-3)
    assert not torch.allclose(looked_up, blurred, atol=1e-2)


def test_the_last_normalisation_is_torchs() -> None:
    model = small()
    edges = torch.randn(2, 5, 3, 32, generator=torch.Generator().manual_seed(0))
    expected = model.out(F.relu(model.norm(edges.permute(0, 3, 1, 2))).permute(0, 2, 3, 1))
    assert torch.allclose(model._head([edges[:, :2], edges[:, 2:]]), expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["categorical", "gaussian"])
def test_heat_maps_depend_on_seed_and_sample_and_not_on_the_batch(kind: str) -> None:
    model = small(kind)
    coords = torch.rand(3, 8, 2, generator=torch.Generator().manual_seed(1))
    stream = streams(torch.arange(3), 0, 2)
    together = heat_maps(model, EdgeGraph(coords), stream[:, 0], steps=3)
    for b in range(3):
        alone = heat_maps(model, EdgeGraph(coords[b : b + 1]), stream[b : b + 1, 0], steps=3)
        assert torch.allclose(alone[0], together[b], atol=5e-3)  # float32 noise, times 150 from time 1000 on
    again = heat_maps(model, EdgeGraph(coords), stream[:, 0], steps=3)
    other = heat_maps(model, EdgeGraph(coords), stream[:, 1], steps=3)
    assert torch.equal(again, together)
    assert not torch.allclose(other, together, atol=5e-2)


def test_wrong_configurations_are_refused() -> None:
    wrong: list[dict[str, object]] = [{"width": 48}, {"layers": 0}, {"kind": "poisson"}, {"noise": "sine"}]
    for options in wrong:
        with pytest.raises(NcoBenchError, match="difusco"):
            DifuscoConfig(**options)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="--logit-scale"):
        build_path_policy("difusco", logit_scale="ssmax")
