"""``plot attention tropical`` and ``plot lengths``: Figures 1 to 3 of the Tropical Attention paper, and a sweep.

What a picture shows: softmax weights; for tropical attention, which takes a maximum instead of a weighted sum, the share of
the channels of a query's context that come from the key. Rows sum to 1 in both, and nothing is stretched per picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nco_bench.datasets.places import Places
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.papers.tropical.cells import NETWORKS
from nco_bench.problems.tasks import TASKS, Task, generate
from nco_bench.reports.figures.attention import LengthCurve, MapRow, length_maps, length_sweep
from nco_bench.reports.figures.style import checked_target
from nco_bench.settings import pairs
from nco_bench.solvers.sequences.task_scores import score_network, score_of
from nco_bench.solvers.sequences.task_solver import load_network

LENGTHS = {"maps": (8, 16, 32, 64, 128, 256, 512, 1024), "keys": (16, 32, 64, 128, 256, 512, 1024)}
GRAPH_LENGTHS = (8, 16, 32)
KEYS, BATCH = 8, 32
VIEWS = tuple(LENGTHS)
TOGETHER = ("tropical", "adaptive", "vanilla")
"""From top to bottom in Figures 1 and 3."""

PARTS = ("view", "weights", "head")


def draw(
    solver: str, *, data: str | None, instance: int, scales: Sequence[float], places: Places, out: Path
) -> Path:
    """Draw attention over growing lengths.

    Parameters
    ----------
    solver
        ``tropical`` draws all three attentions below each other, ``vanilla`` and ``adaptive`` themselves. Options:
        ``view=maps`` (one instance, queries x keys; Figures 1 and 3) or ``view=keys`` (32 instances x the 8 keys of
        largest norm, mean over the queries; Figure 2), ``head=K``, and ``weights=...`` as for ``run``.
    data
        Task; quickselect by default.
    instance
        Which instance of each length, from 0, with ``view=maps``.

    Raises
    ------
    UnknownNameError, BadInputError, BadWeightsError
        For an unknown task, option or view, a head that is not there, or missing weights.
    """
    target = checked_target(out)
    name, options = _options(solver)
    view, head = options.get("view", "maps"), int(options.get("head", "0"))
    if view not in VIEWS:
        raise UnknownNameError("view of plot attention", view, VIEWS)
    task = _task(data or "quickselect")
    lengths = GRAPH_LENGTHS if task.graph else LENGTHS[view]
    rows = []
    for network in TOGETHER if name == "tropical" else (name,):
        maps = {n: _map(network, task, n, view, instance, head, options.get("weights")) for n in lengths}
        rows.append(MapRow(network, maps))
    if view == "maps":
        return length_maps(f"{task.name}: attention of head {head}", rows, "key", "query", target)
    return length_maps(
        f"{task.name}: mean attention of head {head} to the {KEYS} keys of largest norm", rows, "key", "instance", target
    )  # fmt: skip


def _options(solver: str) -> tuple[str, dict[str, str]]:
    name, *parts = solver.split(":")
    return name, pairs(f"plot attention {solver}", parts, f"option of plot attention {name}", PARTS)


def _task(data: str) -> Task:
    name = data.partition(":")[0]
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    return TASKS[name]


@torch.inference_mode()
def _map(
    network: str, task: Task, n: int, view: str, instance: int, head: int, weights: str | None
) -> NDArray[np.float32]:
    """Return ``(N, N)`` weights of one instance, or ``(32, 8)`` mean weights of the keys of largest norm."""
    _, policy = load_network(network, task, weights)
    policy = policy.eval()
    if head >= policy.config.heads:
        raise BadInputError(f"head={head}: {network} has heads 0 to {policy.config.heads - 1}.")
    count = instance + 1 if view == "maps" else BATCH
    inputs = torch.from_numpy(generate(task.name, "length-ood", n, count, variant=task.variant).inputs)
    if view == "maps":
        found, _ = policy.attention_maps(inputs[instance:])
        return found[0, head].numpy()
    rows = []
    for each in inputs.split(1):  # N x N of one instance at a time
        found, norms = policy.attention_maps(each)
        largest = norms[0, head].topk(min(KEYS, norms.shape[-1])).indices
        rows.append(found[0, head][:, largest].mean(0))
    return torch.stack(rows).numpy()


def draw_lengths(
    data: str, lengths: Sequence[int] | None, count: int, weights: str | None, out: Path
) -> Path:
    """Draw the score of all five networks, and of the trivial predictors, against the length.

    Parameters
    ----------
    data
        Task.
    lengths, count
        Lengths (nodes for graph tasks; None: 8 to 1,024, graphs 8 to 32), and instances of each.
    weights
        As for ``run``.

    Raises
    ------
    UnknownNameError, BadInputError, BadWeightsError
        For an unknown task, an unsupported length, or missing weights.
    """
    target = checked_target(out)
    task = _task(data)
    lengths = lengths or (GRAPH_LENGTHS if task.graph else LENGTHS["maps"])
    sets = {n: generate(task.name, "length-ood", n, count, variant=task.variant) for n in lengths}
    curves = [
        LengthCurve(name, {n: score_network(name, task, found, weights).main for n, found in sets.items()})
        for name in NETWORKS.values()
    ]
    train = generate(task.name, "id", None, 5000, variant=task.variant)
    constants = {"mean": float(train.targets.mean())} if task.regression else {"all-positive": 1.0}
    for label, constant in constants.items():
        values = {
            n: score_of(task, np.full(found.targets.shape, constant), found.targets).main for n, found in sets.items()
        }  # fmt: skip
        curves.append(LengthCurve(label, values, trivial=True))
    ylabel = "mean squared error" if task.regression else "F1 of the positive class (%)"
    title = f"{task.name}, {count:,} instances of each length"
    return length_sweep(title, curves, task.train_n, ylabel, target)
