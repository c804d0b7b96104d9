"""Two figures of which the papers give numbers in the text only, measured on our networks: sight and normality.

Decoder scaling, Figure 12: how often a network is right where the next node is beyond the eighth neighbour. EIE, Figure 6:
the Jensen-Shannon divergence between the inputs of attention and the standard normal distribution.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadWeightsError
from nco_bench.nn.build import build_path_policy
from nco_bench.papers.judging import Verdict, judge_computed, trained_otherwise
from nco_bench.papers.published import PublishedTable
from nco_bench.papers.representations import LAST_RANK, long_sightedness
from nco_bench.reports.figures.networks import wilson
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.references import ReferenceRun, compute_references
from nco_bench.solvers.stepwise.policy import RoutingNodes
from nco_bench.weights.choice import find
from nco_bench.weights.shelf import list_weights
from nco_bench.weights.store import WeightsFile, load_into

FloatArray = NDArray[np.float64]
LED = {"smoke": 0, "cpu": 1000, "full": 1000}
"""Instances of TSP100 along whose tours networks are led; fewer have hardly a next node beyond the eighth neighbour."""
OVER = frozenset({"D=42, W=128"})
"""Rows of Figure 12 of which the text says "over" so much."""
SEEN = {"smoke": 64, "cpu": 1024, "full": 10_000}
"""Instances of TSP100 whose encoding is held against the normal distribution."""
EDGES = np.linspace(-5.0, 5.0, 101)
"""Bins of the divergence; what lies outside is counted in the first and the last."""
ENCODER = "am-eie-tsp100"
"""Weights whose encoding is held against it."""
MOST = (0.05, 0.95)
"""Quantiles between which most elements are taken to lie."""


def beyond_the_eighth_neighbour(
    table: PublishedTable, scale: str
) -> dict[tuple[str, str], Verdict | tuple[float, Verdict]]:
    """Measure the success rates of decoder scaling's Figure 12 for the rows whose weights are at hand."""
    found: dict[tuple[str, str], Verdict | tuple[float, Verdict]] = {}
    dataset: Dataset | None = None
    for cell in table.cells:
        if not LED[scale]:
            found[cell.row, cell.column] = Verdict(
                "not run", f"too much for the {scale} scale; --scale cpu runs it"
            )
            continue
        shape = re.fullmatch(r"D=(\d+), W=(\d+)", cell.row)
        assert shape is not None
        name = f"decoder-{shape[1]}x{shape[2]}"
        try:
            weights = find(name, name, "tsp")
        except BadWeightsError as error:
            found[cell.row, cell.column] = Verdict("weights missing", str(error).split(". ")[0])
            continue
        dataset = dataset or _with_tours(LED[scale])
        seen = long_sightedness(name, dataset, LED[scale], nearest=LAST_RANK)
        hits, cases = np.array(seen.hits[LAST_RANK:]), np.array(seen.cases[LAST_RANK:])
        low, high = (100 * float(end[0]) for end in wilson(hits, cases))
        said = f"{cases[0]} decisions of {len(dataset)} instances, 95 % interval {low:.1f} to {high:.1f}"
        printed = cell.number or 0.0
        inside = low - 0.5 <= printed <= high + 0.5 or (cell.row in OVER and low > printed)
        verdict = _other_weights(weights, said) or Verdict("reproduced" if inside else "differs", said)
        found[cell.row, cell.column] = (seen.rates[LAST_RANK], verdict)
    return found


def weights_behind(table: PublishedTable) -> dict[str, str]:
    """Return the hashes of the weights that the functions of this module take for a table, by name."""
    shapes = (re.fullmatch(r"D=(\d+), W=(\d+)", row) for row in table.rows)
    used = {f"decoder-{shape[1]}x{shape[2]}" for shape in shapes if shape} or {ENCODER}
    return {file.path.stem: file.sha256 for file in list_weights() if file.path.stem in used}


def _with_tours(count: int) -> Dataset:
    """The first instances of the usual TSP100 with LKH3's tours, which are kept beside the other references."""
    places, source = Places.from_environment(), f"tsp100:count={count}"
    dataset = load_dataset(source, places)
    tours = compute_references(dataset, source, ReferenceRun("lkh3"), places, QuietDisplay())
    return replace(dataset, references=tuple(tours))


def _other_weights(weights: WeightsFile, said: str) -> Verdict | None:
    differs = trained_otherwise(weights.facts())
    return Verdict("other weights", f"{differs}; {said}") if differs else None


def normality_of_attention_inputs(
    table: PublishedTable, scale: str
) -> dict[tuple[str, str], tuple[float, Verdict]]:
    """Measure EIE's Figure 6 on am-eie-tsp100; raises `BadWeightsError` without it."""
    weights = find(ENCODER, "am", "tsp")
    policy = build_path_policy("am", **weights.manifest.config).eval()
    load_into(policy, weights)
    instances = load_dataset(f"tsp100:count={SEEN[scale]}", Places.from_environment()).instances
    coords = np.stack([instance.arrays()["coords"] for instance in instances])
    inputs = attention_inputs(policy, torch.from_numpy(coords.astype(np.float32)))
    # The first layer sees embeddings; those behind a LayerNorm are what the assumption is about.
    elements = np.concatenate([x.flatten(0, 1).numpy() for x in inputs[1:]], axis=1)
    divergences = divergence_from_normal(elements)
    ends = dict(zip(("Low", "High"), np.quantile(divergences, MOST).tolist(), strict=True))
    floor = float(np.median(divergence_from_normal(np.random.default_rng(0).standard_normal(elements.shape))))
    said = (
        f"{len(instances)} instances, {elements.shape[1]} channels, median {np.median(divergences):.2g}; true normal draws "
        f"of this number have {floor:.1g}"
    )
    found = {}
    for cell in table.cells:
        value = ends[cell.column]
        verdict = _other_weights(weights, said) or judge_computed(cell, value)
        found[cell.row, cell.column] = (value, verdict)
    return found


@torch.inference_mode()
def attention_inputs(policy: Any, coords: Tensor) -> list[Tensor]:
    """Return what each layer's attention is given, ``(B, N, D)`` per layer, for ``(B, N, 2)`` coordinates."""
    kept: list[Tensor] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, given: kept.append(given[0].clone()))  # it works in place
        for layer in policy.encoder
    ]
    try:
        policy.encode(RoutingNodes(coords))
    finally:
        for handle in handles:
            handle.remove()
    return kept


def divergence_from_normal(values: FloatArray) -> FloatArray:
    """Jensen-Shannon divergence, in nats over `EDGES`, of each column of ``(S, E)`` values from N(0, 1), ``(E,)``."""
    normal = np.diff(np.concatenate([[0.0], norm.cdf(EDGES[1:-1]), [1.0]]))[:, None]
    inner = np.searchsorted(EDGES[1:-1], values, side="right")  # (S, E): bins 0 .. len(normal) - 1
    seen = np.stack([np.bincount(column, minlength=len(normal)) for column in inner.T], axis=1) / len(values)
    middle = (seen + normal) / 2

    def relative_entropy(p: FloatArray) -> FloatArray:
        terms = np.where(p > 0, p * np.log(np.where(p > 0, p, 1.0) / middle), 0.0)
        return np.asarray(terms.sum(axis=0))

    return (relative_entropy(seen) + relative_entropy(np.broadcast_to(normal, seen.shape))) / 2
