"""Make fixtures of the algorithmic tasks from the authors' generators: instances, also noisy ones, and their labels.

git clone https://github.com/Baran-phys/Tropical-Attention
python tools/parity/make_tasks.py --official Tropical-Attention --out parity
nco-bench parity parity/tasks-*.safetensors
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from making import arguments, import_from, write_fixture
from torch import Tensor

REPOSITORY = "Baran-phys/Tropical-Attention"
COMMIT = "e3c12f3e7c401245b9b5577d7181922b0150efc6"
SEED, COUNT = 2100, 5
Ranges = dict[str, Any]
TASKS: dict[str, tuple[str, str, str, Ranges]] = {
    "subset-sum": ("SubsetSumDecision", "", "", {"value": (-5, 5), "ood": (-20, 20), "noise": (10, 30)}),
    "knapsack": ("Knapsack", "y", "best_value", {
        "target": (10, 20), "weight": (1, 10), "value": (1, 10), "ood": (11, 21), "noise": (10, 30)}),
    "fractional-knapsack": ("FractionalKnapsack", "fractions", "log1p_value", {
        "target": (10, 20), "weight": (1, 10), "value": (1, 10), "ood": (11, 21), "noise": (1, 5)}),
    "min-coin-change": ("MinCoinChange", "y", "count", {
        "target": (10, 20), "value": (1, 10), "ood": (11, 21), "noise": (1, 5)}),
    "quickselect": ("Quickselect", "y", "kth_value", {"value": (1, 10), "ood": (11, 21), "noise": (1, 5)}),
    "balanced-partition": ("BalancedPartition", "y", "diff", {"value": (1, 10), "ood": (11, 100), "noise": (10, 30)}),
    "bin-packing": ("BinPacking", "y", "bins", {
        "target": (10, 30), "value": (1, 10), "ood": (11, 100), "noise": (10, 30)}),
    "convex-hull": ("ConvexHull", "y", "", {"value": (0, 10), "ood": (11, 21), "noise": (1, 5)}),
    "three-sum": ("ThreeSumDecision", "", "", {
        "target": (-75, 75), "value": (-20, 20), "ood": (-375, 375), "noise": (40, 60)}),
    "floyd-warshall": ("FloydWarshall", "pred", "dist", {"value": (1, 15), "ood": (16, 30), "noise": (1, 10)}),
    "scc": ("SCC", "y", "", {"value": 0.001, "ood": 0.1}),
}  # fmt: skip
"""Task -> the authors' class, what it labels items and whole instances with (none: it has one label), and its ranges."""
GRAPHS = ("floyd-warshall", "scc")


def main() -> None:
    options = arguments(__doc__)
    if importlib.util.find_spec("quickselect") is None:  # a package that selects; so does sorting
        stand_in = ModuleType("quickselect.hoare")
        stand_in.nth_smallest = stand_in.select = lambda values, k: sorted(values)[k]  # type: ignore[attr-defined]
        sys.modules |= {"quickselect": ModuleType("quickselect"), "quickselect.hoare": stand_in}
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for task in TASKS:
        make(task, options.out)


def make(task: str, out: Path) -> None:
    """Make the fixture of one task: as in training, longer, of other values, and with noise that the labels do not know."""
    _, _, _, ranges = TASKS[task]
    short, long = (5, 8) if task in GRAPHS else (8, 20)
    cases: dict[str, Ranges] = {
        "id": {}, "length": {"length_range": (long, long)}, "value": {"value_range": ranges["ood"]}, "noise": {},
    }  # fmt: skip
    if task == "scc":  # components of more than one node
        cases["dense"] = {"value_range": 0.35, "eps": 0.15, "length_range": (7, 7)}
    inputs: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    for number, (case, changed) in enumerate(cases.items()):
        given = {"length_range": (short, short), "value_range": ranges["value"], **changed}
        given |= {f"{key}_range": ranges[key] for key in ("target", "weight") if key in ranges}
        seeds = range(SEED + 100 * number, SEED + 100 * number + COUNT)
        clean, labels = drawn(task, seeds, given)
        if case == "noise":
            noise = {"noise_prob": 0.5, "adversarial_range": ranges.get("noise")}
            noisy, same = drawn(task, seeds, given | noise)
            if any(not torch.equal(labels[key], same[key]) for key in labels):
                sys.exit(f"{task}: noise changed a label.")
            inputs |= {"noise.x_clean": clean, "noise.x": noisy}
        else:
            inputs[f"{case}.x"] = clean
            if task == "quickselect":
                inputs[f"{case}.raw"], _ = drawn(task, seeds, given | {"normalize": False})
        if case == "noise" and task == "quickselect":
            del labels["kth_value"]  # hidden by the normalisation
        expected |= {f"{case}.{key}": value for key, value in labels.items()}
    facts = {
        "fixture": f"tasks-{task}", "task": task, "official_repo": REPOSITORY, "commit": COMMIT, "batch": COUNT,
        "ranges": ranges, "seed": SEED, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, f"tasks-{task}", {}, inputs, expected, facts)


def drawn(task: str, seeds: range, given: Ranges) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the authors' instances, one of each seed, and their labels. Noise is drawn last, so a seed is one instance."""
    import dataloaders

    name, of_items, of_whole, _ = TASKS[task]
    kind = getattr(dataloaders, f"{name}Dataset")
    labels: dict[str, Tensor] = {}
    for classification, label in ((False, of_whole), (True, of_items or "y")):
        if label:
            pairs = [
                kind(n_samples=1, seed=seed, classification=classification, **given)[0] for seed in seeds
            ]
            found = torch.stack([y for _, y in pairs]).float()
            whole = bool((found == found.byte()).all())
            labels[label] = found.byte() if whole else found
    return torch.stack([x for x, _ in pairs]), labels


if __name__ == "__main__":
    main()
