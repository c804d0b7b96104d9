"""
Scores out of distribution against the samples of training: what more training does to the tables of Tropical Attention.

    python benchmarks/task_rounds.py CAMPAIGN/round-* --out results/training/task-rounds.csv
    python benchmarks/task_rounds.py --table results/training/task-rounds.csv

The folders are rounds of `python -m nco_bench.training.task_campaign`: weights called NETWORK-TASK-seedK. Every network is
scored on the same instances (``--count``) in the three settings: F1 of the positive class in percent, or the mean squared
error. ``--table`` prints means and deviations over seeds beside what the paper prints after 10,000,000 samples.
"""

from __future__ import annotations

import argparse
import re
from functools import lru_cache
from pathlib import Path

import pandas as pd
import torch

from nco_bench.cards import trained_by
from nco_bench.papers.published import load_table
from nco_bench.papers.tropical.cells import ROWS, SETTINGS
from nco_bench.problems.tasks import TASKS, TaskBatch, generate
from nco_bench.solvers.sequences.task_scores import score_network
from nco_bench.weights.manifest import manifest_path, read_manifest

TASK_NETWORKS = trained_by("tasks")
NAME = re.compile(rf"({'|'.join(sorted(TASK_NETWORKS, key=len, reverse=True))})-(.+)-seed(\d+)")


@lru_cache
def instances(task: str, setting: str, count: int) -> TaskBatch:
    """The instances that all networks of a task are scored on."""
    return generate(task, setting, None, count)


def scored(folder: Path, count: int) -> list[dict[str, object]]:
    """One row per network and setting."""
    rows: list[dict[str, object]] = []
    for file in sorted(folder.glob("*.safetensors")):
        found = NAME.fullmatch(file.stem)
        if found is None:
            raise SystemExit(f"{file}: not called NETWORK-TASK-seedK.")
        network, task, seed = found.groups()
        samples = read_manifest(manifest_path(file)).samples
        for setting in SETTINGS.values():
            score = score_network(network, TASKS[task], instances(task, setting, count), str(file)).main
            rows.append(
                {"network": network, "task": task, "seed": int(seed), "samples": samples}
                | {"setting": setting, "instances": count, "score": round(score, 6)}
            )
    return rows


def printed(network: str, task: str, setting: str) -> str:
    """What the paper prints, empty where it prints nothing."""
    row = next(r for r, t in ROWS.items() if t == task)
    prefix = next(p for p, s in SETTINGS.items() if s == setting)
    printed = TASK_NETWORKS[network].facts["published"]
    column = f"{prefix} | {printed}" if prefix else printed
    for cell in load_table("tropical", 3 if prefix else 1).cells:
        if cell.row == row and cell.column.removesuffix(" | Mean") == column and cell.number is not None:
            return f"{cell.number:g}"
    return ""


def table(path: Path) -> None:
    """Print a Markdown table per setting: mean ± sample deviation over seeds by samples, and the printed mean."""
    frame = pd.read_csv(path)
    frame["order"] = frame["task"].map(list(ROWS.values()).index)
    frame = frame.sort_values(["order", "samples", "seed"], kind="stable")
    for setting, part in frame.groupby("setting", sort=False):
        steps = sorted(part["samples"].unique())
        print(
            f"\n### {setting}\n\n| task | network | " + " | ".join(f"{s:,}" for s in steps) + " | printed |"
        )
        print("| --- | --- |" + " ---: |" * (len(steps) + 1))
        for key, group in part.groupby(["task", "network"], sort=False):
            task, network = map(str, key)
            cells = []
            for samples in steps:
                scores = group.loc[group["samples"] == samples, "score"]
                spread = f" ± {round(scores.std(), 9):.2g}" if len(scores) > 1 else ""
                cells.append(f"{scores.mean():.4g}{spread}" if len(scores) else "–")
            print(
                f"| {task} | {network} | " + " | ".join([*cells, printed(network, task, str(setting))]) + " |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rounds", type=Path, nargs="*", help="folders of weights")
    parser.add_argument("--count", type=int, default=500, help="instances per setting")
    parser.add_argument("--out", type=Path, help="CSV to write")
    parser.add_argument("--table", type=Path, help="CSV to print as Markdown")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.rounds:
        if given.out is None:
            raise SystemExit("--out FILE.csv is needed.")
        rows = [row for folder in given.rounds for row in scored(folder, given.count)]
        pd.DataFrame(rows).to_csv(given.out, index=False)
    if given.table is not None:
        table(given.table)


if __name__ == "__main__":
    main()
