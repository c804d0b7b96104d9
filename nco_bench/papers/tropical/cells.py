"""Tables 1 and 3 of the Tropical Attention paper over all equally trained seeds whose weights are at hand.

The paper calls all its scores of classification micro-F1. Its public script computes one of two: where there is an answer
per token, F1 of the positive class, without tokens whose features are all zero (the point (0, 0) of a convex hull, the first
entry of a matrix of SCC); where there is one answer per instance, scikit-learn's ``average="micro"``, which for two classes
is the accuracy. So 3SUM is held against accuracies, which its printed numbers read as, too. SubsetSum is not: under noise
printed are 3.75 and 3.00, and answering alike throughout has an accuracy of 18 % or more there, whatever the targets.
Ours counts all tokens, in training too, as the paper leaves none out; on networks that ship the script's
rule lowers F1 by up to 0.4 (ConvexHull) and 1.6 (SCC).
"""

from __future__ import annotations

import re

from nco_bench.cards import trained_by
from nco_bench.errors import BadWeightsError, counted
from nco_bench.papers.judging import Verdict
from nco_bench.papers.published import PublishedTable
from nco_bench.problems.tasks import TASKS
from nco_bench.solvers.sequences.task_scores import TrainingSeeds, over_seeds, training_seeds
from nco_bench.weights.shelf import list_weights

ROWS = {
    "ConvexHull": "convex-hull",
    "Knapsack": "knapsack",
    "Quickselect": "quickselect",
    "BinPacking": "bin-packing",
    "SCC": "scc",
    "SubsetSum": "subset-sum",
    "BalancedPartition": "balanced-partition",
    "3SUM": "three-sum",
    "MinCoinChange": "min-coin-change",
    "Floyd–Warshall": "floyd-warshall",
    "FractionalKnapsack": "fractional-knapsack",
}
"""Row of the tables to task."""

ACCURACIES = ("3SUM",)
"""Rows whose printed numbers are accuracies."""

SETTINGS = {"": "length-ood", "Value OOD": "value-ood", "Perturbative Noise": "noise-ood"}
"""First level of a column to setting; Table 1 has no such level."""

NETWORKS = {c.facts["published"]: n for n, c in trained_by("tasks").items() if "published" in c.facts}
COUNTS = {"smoke": 200, "cpu": 1000, "full": 5000}
"""Instances per cell."""


def over_training_seeds(
    table: PublishedTable, scale: str
) -> dict[tuple[str, str], Verdict | tuple[float, Verdict]]:
    """Return mean and sample deviation over training seeds of every cell that has weights.

    F1 of the positive class or accuracy (`ACCURACIES`) in percent, or the mean squared error. Networks with fewer than two
    seeds have no deviation, and the mean of one is what a run measures.

    Raises
    ------
    BadWeightsError
        When no network of the table has two seeds.
    """
    found: dict[tuple[str, str], Verdict | tuple[float, Verdict]] = {}
    several = False
    for row in table.rows:
        for prefix, network in sorted({_parts(cell.column) for cell in table.cells if cell.row == row}):
            if row not in ROWS or network not in NETWORKS or prefix not in SETTINGS:
                continue
            name, task = NETWORKS[network], TASKS[ROWS[row]]
            start = f"{prefix} | {network}" if prefix else network
            trained = training_seeds(name, task)
            if trained is None or len(trained.seeds) < 2:
                found[row, f"{start} | Std"] = Verdict("weights missing", "one training seed only")
                continue
            metric = "accuracy" if row in ACCURACIES else "main"
            mean, deviation = over_seeds(name, task, SETTINGS[prefix], COUNTS[scale], trained.seeds, metric)
            verdict = Verdict("other weights", _say(trained))
            several = True
            found[row, f"{start} | Mean"] = (mean, verdict)
            found[row, f"{start} | Std"] = (float(deviation or 0.0), verdict)
    if not several:
        raise BadWeightsError(
            "weights of one training seed only, and a deviation needs two; "
            "python -m nco_bench.training.task_campaign --seeds 1,2 trains more."
        )
    return found


def weights_behind(table: PublishedTable) -> dict[str, str]:
    """Return the hashes of the weights that `over_training_seeds` takes, by name."""
    used = {
        f"{NETWORKS[network]}-{ROWS[cell.row]}-seed{seed}"
        for cell in table.cells
        if cell.row in ROWS
        and (network := _parts(cell.column)[1]) in NETWORKS
        and (trained := training_seeds(NETWORKS[network], TASKS[ROWS[cell.row]])) is not None
        for seed in trained.seeds
    }
    return {file.path.stem: file.sha256 for file in list_weights() if file.path.stem in used}


def _say(trained: TrainingSeeds) -> str:
    share = "" if trained.share_of_paper is None else f", {100 * trained.share_of_paper:.3g} % of the paper's"
    return (
        f"{counted(len(trained.seeds), 'training seed')}, each on {counted(trained.samples, 'sample')}{share}"
    )


def _parts(column: str) -> tuple[str, str]:
    """Split ``Value OOD | Tropical | Mean`` into setting and network."""
    levels = re.sub(r" \| (Mean|Std)$", "", column).split(" | ")
    return (levels[0], levels[1]) if len(levels) == 2 else ("", levels[0])
