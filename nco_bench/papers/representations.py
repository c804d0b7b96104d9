"""What a network looks at: long-sightedness and node features (decoder scaling, appendix H), attention (PENS, appendix A.1).

All numbers are taken while the network is led along a reference tour, so that they do not depend on its own mistakes. They
begin with the second decision: at the first one either neighbour in the closed tour is right, so no node is *the* next one.
Letters in shapes: B batch, N nodes, M candidates, W width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.reports.figures.networks import AttentionPanel, Features, Sightedness
from nco_bench.solvers.network import RANDOM_WEIGHTS, to_unit_square
from nco_bench.solvers.path.policy import PathNodes, PathState, gather_rows
from nco_bench.solvers.registry import choose
from nco_bench.weights.choice import find
from nco_bench.weights.store import load_into

FIRST_STEP = 1
"""The first decision with one right answer; that of step 0 has two."""

LAST_RANK = 8
"""Neighbours beyond the eighth are counted together, as in the paper."""

PENS_MODELS = ("pens-a", "pens-r", "pens-ar", "coordns")


@dataclass(frozen=True)
class Led:
    """A network before one decision of a reference tour.

    Attributes
    ----------
    state
        What the policy is given.
    best
        ``(B,)`` position of the tour's next node among the candidates.
    """

    state: PathState
    best: Tensor


def load_policy(solver: str) -> tuple[str, nn.Module]:
    """Return label and network of a solver such as ``decoder-6x128`` or ``pens-a:weights=FILE``; weights may be ``random``.

    Raises
    ------
    BadInputError
        For a solver that is no path model.
    BadWeightsError
        When its weights are missing.
    """
    from nco_bench.solvers.protocol import SolverOptions

    choice = choose(solver, SolverOptions(in_process=True))
    name, weights = choice.info.name, choice.options.weights
    if choice.info.family != "path":
        raise BadInputError(f"{solver}: features of path models only, such as decoder-6x128 or pens-a.")
    if weights == RANDOM_WEIGHTS:
        return f"{name} (untrained)", build_path_policy(name)
    file = find(weights or name, name, "tsp")
    policy = build_path_policy(name, "tsp", **file.manifest.config)
    load_into(policy, file)
    return choice.label, policy


def led_along(policy: Any, coords: Tensor, tours: Tensor) -> Iterator[Led]:
    """Lead a policy along tours, ``(B, N, 2)`` and ``(B, N)``, through all decisions that have one right answer."""
    features = policy.embed(PathNodes(coords, None, coords.shape[1]))
    count = coords.shape[1]
    for step in range(FIRST_STEP, count - 2):  # the last choice has one candidate
        # Candidates in the order of their index, so that their position gives nothing away.
        remaining, _ = tours[:, step + 1 :].sort(dim=1)
        rows = torch.cat([tours[:, step : step + 1], remaining, tours[:, :1]], dim=1)
        state = PathState(gather_rows(features, rows), gather_rows(coords, rows), None, None, False, count)
        best = (remaining == tours[:, step + 1 : step + 2]).int().argmax(dim=1)
        yield Led(state, best)


def long_sightedness(solver: str, dataset: Dataset, limit: int, *, nearest: int = 0) -> Sightedness:
    """Count how often the network picks the tour's next node, by that node's rank among the neighbours left (Figure 12).

    Parameters
    ----------
    solver
        See `load_policy`.
    dataset
        TSP instances of one size with reference tours.
    limit
        The first instances to use.
    nearest
        Ask only where the right node has this rank or a farther one; 0 is the nearest.
    """
    label, policy = load_policy(solver)
    return sightedness_of(label, policy, *_led_instances(dataset, limit), nearest=nearest)


@torch.inference_mode()
def sightedness_of(
    label: str, policy: Any, coords: Tensor, tours: Tensor, *, nearest: int = 0
) -> Sightedness:
    """Count the right choices of a policy along tours, ``(B, N, 2)`` and ``(B, N)``; see `long_sightedness`."""
    hits = np.zeros(LAST_RANK + 1)
    totals = np.zeros(LAST_RANK + 1)
    for led in led_along(policy, coords, tours):
        points = led.state.coords
        distance = (points[:, 1:-1] - points[:, :1]).norm(dim=2)
        mine = distance.gather(1, led.best[:, None])
        rank = (distance < mine).sum(dim=1).clamp(max=LAST_RANK)  # 0 is the nearest
        asked = rank >= nearest
        if not asked.any():
            continue
        state = replace(led.state, features=led.state.features[asked], coords=points[asked])
        hit = policy.scores(state).argmax(dim=1) == led.best[asked]
        np.add.at(totals, rank[asked].numpy(), 1)
        np.add.at(hits, rank[asked].numpy(), hit.numpy())
    return Sightedness(label, tuple(hits.astype(int).tolist()), tuple(totals.astype(int).tolist()))


def candidate_features(solver: str, dataset: Dataset, instance: int, step: int) -> Features:
    """Features of the candidates after the last layer, at one step of one tour (Figures 10 and 11).

    Candidates are sorted by the reference tour, so that index 0 is the next node.

    Raises
    ------
    BadInputError
        For a network without a stack of layers over its candidates, or a step beyond the tour.
    """
    label, policy = load_policy(solver)
    layers = getattr(policy, "layers", None)
    if layers is None:
        raise BadInputError(f"{solver}: has no stack of decoder layers whose features could be shown.")
    dataset.refuse_beyond(instance)
    coords, tours = _led_instances(dataset, instance + 1)
    coords, tours = coords[instance:], tours[instance:]
    count = coords.shape[1]
    if count < FIRST_STEP + 3:
        raise BadInputError(
            f"{dataset.name}: {count} nodes leave no choice to show; at least {FIRST_STEP + 3} do."
        )
    if not FIRST_STEP <= step < count - 2:
        raise BadInputError(
            f"--step {step}: expected {FIRST_STEP} to {count - 3}; at step 0 both neighbours in the tour are right."
        )
    features = policy.embed(PathNodes(coords, None, count))  # type: ignore[operator]
    rows = torch.cat([tours[:, step:], tours[:, :1]], dim=1)
    state = PathState(gather_rows(features, rows), gather_rows(coords, rows), None, None, False, count)
    kept: list[Tensor] = []
    handle = layers[-1].register_forward_hook(lambda module, given, out: kept.append(out))
    try:
        # Without gradients a decoder's last layer makes no more of its tokens than their scores.
        with torch.enable_grad():
            scores = policy.scores(state)  # type: ignore[operator]
    finally:
        handle.remove()
    if not kept:
        raise BadInputError(
            f"{solver}: its last layer gives scores and no features; decoders and PENS have them."
        )
    values = kept[0].detach()[0, 1 : 1 + state.candidates].double().numpy()
    return Features(label, values, int(scores[0].argmax()))


@torch.inference_mode()
def attention_from_origin(
    solver: str, dataset: Dataset, instance: int, scales: list[float]
) -> list[AttentionPanel]:
    """Mean attention logits from the origin to all cities, over heads and layers, per coordinate scale (PENS Figure 6).

    The path problem starts at city 0 and ends at the city farthest from it, all others in between.

    Raises
    ------
    BadInputError
        For a model that is not PENS or CoordNS.
    """
    label, policy = load_policy(solver)
    name = solver.partition(":")[0]
    if name not in PENS_MODELS:
        raise BadInputError(f"{solver}: attention maps are drawn for {', '.join(PENS_MODELS)}.")
    coords = torch.from_numpy(
        to_unit_square(dataset.instances[instance].arrays()["coords"]).astype(np.float32)
    )
    far = int((coords - coords[0]).norm(dim=1).argmax())
    others = [i for i in range(1, len(coords)) if i != far]
    rows = torch.tensor([[0, *others, far]])
    points = coords[rows[0]].numpy()
    return [
        AttentionPanel(label, scale, points, _origin_logits(policy, coords[None], rows, scale))
        for scale in scales
    ]


def _origin_logits(policy: Any, coords: Tensor, rows: Tensor, scale: float) -> NDArray[np.float64]:
    """Logits of the origin's queries, ``(M + 2,)``, averaged over heads and layers."""
    kept: list[Tensor] = []

    def keep(module: Any, given: tuple[Any, ...]) -> None:
        kept.append(_logits_of_first_token(module, *given))

    handles = [layer.attention.register_forward_pre_hook(keep) for layer in policy.layers]
    try:
        seen = coords * scale
        features = policy.embed(PathNodes(seen, None, coords.shape[1]))
        policy.scores(
            PathState(
                gather_rows(features, rows), gather_rows(seen, rows), None, None, False, coords.shape[1]
            )
        )
    finally:
        for handle in handles:
            handle.remove()
    return torch.stack(kept).mean(dim=0).double().numpy()


