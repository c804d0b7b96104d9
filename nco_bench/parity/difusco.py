"""Parity of DIFUSCO (Edward-Sun/DIFUSCO): network, processes, whole chains, merging, 2-opt, training loss and gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nco_bench.nn.build import load_official
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.trajectories import compare_gradients
from nco_bench.solvers.edges.diffusion import nearest_graph, reverse_process, time_pairs, to_scores
from nco_bench.solvers.edges.difusco import (
    AnisotropicLayer,
    Difusco,
    DifuscoConfig,
    EdgeGraph,
    build,
    from_official,
    kept,
    time_waves,
    transition,
    waves,
)
from nco_bench.solvers.edges.merge import EdgeMap, edge_map, lengths, merge_greedily
from nco_bench.solvers.edges.noising import denoised, denoising_loss, edge_probability, noised, tour_edges
from nco_bench.solvers.edges.two_opt import improve_best_first

TIMES = [0, 1, 2, 10, 100, 500, 900, 999, 1000]
"""Where a fixture without ``input.times`` holds the shares of signal left."""


FORWARD = ("fwd_out", "pos_embed", "edge_pos_embed", "timestep_embedding", "layer0_h", "layer0_e_row0")
CHAIN = ("states", "heatmap", "last_denoiser_out", "posterior_prob")
TOURS = ("merged_tour", "merge_iterations", "two_opt_tour", "two_opt_iterations", "cost")


def check(fixture: Fixture) -> ParityResult:
    """Compare what a DIFUSCO fixture holds."""
    checks = Checks()
    for key, value in (("aggregation", "sum"), ("norm", "layer"), ("inference_trick", "ddim")):
        fixture.require(key, value)
    config = DifuscoConfig(
        "tsp",
        fixture.size("n_layers"),
        fixture.size("hidden_dim"),
        fixture.size("diffusion_type"),
        fixture.size("diffusion_schedule"),
        fixture.size("diffusion_steps"),
    )
    model = build(config).eval()
    load_official(model, "difusco", fixture.state_dict, str(fixture.path))
    with torch.inference_mode():
        _check_processes(fixture, config, checks)
        _check_forward(fixture, model, checks)
        _check_chains(fixture, model, checks)
        _check_tours(fixture, checks)
    if fixture.wants("train_loss", "train_grad_norms", "train_q_prob", "edge_label"):
        _check_training(fixture, model, checks)
    return result(fixture, "difusco", "tsp", checks)


def _graph(fixture: Fixture, points: Tensor, instance: slice) -> EdgeGraph:
    """Return the instances' graphs, complete ones or those that the fixture holds."""
    coords = points[instance]
    if not fixture.has("input.edge_index"):
        return EdgeGraph(coords)
    ends = fixture.input("edge_index")[instance, 1]
    return EdgeGraph(coords, ends.view(len(coords), coords.shape[1], -1))


def _by_edge(values: Tensor, graph: EdgeGraph) -> Tensor:
    """Give values of the edges, leading axes first, the shape ``(..., N, K)``."""
    return values.reshape(*values.shape[: 1 if values.dim() < 4 else 2], *graph.shape[1:])


def _check_processes(fixture: Fixture, config: DifuscoConfig, checks: Checks) -> None:
    """Compare the schedules of noise and of inference."""
    steps = fixture.option("inference_diffusion_steps")
    pairs = torch.tensor(time_pairs(fixture.option("inference_schedule"), steps))
    checks.same("schedule_t1_t2", pairs, fixture.wanted("schedule_t1_t2"))
    times = fixture.input("times").tolist() if fixture.has("input.times") else TIMES
    for name in fixture.groups("(?:alphabar|Q_bar)_(?:linear|cosine)"):
        share = kept(replace(config, noise=name.rpartition("_")[2]))
        ours = torch.from_numpy(share[times])
        if name.startswith("Q_bar"):
            ours = torch.stack([torch.from_numpy(transition(share[t])) for t in times])
        checks.close(name, ours, fixture.expected(name))
    for name in fixture.groups(r"pairs_(?:linear|cosine)_\d+"):
        _, noise, many = name.split("_")
        checks.same(name, torch.tensor(time_pairs(noise, int(many))), fixture.expected(name))


