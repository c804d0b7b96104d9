"""Numbers of published tables that come from the networks themselves, not from a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nco_bench.papers.judging import Verdict, judge_computed, trained_otherwise
from nco_bench.papers.published import PublishedTable

Computed = dict[tuple[str, str], float]
Judged = Verdict | tuple[float, Verdict]
"""Why there is no number, or one that must not be judged by its size, and what to say of it."""


def decoder_configurations(table: PublishedTable, scale: str) -> Computed:
    """Depth, width, heads, head width, feed-forward width and parameters of the rows ``D=..., W=...``."""
    from nco_bench.nn.build import model_config

    found: Computed = {}
    for row in table.rows:
        shape = re.search(r"D=(\d+), W=(\d+)", row)
        if shape is None:
            continue
        name = f"{'lehd' if 'LEHD' in row else 'decoder'}-{shape[1]}x{shape[2]}"
        if name == "lehd-6x128":
            name = "lehd"
        parameters = count_parameters_of(name, "tsp") / 1e6
        found[row, "Parameters"] = parameters
        if name.startswith("decoder"):
            config = model_config(name)
            facts = (
                ("Depth", config.depth), ("Width", config.width), ("Head Num", config.heads),
                ("QKV Dim", config.head_dim), ("FFN Dim", config.ffn),
            )  # fmt: skip
            found |= {(row, column): float(value) for column, value in facts}
    return found


PENS_ROWS = {"LEHD": "lehd", "BQ-NCO": "bq", "BQ-NCO+ESF": "bq-esf", "PENS": "pens-a"}
"""Rows of PENS Table 4 whose networks are here."""


def pens_parameters(table: PublishedTable, scale: str) -> Computed:
    """Parameters in millions of the networks of PENS Table 4, counted in our implementations."""
    return {
        (row, "# Params"): count_parameters_of(name, "tsp") / 1e6
        for row, name in PENS_ROWS.items()
        if row in table.rows
    }


def decoder_flops(table: PublishedTable, scale: str) -> Computed:
    """GFLOPs of one greedy TSP100 solution (decoder scaling, Table 17): two operations per multiply-add.

    The printed ones are twice as large: they are those of sequences that do not shrink, see the preset's notes.

    Per layer and step of T tokens of width W, with heads that make up H in all: 2 T (4 W H + W^2 + 8 W^2) for queries, keys,
    values, output, gate and feed-forward layers, and 4 T^2 H for the attention itself.
    """
    from nco_bench.nn.build import model_config

    found: Computed = {}
    for row in table.rows:
        shape = re.search(r"D=(\d+), W=(\d+)", row)
        if shape is None:
            continue
        config = model_config(f"decoder-{shape[1]}x{shape[2]}")
        inner = config.heads * config.head_dim
        linear = 4 * config.width * inner + config.width**2 + 2 * config.width * config.ffn
        tokens = range(3, 102)  # 99 steps: from all remaining nodes with both ends down to the last choice
        operations = config.depth * sum(2 * t * linear + 4 * t * t * inner for t in tokens)
        found[row, "Compute per solution"] = operations / 1e9
    return found


def count_parameters_of(name: str, problem: str) -> int:
    """Count the trainable values of a model without making them."""
    import torch

    from nco_bench.nn.build import build_path_policy, count_parameters

    with torch.device("meta"):
        return count_parameters(build_path_policy(name, problem))


def registered_parameters(table: PublishedTable, scale: str) -> Computed:
    """Parameters in millions of solvers that are in the registry under the row's name in small letters.

    Raises
    ------
    UnknownNameError
        When one of the rows that ask for it is no solver yet.
    """
    from nco_bench.errors import UnknownNameError
    from nco_bench.solvers.registry import all_solvers

    known = all_solvers()
    found: Computed = {}
    for row in table.rows:
        info = known.get(row.lower())
        if info is not None and info.kind == "neural":
            found[row, "# Params"] = count_parameters_of(info.name, "tsp") / 1e6
    missing = [row for row in ("INViT-2V", "INViT-3V", "DGL") if (row, "# Params") not in found]
    if not found:
        raise UnknownNameError("solver", missing[0].lower(), known)
    return found


def pens_scaling_factors(table: PublishedTable, scale: str) -> Mapping[tuple[str, str], Judged]:
    """Estimated scaling factors of PENS Table 1, from the calibration beside the weights.

    Raises
    ------
    BadWeightsError
        When the weights are missing or were never calibrated.
    """
    from nco_bench.errors import BadWeightsError
    from nco_bench.weights.calibration import calibrate_command, read_calibration
    from nco_bench.weights.choice import find

    found: dict[tuple[str, str], Judged] = {}
    cells = {(cell.row, cell.column): cell for cell in table.cells}
    calibrated = False
    for row in table.rows:
        if "(scaled)" not in row:
            continue
        weights = find(model := row.split()[0].lower(), model, "tsp")
        known = read_calibration(weights)
        sizes = ", ".join(str(c.n) for c in known)
        told = f"calibrated for {sizes} nodes" if known else "not calibrated"
        command = f"{calibrate_command(model, None)} --sizes"
        for column in (column for column in table.columns if column.endswith("Scaling factor")):
            n = column.partition(" ")[0].removeprefix("TSP")
            found[row, column] = Verdict("not run", f"{model} is {told}; '{command} {n}' adds this one")
        differs = trained_otherwise(weights.facts())
        calibrated |= bool(known)
        for c in known:
            how = f"{'vertex' if c.fitted else 'best of the grid'} on {c.instances} held-out instances of seed {c.seed}"
            column = f"TSP{c.n} | Scaling factor"
            verdict = Verdict("other weights", f"{differs}; {how}")
            if not differs and (row, column) in cells:
                verdict = replace(judge_computed(cells[row, column], c.factor), reason=how)
            found[row, column] = (c.factor, verdict)
    if not calibrated:
        raise BadWeightsError("the weights have no calibration; 'nco-bench calibrate pens-a' makes one")
    return found


def sit_library_counts(table: PublishedTable, scale: str) -> Computed:
    """Instances of TSPLIB and CVRPLIB in SIT's Table 2, as our selections of the libraries have them."""
    from nco_bench.datasets.libraries import select

    counts = {library: len(select(f"{library.lower()}:sit")) for library in ("TSPLIB", "CVRPLIB")}
    return {(row, f"{library} | Instances"): float(n) for row in table.rows for library, n in counts.items()}