def _logits_of_first_token(module: Any, x: Tensor, geometry: Any, scale: float | Tensor) -> Tensor:
    """Mean over heads of the logits of token 0, ``(T,)``, as `models.pens.Attention` computes them."""
    from nco_bench.solvers.path.pens_geometry import distances, rotate

    batch, tokens, _ = x.shape
    qkv = module.qkv(x).view(batch, tokens, 3, module.heads, module.head_dim).permute(2, 0, 3, 1, 4)
    query, key = rotate(qkv[0], geometry), rotate(qkv[1], geometry)
    logits = (query[:, :, :1] @ key.transpose(2, 3)).squeeze(2) * scale / module.head_dim**0.5
    if geometry.slopes is not None:
        slopes = geometry.slopes * scale if module.scale_bias else geometry.slopes
        near = distances(geometry.coords[:, :1], geometry.coords)[:, 0]  # (1, T)
        logits = logits - slopes[None, :, None] * near[:, None]
    return logits.mean(dim=1)[0]


def _led_instances(dataset: Dataset, limit: int) -> tuple[Tensor, Tensor]:
    """Coordinates ``(B, N, 2)`` and reference tours ``(B, N)`` of the first instances."""
    if dataset.problem != "tsp":
        raise BadInputError(f"{dataset.name}: long-sightedness and features are those of TSP tours.")
    chosen = list(zip(dataset.instances, dataset.references, strict=True))[:limit]
    tours = [r.solution for _, r in chosen if r is not None and r.solution is not None]
    if len(tours) < len(chosen):
        which = f"{dataset.name} --limit {limit}" if limit < len(dataset.instances) else dataset.name
        raise BadInputError(
            f"{dataset.name}: needs reference tours; make them with 'nco-bench reference {which} --solver lkh3'."
        )
    if len({instance.n for instance, _ in chosen}) != 1:
        raise BadInputError(f"{dataset.name}: instances of one size are needed.")
    coords = np.stack([to_unit_square(instance.arrays()["coords"]) for instance, _ in chosen])
    return torch.from_numpy(coords.astype(np.float32)), torch.from_numpy(np.stack(tours).astype(np.int64))
