"""Tropical attention against its definition, its theory and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import shortest_path
from torch import Tensor

from nco_bench.cards import trained_by
from nco_bench.nn.device import PerDevice
from nco_bench.parity import check_fixture
from nco_bench.solvers.sequences import tropical
from nco_bench.solvers.sequences.task_networks import build_task_network, step_signal
from nco_bench.solvers.sequences.tropical import (
    VARIANTS,
    TropicalAttention,
    TropicalOptions,
    aggregate,
    attend,
    hilbert_scores,
    max_plus,
)

TASK_NETWORKS = trained_by("tasks")
FIXTURES = (
    "vanilla", "adaptive", "tropical", "tropical-qkv", "tropical-norm", "tropical-asym", "tropical-noproj",
    "vanilla-pool-prenorm", "adaptive-pool-prenorm", "tropical-pool-regression", "adaptive-softmax",
)  # fmt: skip


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", FIXTURES)
def test_official_networks_are_matched(official: Callable[[str], Path], name: str) -> None:
    found = check_fixture(official(f"tropical-{name}"))
    assert found.ok, found.details["failed"]


@pytest.mark.parametrize("name", TASK_NETWORKS)
@pytest.mark.parametrize("features", [1, 2, 3])
def test_parameters_are_counted_as_in_the_table(name: str, features: int) -> None:
    network = build_task_network(name, features, pooled=False)
    assert (
        sum(p.numel() for p in network.parameters()) == TASK_NETWORKS[name].parameters[f"features={features}"]
    )


@pytest.mark.parametrize("n", [1, 7, 8, 21])
def test_compiled_loops_give_values_and_gradients_of_the_plain_formulas(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    leaves = [draw(3, n, 16, seed=s).requires_grad_() for s in range(3)]
    weight = draw(24, 16, seed=9).requires_grad_()

    def compute() -> list[Tensor]:
        projected = max_plus(leaves[0], weight)
        context = attend(*leaves)
        ((projected**2).sum() + (context**3).sum()).backward()
        found = [projected.detach(), context.detach(), *(t.grad for t in (*leaves, weight))]
        for leaf in (*leaves, weight):
            leaf.grad = None
        return found  # type: ignore[return-value]

    compiled = compute()
    monkeypatch.setattr(tropical, "KERNELS", False)
    plain = compute()
    assert torch.equal(compiled[0], plain[0])
    assert torch.equal(compiled[1], plain[1])
    for ours, theirs in zip(compiled[2:], plain[2:], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_steps_of_algorithm_1_are_computed_as_printed() -> None:
    """Appendix D, line by line in NumPy, log(0) being -inf; two heads of 8 channels that share the max-plus maps.

    Definition 3.1 would have 2 heads x 3 maps of d_k x d: 12,288 weights at width 64, where these are 3,072.
    """
    torch.manual_seed(1)
    layer = TropicalAttention(16, 2, VARIANTS["algorithm-1"])
    torch.nn.init.normal_(layer.shift)
    x = draw(1, 6, 16)
    lam = layer.shift[0].detach().numpy()
    with np.errstate(divide="ignore"):
        lifted = [
            np.log(np.maximum(x[0].numpy() @ part.weight.detach().numpy().T, 0)) - lam
            for part in (layer.query, layer.key, layer.value)
        ]
    heads = []
    for head in (slice(0, 8), slice(8, 16)):
        weights = (layer.tropical_query, layer.tropical_key, layer.tropical_value)
        q, k, v = (
            (u[:, head][:, None, :] + w.detach().numpy()).max(axis=2)
            for u, w in zip(lifted, weights, strict=True)
        )
        delta = q[:, None] - k[None]
        score = -(delta.max(axis=2) - delta.min(axis=2))
        heads.append(np.exp((score[:, :, None] + v[None]).max(axis=1)))
    expected = np.concatenate(heads, axis=1) @ layer.out.weight.detach().numpy().T
    np.testing.assert_allclose(layer(x)[0].detach().numpy(), expected, rtol=1e-4, atol=1e-6)
    used = TropicalAttention(64, 2, VARIANTS["algorithm-1"])
    maps = (used.tropical_query, used.tropical_key, used.tropical_value)
    assert sum(m.numel() for m in maps) == 3 * 32 * 32 == 3072


def test_algorithm_1_has_gradients_where_a_token_has_no_positive_channel() -> None:
    torch.manual_seed(0)
    layer = TropicalAttention(16, 2, VARIANTS["algorithm-1"])
    x = draw(1, 5, 16)
    with torch.no_grad():
        layer.query.weight[:] = -(x[0, 0] / x[0, 0].norm()).expand(
            16, 16
        )  # every channel of token 0 is negative
    layer(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (draw(2, 30, 5, seed=s).double() for s in range(3))
    whole = aggregate(hilbert_scores(q, k), v)
    monkeypatch.setattr(tropical, "BLOCK_ENTRIES", PerDevice(cpu=700, gpu=700))
    assert torch.equal(attend(q, k, v), whole)
    assert torch.equal(aggregate(hilbert_scores(q, k), v), whole)


def test_scores_are_minus_the_hilbert_distance_of_a_hand_example() -> None:
    q, k = torch.tensor([[[0.0, 0.0, 0.0]]]), torch.tensor([[[1.0, -2.0, 4.0]]])
    assert hilbert_scores(q, k).item() == -6.0
    assert hilbert_scores(q, k, symmetric=False).item() == -(-3.0 + 3 * 4.0)


def test_a_constant_on_all_coordinates_of_a_token_changes_no_score() -> None:
    q, k = draw(2, 9, 16, seed=1).double(), draw(2, 9, 16, seed=2).double()
    shift = 10 * draw(2, 9, 1, seed=3).double()
    torch.testing.assert_close(hilbert_scores(q + shift, k), hilbert_scores(q, k))
    torch.testing.assert_close(hilbert_scores(q, k - shift), hilbert_scores(q, k))


def test_projections_and_scores_are_non_expansive_in_the_hilbert_metric() -> None:
    x, y, k = (draw(1, 200, 16, seed=s).double() for s in range(3))
    weight = draw(24, 16, seed=5).double()

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return -hilbert_scores(a, b).diagonal(dim1=-2, dim2=-1)

    apart = distance(x, y)
    assert (distance(max_plus(x, weight), max_plus(y, weight)) <= apart + 1e-12).all()
    moved = (hilbert_scores(x, k) - hilbert_scores(y, k)).abs().amax(-1)
    assert (moved <= apart + 1e-12).all()


@pytest.mark.parametrize(
    "options", [TropicalOptions(), TropicalOptions(linear_maps=True, learned_shift=True)]
)
def test_attention_commutes_with_permutations_of_tokens(options: TropicalOptions) -> None:
    torch.manual_seed(0)
    layer = TropicalAttention(64, 2, options)
    x, order = draw(2, 13, 64), torch.randperm(13)
    torch.testing.assert_close(layer(x[:, order]), layer(x)[:, order])


def bellman_steps(distances: Tensor, source: int) -> Tensor:
    """Compute shortest paths by the layers of Theorem C.5, weights written down instead of learned.

    Tokens are nodes, and a layer has a head per node v. The query of head v is 0 and the key of node u is ``(d/2, -d/2)``
    with the arc length d = d(u, v), so that the Hilbert score is ``-(d/2 - (-d/2)) = -d(u, v)``. The value is minus the
    distance so far, and the max-plus aggregation is the Bellman step ``-dist'(v) = max_u (-d(u, v) - dist(u))``.

    Parameters
    ----------
    distances
        ``(N, N)`` arc lengths, at least 0, ``inf`` where there is no arc; entry ``[u, v]`` is the arc from u to v.
    source
        Node where all paths start.

    Returns
    -------
    Tensor
        ``(N,)`` lengths of shortest paths, after N - 1 layers.
    """
    n = distances.shape[0]
    far = 4 * float(distances[distances.isfinite()].sum()) + 1.0
    arcs = torch.where(distances.isfinite(), distances, torch.full_like(distances, far)).clone()
    arcs.fill_diagonal_(0.0)
    keys = torch.zeros(n, n, 2, dtype=arcs.dtype)  # (head v, token u, channel)
    keys[..., 0], keys[..., 1] = arcs.t() / 2, -arcs.t() / 2
    queries = torch.zeros(n, 1, 2, dtype=arcs.dtype)
    reached = torch.full((n,), -far, dtype=arcs.dtype)
    reached[source] = 0.0
    for _ in range(n - 1):
        values = reached[None, :, None].expand(n, n, 1)
        reached = aggregate(hilbert_scores(queries, keys), values)[:, 0, 0]
    return torch.where(reached > -far, -reached, torch.inf)


@pytest.mark.parametrize("seed", range(5))
def test_layers_with_written_down_weights_find_shortest_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 16, (12, 12)).astype(float)
    lengths[rng.random((12, 12)) < 0.8] = np.inf
    np.fill_diagonal(lengths, 0.0)
    expected = shortest_path(np.where(np.isfinite(lengths), lengths, 0.0), method="FW")
    for source in range(12):
        ours = bellman_steps(torch.from_numpy(lengths), source)
        np.testing.assert_array_equal(ours.numpy(), expected[source])


@pytest.mark.parametrize("name", ["ut-vanilla", "ut-adaptive"])
def test_a_token_that_halts_at_once_takes_one_step(name: str) -> None:
    network = build_task_network(name, 2, pooled=False).eval()
    torch.nn.init.constant_(network.halt.bias, 50.0)  # type: ignore[union-attr,arg-type]
    x = draw(3, 8, 2)
    state = network.embed(x) + step_signal(32, 64)[0]
    expected = network.readout(network.layers[0](state)).squeeze(-1)
    torch.testing.assert_close(network(x), expected)


def test_halting_weights_are_those_of_adaptive_computation_time() -> None:
    """With p = 0.4 at each step the weights are 0.4, 0.4 and the remainder 0.2, applied recursively."""
    network = build_task_network("ut-vanilla", 2, pooled=False).eval()
    torch.nn.init.zeros_(network.halt.weight)  # type: ignore[union-attr,arg-type]
    torch.nn.init.constant_(network.halt.bias, float(np.log(0.4 / 0.6)))  # type: ignore[union-attr,arg-type]
    x = draw(3, 8, 2)
    state, output = network.embed(x), 0.0
    for step, weight in enumerate((0.4, 0.4, 0.2)):
        state = network.layers[0](state + step_signal(32, 64)[step])
        output = weight * state + (1 - weight) * output
    torch.testing.assert_close(network.encode(x), output)
