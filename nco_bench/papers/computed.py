"""Numbers of published tables that come from the networks themselves, not from a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace

from nco_bench.papers.judging import Verdict, judge_computed, trained_otherwise
from nco_bench.papers.published import PublishedTable
from nco_bench.papers.settings import Ours, compared

Computed = dict[tuple[str, str], float]
Judged = Verdict | tuple[float, Verdict]
"""Why there is no number, or one that must not be judged by its size, and what to say of it."""


def decoder_configurations(table: PublishedTable, scale: str) -> Mapping[tuple[str, str], float | Judged]:
    """Parameters of the rows ``D=..., W=...``, counted, and the settings that they are counted from."""
    from nco_bench.nn.build import count_parameters_of, model_config

    found: Computed = {}
    settings: dict[tuple[str, str], Ours] = {}
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
            fields = {
                "Depth": "depth",
                "Width": "width",
                "Head Num": "heads",
                "QKV Dim": "head_dim",
                "FFN Dim": "ffn",
            }
            config, place = model_config(name), "our configuration"  # the same of all, or each has a footnote
            settings |= {(row, column): Ours(getattr(config, key), place) for column, key in fields.items()}
    return {**found, **compared(table, settings)}


PENS_ROWS = {"LEHD": "lehd", "BQ-NCO": "bq", "BQ-NCO+ESF": "bq-esf", "PENS": "pens-a"}
"""Rows of PENS Table 4 whose networks are here."""


def pens_parameters(table: PublishedTable, scale: str) -> Computed:
    """Parameters in millions of the networks of PENS Table 4, counted in our implementations."""
    from nco_bench.nn.build import count_parameters_of

    return {
        (row, "# Params"): count_parameters_of(name, "tsp") / 1e6
        for row, name in PENS_ROWS.items()
        if row in table.rows
    }


def registered_parameters(table: PublishedTable, scale: str) -> Computed:
    """Parameters in millions of solvers that are in the registry under the row's name in small letters.

    Raises
    ------
    UnknownNameError
        When one of the rows that ask for it is no solver yet.
    """
    from nco_bench.errors import UnknownNameError
    from nco_bench.nn.build import count_parameters_of
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


def sit_library_counts(table: PublishedTable, scale: str) -> Mapping[tuple[str, str], Judged]:
    """Instances of TSPLIB and CVRPLIB in SIT's Table 2, as our selections of the libraries have them."""
    from nco_bench.datasets.libraries import select

    names = {library: f"{library.lower()}:sit" for library in ("TSPLIB", "CVRPLIB")}
    counts = {library: Ours(len(select(name)), f"instances of {name}") for library, name in names.items()}
    return compared(
        table, {(row, f"{library} | Instances"): n for row in table.rows for library, n in counts.items()}
    )


def eie_curve_d16(table: PublishedTable, scale: str) -> Mapping[tuple[str, str], Judged]:
    """Learned lambda of EIE Table 5: heads of width 16, trained at 100."""
    return _eie_curve(table, 16, 100)


def eie_curve_d32(table: PublishedTable, scale: str) -> Mapping[tuple[str, str], Judged]:
    """Learned lambda of EIE Table 7: heads of width 32, trained at 120."""
    return _eie_curve(table, 32, 120)


def _eie_curve(table: PublishedTable, head_dim: int, training_size: int) -> Mapping[tuple[str, str], Judged]:
    from nco_bench.nn.eie import learned_scale

    differs = _eie_departures(head_dim, training_size)
    found: dict[tuple[str, str], Judged] = {}
    for cell in table.cells:
        n = int(cell.column.removeprefix("n="))
        value = learned_scale(float(n), head_dim, training_size)
        verdict = Verdict("other weights", differs) if differs else judge_computed(cell, value)
        if n == training_size:
            agrees = judge_computed(cell, value).status == "agrees"
            verdict = Verdict(
                f"setting {'matches' if agrees else 'differs'}", "1 / sqrt(d) there by definition"
            )
        found[cell.row, cell.column] = (value, verdict)
    return found


def _eie_departures(head_dim: int, training_size: int) -> str:
    """Say in which numbers the curve that ships was trained otherwise than the paper's, or return an empty string."""
    from nco_bench.nn.eie import EieConfig, weights_name
    from nco_bench.training.learners.eie import RECIPES
    from nco_bench.weights.store import resolve

    file = resolve(weights_name(head_dim, training_size), "eie")
    ours = {**file.manifest.recipe, **{key: file.manifest.config[key] for key in ("epsilon", "panels")}}
    papers = {**asdict(RECIPES["paper"]), "epsilon": EieConfig.epsilon, "panels": EieConfig.panels}
    others = [
        f"{key} = {ours[key]}, {known} in the paper" for key, known in papers.items() if ours[key] != known
    ]
    return trained_otherwise({**file.facts(), "departures": others})


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