def eie_curve_d16(table: PublishedTable, scale: str) -> Computed:
    """Learned lambda of EIE Table 5: heads of width 16, trained at 100."""
    return _eie_curve(table, 16, 100)


def eie_curve_d32(table: PublishedTable, scale: str) -> Computed:
    """Learned lambda of EIE Table 7: heads of width 32, trained at 120."""
    return _eie_curve(table, 32, 120)


def _eie_curve(table: PublishedTable, head_dim: int, training_size: int) -> Computed:
    from nco_bench.nn.eie import learned_scale

    sizes = {column: int(column.removeprefix("n=")) for column in table.columns}
    return {
        (row, column): learned_scale(float(n), head_dim, training_size)
        for row in table.rows
        for column, n in sizes.items()
    }


TASK_ROWS = {
    "Vanilla UT w/ ACT": "ut-vanilla",
    "Adaptive UT w/ ACT": "ut-adaptive",
    "Tropical Transformer": "tropical",
}
"""Rows of the tropical paper's Table 2."""


def task_network_parameters(table: PublishedTable, scale: str) -> Computed:
    """Parameters of the tropical paper's Table 2, counted in our networks with three features per token."""
    from nco_bench.nn.build import count_parameters
    from nco_bench.solvers.sequences.task_networks import build_task_network

    return {
        (row, "Parameters"): float(count_parameters(build_task_network(name, 3, False)))
        for row, name in TASK_ROWS.items()
        if row in table.rows
    }