def _check_forward(fixture: Fixture, model: Difusco, checks: Checks) -> None:
    """Compare embeddings, the first layer and the output for given noisy edges."""
    if not fixture.wants(*FORWARD):
        return
    points = fixture.input("points")
    seen, time = fixture.input("fwd_x_t"), fixture.input("fwd_t")
    one = _graph(fixture, points, slice(0, 1))
    copies = len(seen)
    ends = None if one.neighbours is None else one.neighbours.expand(copies, -1, -1)
    many = EdgeGraph(one.coords.expand(copies, -1, -1), ends)
    output = model(many, _by_edge(seen, one), time)
    width = model.config.width
    if one.neighbours is not None:
        checks.close("fwd_out", output.flatten(1, 2), fixture.wanted("fwd_out"))
        return
    checks.close("fwd_out", output.permute(0, 3, 1, 2), fixture.wanted("fwd_out"))
    places = waves(2 * torch.pi * one.coords, width // 2).flatten(-2)
    checks.close("pos_embed", places, fixture.wanted("pos_embed"))
    noisy = waves(seen[:1], width)
    checks.close("edge_pos_embed", noisy, fixture.wanted("edge_pos_embed"))
    checks.close("timestep_embedding", time_waves(time, width), fixture.wanted("timestep_embedding"))
    layer = cast(AnisotropicLayer, model.layers[0])
    h, e = model.node_embed(places), model.edge_embed(noisy)
    pre = layer.C(e) + layer.B(h)[:, :, None] + layer.A(h)[:, None]
    heard = (pre.sigmoid() * layer.V(h)[:, None]).sum(dim=2)
    checks.close("layer0_h", F.relu(layer.norm_h(layer.U(h) + heard)), fixture.wanted("layer0_h"))
    checks.close("layer0_e_row0", F.relu(layer.norm_e(pre))[:, 0], fixture.wanted("layer0_e_row0"))


def _check_chains(fixture: Fixture, model: Difusco, checks: Checks) -> None:
    """Run inference with the recorded draws, all instances at once."""
    if not fixture.wants(*CHAIN):
        return
    points = fixture.input("points")
    graph = _graph(fixture, points, slice(None))
    if graph.neighbours is not None:
        ours = [nearest_graph(p.double().numpy(), graph.shape[2]) for p in points]
        near = torch.stack([torch.from_numpy(rows) for rows in ours])
        checks.same("nearest", near, graph.neighbours)
    start = _by_edge(fixture.input("x_T").float(), graph)
    draws: Callable[[int], Tensor] = lambda step: start  # noqa: E731
    if fixture.has("input.uniforms"):
        draws = lambda step: _by_edge(fixture.input("uniforms")[:, step], graph)  # noqa: E731
    steps = fixture.option("inference_diffusion_steps")
    pairs = time_pairs(fixture.option("inference_schedule"), steps)
    chain = list(reverse_process(model, graph, start, draws, pairs))
    heat = to_scores(model, chain[-1].after)
    found = {
        "states": torch.stack([step.state for step in chain], dim=1),
        "heatmap": heat,
        "last_denoiser_out": chain[-1].output,
    }
    if graph.neighbours is None:
        found["last_denoiser_out"] = chain[-1].output.permute(0, 3, 1, 2)
    if model.config.kind == "categorical":
        asked = [step.probability for step in chain[:-1] if step.probability is not None]
        found["posterior_prob"] = torch.stack(asked, dim=1)
    for name, value in found.items():
        expected = fixture.wanted(name)
        if expected is not None:
            checks.close(name, value.reshape(expected.shape), expected)


def _check_tours(fixture: Fixture, checks: Checks) -> None:
    """Merge and improve the official heat maps; then the tours that the official code improves together."""
    points = fixture.input("points").double().numpy()
    asked = fixture.wants(*TOURS) or fixture.groups(r"batch2opt_tours_(?:\d+|full)")
    most = fixture.option("two_opt_iterations") if asked else 0
    if fixture.wants(*TOURS):
        graph = _graph(fixture, fixture.input("points"), slice(None))
        heat = _by_edge(fixture.expected("heatmap"), graph).numpy()
        for b, coords in enumerate(points):
            ends = None if graph.neighbours is None else graph.neighbours[b].numpy()
            _check_merging(fixture, checks, b, edge_map(coords, heat[b], ends), most)
    for b, tour in enumerate(fixture.input("label_tours") if fixture.wants("label_cost") else ()):
        length = _length(points[b], tour[:-1].numpy())
        checks.close(f"label_cost.{b}", length, fixture.row("label_cost", b))
    for name in fixture.groups(r"batch2opt_tours_(?:\d+|full)"):
        moves = most if name.endswith("_full") else int(name.rpartition("_")[2])
        improved = [
            improve_best_first(points[0], tour[:-1].numpy(), moves)
            for tour in fixture.input("batch2opt_tours")
        ]
        checks.same(name, torch.stack([_closed(tour) for tour, _ in improved]), fixture.expected(name))
        if moves == most:
            longest = torch.tensor([max(made for _, made in improved)])
            checks.same("batch2opt_iterations", longest, fixture.wanted("batch2opt_iterations"))


def _check_merging(fixture: Fixture, checks: Checks, b: int, edges: EdgeMap, most: int) -> None:
    """Compare the merged and the improved tour of instance b."""
    merged = merge_greedily(edges)
    checks.same(f"merged_tour.{b}", _closed(merged.tour), fixture.row("merged_tour", b))
    if merged.joined == 0:
        count = torch.tensor(_official_count(edges, merged.examined))
        checks.same(f"merge_iterations.{b}", count, fixture.row("merge_iterations", b))
    tour, moves = improve_best_first(edges.coords, merged.tour, most)
    checks.same(f"two_opt_tour.{b}", _closed(tour), fixture.row("two_opt_tour", b))
    checks.same(f"two_opt_iterations.{b}", torch.tensor(moves), fixture.row("two_opt_iterations", b))
    checks.close(f"cost.{b}", _length(edges.coords, tour), fixture.row("cost", b))


def _length(coords: NDArray[np.float64], tour: NDArray[np.int64]) -> Tensor:
    return torch.tensor(lengths(coords, tour, np.roll(tour, -1)).sum())


def _closed(tour: object) -> Tensor:
    closed = torch.as_tensor(tour)
    return torch.cat([closed, closed[:1]])


def _official_count(edges: EdgeMap, examined: int) -> int:
    """Count as the official code: nodes with a positive score to themselves first, then both directions of each edge."""
    loops = edges.first == edges.second
    return int((edges.scores[loops] > 0).sum()) + 2 * examined - 1


def _check_training(fixture: Fixture, model: Difusco, checks: Checks) -> None:
    """Noise two instances with the recorded draws, and compare the loss and its gradients."""
    time, config = fixture.input("train_t").long(), model.config
    graph = _graph(fixture, fixture.input("points"), slice(0, len(time)))
    batch, nodes, _ = graph.shape
    onward = fixture.input("label_tours")[: len(time)]
    after = torch.empty(batch, nodes, dtype=torch.int64).scatter_(1, onward[:, :-1], onward[:, 1:])
    label = tour_edges(after, graph.neighbours)
    expected = fixture.wanted("edge_label")
    if expected is not None:
        checks.same("edge_label", label, _by_edge(expected, graph)[: len(time)])
    if config.kind == "categorical":
        expected = fixture.wanted("train_q_prob")
        there = edge_probability(config, label, time)
        checks.close("train_q_prob", there, None if expected is None else _by_edge(expected, graph))
    source = "train_epsilon" if config.kind == "gaussian" else "train_uniform_noise"
    draws = _by_edge(fixture.input(source), graph)
    state = noised(config, label, time, draws, _by_edge(fixture.input("train_uniform_jitter"), graph))
    if fixture.has("input.train_x_t"):
        checks.close("train_x_t", state, _by_edge(fixture.input("train_x_t"), graph))
    model.zero_grad()
    loss = denoising_loss(config, denoised(model, graph, state, time), label, draws)
    loss.backward()
    checks.close("train_loss", loss.detach(), fixture.wanted("train_loss"))
    if fixture.wants("train_grad_norms"):
        renamed = replace(
            fixture,
            meta={**fixture.meta, "grad_norm_order": fixture.fact("grad_norm_keys")},
            tensors={**fixture.tensors, "expected.train.grad_norms": fixture.expected("train_grad_norms")},
        )
        compare_gradients(renamed, model, from_official, checks)
