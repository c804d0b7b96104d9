"""EIE by where lambda acts: the tables of results/eie/README.md, from the records of that folder.

python benchmarks/eie_readings.py                       # results/eie
python benchmarks/eie_readings.py --results results/eie results/cpu   # with the instances of Tables 2 and 3

Each line is one scale in one place: the mean length, and its change against 1/sqrt(d) on the same instances with a
95 % interval (Student's t over instances). A bare ``eie`` or ``ln-n-over-d`` in a record is from a version that scaled
encoder and glimpse.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from nco_bench.reports.frame.load import load_frame

OLD = {
    "eie": "eie:at=both",
    "ln-n-over-d": "ln-n-over-d:at=both",
    "ln-n-over-sqrt-d": "ln-n-over-sqrt-d:at=both",
}
"""What bare names in records mean."""

SCALES = ("none", "eie:at=encoder", "eie:at=both", "ln-n-over-d:at=encoder", "ln-n-over-d:at=both")


def lengths(results: Path) -> pd.DataFrame:
    """One row per instance and scale: weights, problem, capacity, n, dataset, instance, scale, cost."""
    frame = load_frame(results)
    records = frame.records[["group", "instance", "n", "cost"]].dropna()
    facts = []
    for group in frame.groups:
        cell = group.cell
        capacity = re.search(r"capacity=(\d+)", cell.dataset)
        scale = cell.options["logit_scale"]
        facts.append(
            (
                (cell.weights or {}).get("name"),
                capacity[1] if capacity else "",
                cell.dataset,
                OLD.get(scale, scale),
            )
        )
    names = ["weights", "capacity", "dataset", "scale"]
    rows = pd.DataFrame([facts[code] for code in records["group"]], columns=names, index=records.index)
    return pd.concat([rows, records.drop(columns="group")], axis=1)


def change(part: pd.DataFrame, scale: str) -> str:
    """Mean length of a scale, its change against none in percent with its interval, and the instances."""
    wide = part.pivot_table(index=["dataset", "instance"], columns="scale", values="cost")
    if scale not in wide or "none" not in wide:
        return "–"
    both = wide[["none", scale]].dropna()
    if scale == "none":
        return f"{both.iloc[:, 0].mean():.2f} ({len(both)})"
    cost, plain = both[scale].to_numpy(), both["none"].to_numpy()
    ratio = cost.mean() / plain.mean()
    residual = 100 * (cost - ratio * plain) / plain.mean()  # a ratio of means, linearised
    reach = stats.t.ppf(0.975, len(both) - 1) * residual.std(ddof=1) / np.sqrt(len(both))
    return f"{cost.mean():.2f} {100 * (ratio - 1):+.2f} ± {reach:.2f} % ({len(both)})"


def main() -> None:
    """Print a table per weights and capacity."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, nargs="+", default=[Path("results/eie")])
    rows = pd.concat([lengths(folder) for folder in parser.parse_args().results])
    for (weights, capacity), part in rows.groupby(["weights", "capacity"]):
        sizes = sorted(part["n"].unique())
        print(f"\n### {weights}{f', C = {capacity}' if capacity else ''}\n")
        print(f"| n | {' | '.join(map(str, sizes))} |\n| --- |{' --- |' * len(sizes)}")
        for scale in SCALES:
            cells = [change(part[part["n"] == size], scale) for size in sizes]
            print(f"| {scale} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
