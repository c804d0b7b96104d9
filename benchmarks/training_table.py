"""
How far the path models are trained: their gaps beside the papers', as Markdown tables.

    python benchmarks/training_table.py > results/training/README.md

Everything is read: what was trained and measured from the manifests of the weights (of those that do not ship, from
copies beside the logs), the course of the validation from the logs in ``results/training``, the papers' gaps from
``nco_bench/papers``.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from nco_bench.papers.published import load_table
from nco_bench.reports.figures.training_curves import read_training_logs
from nco_bench.weights.manifest import Manifest, read_manifest
from nco_bench.weights.shelf import list_weights
from nco_bench.weights.store import shipped_folders

LOGS = Path("results/training")
PRINTED = {
    "decoder-6x128": ("decoder-scaling", "2", "D=6, W=128", "TSP{n} | Gap"),
    "decoder-6x128-adamw": ("decoder-scaling", "2", "D=6, W=128", "TSP{n} | Gap"),
    "decoder-6x128-muon": ("decoder-scaling", "2", "D=6, W=128", "TSP{n} | Gap"),
    "decoder-24x64": ("decoder-scaling", "2", "D=24, W=64", "TSP{n} | Gap"),
    "decoder-12x128": ("decoder-scaling", "12", "D=12, W=128 greedy", "TSP{n} | Gap"),
    "decoder-24x128": ("decoder-scaling", "12", "D=24, W=128 greedy", "TSP{n} | Gap"),
    "decoder-42x128": ("decoder-scaling", "12", "D=42, W=128 greedy", "TSP{n} | Gap"),
    "bq": ("decoder-scaling", "5", "BQ greedy", "TSP{n} | Gap"),
    "lehd": ("decoder-scaling", "20", "LEHD D=6, W=128", "TSP{n} | Gap"),
    "pens-a": ("pens", "2", "PENS-A", "TSP{n} | Gap"),
    "pens-a-former": ("pens", "2", "PENS-A", "TSP{n} | Gap"),
    "pens-r": ("pens", "2", "PENS-R", "TSP{n} | Gap"),
    "pens-ar": ("pens", "2", "PENS-AR", "TSP{n} | Gap"),
}
"""Where a paper prints the greedy gap of a model: paper, table, row, column."""
SIZES = (100, 200, 500, 1000)
HEAD = """# How far the path models are trained

Greedy gaps in percent with half widths of 95 % intervals (instances in brackets), as the manifests state them; in italics
what the paper prints. `validation` is the last gap in the training log, on instances held out of training. Samples are
sub-paths with one decision each. Made by `benchmarks/training_table.py`; the pictures beside this page by
`nco-bench plot training LOG... --level paper=GAP --out FILE.png`. (AM's loss is the length of its tours, of instances that
grow meanwhile; of SIT's first three runs only the last one's log is there, what came before is in its manifest.)
"""


UNSHIPPED = """
Trained as well, and left out to keep the package small (3 to 18 MB each in bf16); `nco-bench train` makes them anew, with
the recipe, the data and the start that the manifests beside this page name. From `decoder-6x128-adamw` `decoder-6x128-muon`
went on, and from that the one that ships, on policy; its samples count those before. `decoder-12x128` was grown from
`decoder-6x128-adamw`,
`decoder-24x128` from that and `decoder-42x128` from that again; what they had learned before is not in their samples.
`pens-a-former` has an output projection, which the one that ships has not:
"""
CVRP = """
For the CVRP, against the references of the test sets (best of HGS, PyVRP and LKH3 for 100 customers, LKH3 above):
"""


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    ships = [file.manifest for file in list_weights(shipped_folders())]
    learned = [
        manifest for manifest in ships if manifest.recipe.get("learner") in ("supervised", "on-policy")
    ]
    print(HEAD)
    table([manifest for manifest in learned if manifest.problem == "tsp"], "TSP-{}", SIZES)
    print(CVRP)
    table([manifest for manifest in learned if manifest.problem == "cvrp"], "CVRP-{}", SIZES)
    print(UNSHIPPED)
    table([read_manifest(path) for path in sorted(LOGS.glob("*.json"))], "TSP-{}", SIZES)


def table(manifests: Sequence[Manifest], column: str, sizes: Sequence[int]) -> None:
    """Print a table of the models that were measured at any of the sizes."""
    names = [column.format(n) for n in sizes]
    print("| weights | samples | hours | of the paper's | validation | " + " | ".join(names) + " |")
    print("|---" * (5 + len(sizes)) + "|")
    for manifest in manifests:
        cells = [measured(manifest, name) for name in names]
        if any(cells):
            print("| " + " | ".join([*facts(manifest), *(c or "–" for c in cells)]) + " |")


def facts(manifest: Manifest) -> list[str]:
    """Name, samples, hours, share of the paper's samples, and the last validation."""
    share = "–" if manifest.share_of_paper is None else f"{100 * manifest.share_of_paper:.2g} %"
    log = LOGS / f"{manifest.name}.csv"
    gaps = read_training_logs(log)[""]["validation_gap"] if log.exists() else []
    known = [gap for gap in gaps if gap == gap]
    last = f"{known[-1]:.1f}" if known else "–"
    return [f"`{manifest.name}`", f"{manifest.samples:,}", f"{manifest.hours:.2g}", share, last]


def measured(manifest: Manifest, size: str) -> str:
    """The measured gap at a size such as TSP-100, with the printed one; empty where it was not measured."""
    dataset = size.lower().replace("-", "")
    for found in manifest.validation:
        if re.search(rf"{dataset}\b", found.on) and "held out" not in found.on:
            ours = f"{found.gap_percent:.1f} ± {found.ci95_percent:.1f} ({found.instances})"
            paper = printed(manifest.name, int(size.partition("-")[2])) if manifest.problem == "tsp" else ""
            return ours + (f" *{paper}*" if paper else "")
    return ""


def printed(name: str, n: int) -> str:
    if name not in PRINTED:
        return ""
    paper, table, row, column = PRINTED[name]
    for cell in load_table(paper, table).cells:
        if (cell.row, cell.column) == (row, column.format(n=n)) and cell.number is not None:
            return f"{cell.number:g}"
    return ""


if __name__ == "__main__":
    main()
