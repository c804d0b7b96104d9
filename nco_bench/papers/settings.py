"""Printed settings of networks and training beside ours: every value is read from a recipe, a configuration or a task.

A setting that differs says why. Nothing of ours is written down here but where it stands, so that a changed recipe changes
the tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from nco_bench.errors import UnknownNameError
from nco_bench.papers.judging import Verdict, half_unit
from nco_bench.papers.published import PublishedCell, PublishedTable
from nco_bench.papers.tropical.cells import ROWS as TASK_ROWS

ROUNDED = ("million parameters",)
"""Units whose printed numbers are rounded; all other settings must agree exactly."""


@dataclass(frozen=True)
class Ours:
    """Our value of a printed setting.

    Attributes
    ----------
    value
        A number in the printed unit, or a word; None where our recipe has no such field.
    field
        Where it stands, such as ``recipe paper: batch``.
    reason
        Why it differs, where it does.
    """

    value: float | str | None
    field: str
    reason: str = "our choice"


Settings = Mapping[tuple[str, str], Ours]
"""By row and column of the published table."""


def compared(
    table: PublishedTable, known: Settings
) -> dict[tuple[str, str], Verdict | tuple[float, Verdict]]:
    """Hold the settings of a published table against ours."""
    found: dict[tuple[str, str], Verdict | tuple[float, Verdict]] = {}
    for cell in table.cells:
        ours = known.get((cell.row, cell.column))
        if ours is None:
            continue
        verdict = judge_setting(cell, ours)
        found[cell.row, cell.column] = (
            (float(ours.value), verdict) if isinstance(ours.value, int | float) else verdict
        )
    return found


def judge_setting(cell: PublishedCell, ours: Ours) -> Verdict:
    """Return ``setting matches`` or ``setting differs`` with the reason."""
    if ours.value is None:
        return Verdict("setting differs", f"{ours.field}: there is no such field; {ours.reason}")
    if isinstance(ours.value, str):
        same = ours.value.casefold() == cell.value.casefold()
        said = f"{ours.field} = {ours.value}"
    else:
        slack = half_unit(cell) if cell.unit in ROUNDED else 0.0
        same = cell.number is not None and math.isclose(ours.value, cell.number, rel_tol=1e-9, abs_tol=slack)
        said = ours.field
    return Verdict("setting matches", said) if same else Verdict("setting differs", f"{said}: {ours.reason}")


def read(source: Any, name: str, place: str, reason: str = "our choice", per: float = 1.0) -> Ours:
    """Read a field of a recipe or configuration, divided by `per` where it is a number; None where it has none."""
    value = getattr(source, name, None)
    return Ours(value / per if isinstance(value, int | float) else value, f"{place}: {name}", reason)


def decoder_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """Decoder scaling's Table 9 beside the recipe ``paper``."""
    from nco_bench.training.recipes import recipe_for

    field = partial(read, recipe_for("decoder-6x128", {"recipe": "paper"}), place="decoder recipe paper")
    rows = {
        "Batch size": "batch", "Total training steps": "steps", "Optimizer": "optimizer", "Weight decay": "weight_decay",
        "Learning rate": "lr", "Scheduler": "schedule", "Decay gamma": "decay", "Decay step": "decay_every",
    }  # fmt: skip
    return compared(table, {(row, "Value"): field(name) for row, name in rows.items()})


def pens_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """The settings in PENS's section 5.1 beside PENS-A and its recipe ``paper``."""
    from nco_bench.nn.build import count_parameters_of, model_config
    from nco_bench.training.recipes import recipe_for

    recipe = recipe_for("pens-a", {"recipe": "paper"})
    model = partial(read, model_config("pens-a"), place="pens-a")
    training = partial(read, recipe, place="pens recipe paper")
    size = "see 'nco-bench show pens-a' for what the text leaves open"
    known = {
        "Layers": model("layers"), "Hidden dimension": model("width"), "Feedforward dimension": model("ffn"),
        "Attention heads": model("heads"), "Training size": model("training_size"),
        "Parameters": Ours(count_parameters_of("pens-a", "tsp") / 1e6, "pens-a: counted", size),
        "Optimizer": training("optimizer"), "Training steps (millions)": training("steps", per=1e6),
        "Batch size": training("batch"), "Schedule": training("schedule"),
        "Learning rate, first": training("lr"),
        "Learning rate, last": Ours(recipe.lr * recipe.final_lr, "pens recipe paper: lr x final_lr"),
    }  # fmt: skip
    return compared(table, {(row, "Value"): ours for row, ours in known.items()})


def sit_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """The settings in SIT's section 5 and appendix C beside its network and the recipe ``paper``."""
    from nco_bench.nn.build import model_config
    from nco_bench.training.learners.self_improved_course import COURSE

    model = partial(read, model_config("sit"), place="sit")
    known = {
        "Embedding dimension": model("width"), "Layers": model("layers"), "Attention heads": model("heads"),
        "Feed-forward dimension": model("ffn"), "Repetitions of the last node": model("repeats"),
        "Optimizer": read(COURSE.recipe("sit", {"recipe": "paper"}), "optimizer", "sit recipe paper"),
    }  # fmt: skip
    return compared(table, {(row, "Value"): ours for row, ours in known.items()})


def sit_training_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """SIT's Table 6 beside the recipes of self-improved learning, the one of each size."""
    found: dict[tuple[str, str], Any] = {}
    for column in table.columns:
        recipe = _sit_recipe(column)
        if recipe is None:
            found |= {(row, column): Verdict("not run", f"no recipe for {column}") for row in table.rows}
        else:
            found |= compared(table, {(row, column): ours for row, ours in _sit_fields(*recipe).items()})
    return found


def _sit_recipe(column: str) -> tuple[str, Any] | None:
    """Return name and recipe for a column such as ``CVRP10K``: the problem's own, else the size's; None without one."""
    from nco_bench.training.learners.self_improved_course import COURSE

    size = column.removeprefix("TSP").removeprefix("CVRP").lower()
    ending = "" if size == "1k" else f"-{size}"
    own = [f"paper{ending}-cvrp"] if column.startswith("CVRP") else []
    for name in (*own, f"paper{ending}"):
        with suppress(UnknownNameError):
            return name, COURSE.recipe("sit", {"recipe": name})
    return None


def _sit_fields(name: str, recipe: Any) -> dict[str, Ours]:
    place = f"sit recipe {name}"
    field = partial(read, recipe, place=place)
    rounds = "steps / rounds_updates"
    return {
        "Dataset Size": field("instances"),
        "Self-improved Iteration": Ours(recipe.steps / recipe.rounds_updates, f"{place}: {rounds}"),
        "Training Epoch": Ours(
            recipe.rounds_updates / recipe.decay_every, f"{place}: rounds_updates / decay_every"
        ),
        "Training Batch Size": field("batch"),
        "Reconstruction Iteration": field("iterations"),
        "Reconstruction Batch Size": field(
            "chunk", reason="a matter of memory, of no influence on the labels"
        ),
        "Learning Rate": field("lr"),
        "Decay per Training Epoch": field("decay"),
        "Partial Solution's Maximum Length": field("longest"),
    }


TASK_NAMES = {
    "SubsetSumDecision": "subset-sum",
    "ThreeSumDecision": "three-sum",
    "FloydWarshall": "floyd-warshall",
}
"""Rows of Tropical's Table 5 that Tables 1 and 3 call otherwise."""


def tropical_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """Tropical's Table 5 beside the ranges that the tasks' default variants draw, and the recipe."""
    from nco_bench.papers.tropical.drawn import drawn_otherwise, drawn_ranges, place_of
    from nco_bench.problems.tasks import TASKS
    from nco_bench.training.learners.task_course import COURSE, PAPER_SAMPLES, batch_of

    printed = {(cell.row, cell.column): cell.number for cell in table.cells}
    known: dict[tuple[str, str], Ours] = {}
    for row in table.rows:
        name = TASK_NAMES.get(row) or TASK_ROWS[row]
        task = TASKS[name]
        recipe = COURSE.recipe("tropical", {"recipe": "paper"}, (name,))
        samples = recipe.steps * batch_of(recipe, task)
        one_pass = f"{samples:,} samples, as the caption has it, but all fresh and seen once"
        passes = samples / PAPER_SAMPLES
        known[row, "Epochs"] = Ours(passes, "task recipe: steps x batch / 10,000,000", one_pass)
        for what, ends in drawn_ranges(task).items():
            low, high = ends or (None, None)
            both = (f"{what} | Low", f"{what} | High")
            place = place_of(task, what)
            why = drawn_otherwise(
                task, what, ends, (printed.get((row, both[0])), printed.get((row, both[1])))
            )
            known |= {
                (row, column): Ours(end, place, why)
                for column, end in zip((*both, what), (low, high, low), strict=True)
            }
    return compared(table, known)


def eie_settings(table: PublishedTable, scale: str) -> dict[tuple[str, str], Any]:
    """The settings in EIE's section 5 beside attend2pack, AM and lambda's network, and their recipes."""
    from nco_bench.nn.build import model_config
    from nco_bench.training.learners import packing as boxes
    from nco_bench.training.learners.policy_gradient_course import COURSE

    packing = boxes.COURSE.recipes("attend2pack")["paper"]
    routing = COURSE.recipes("am")["eie"]
    known = _eie_column(
        "O3BPP", packing, model_config("attend2pack", "bpp3d"), "attend2pack recipe paper", "boxes"
    )
    network = model_config("attend2pack", "bpp3d")
    known["Output channels of the convolutions", "O3BPP"] = read(network, "channels", "attend2pack")
    known["Training size N, d = 32", "O3BPP"] = read(
        boxes.COURSE.recipes("attend2pack")["paper-d32"], "boxes", "attend2pack recipe paper-d32"
    )
    known["Significance level", "O3BPP"] = Ours(boxes.LEVEL, "attend2pack: boxes.LEVEL of the test")
    known["Normalization", "O3BPP"] = Ours(_norm_of_attend2pack(), "attend2pack: norm after attention")
    for problem in ("TSP", "CVRP"):
        am = model_config("am", problem.lower())
        known |= _eie_column(problem, routing, am, "am recipe eie", "size")
        known["Training size N, d = 32", problem] = read(
            COURSE.recipes("am")["eie-d32"], "size", "am recipe eie-d32"
        )
        known["Significance level", problem] = read(routing, "significance", "am recipe eie")
        known["Normalization", problem] = Ours(f"{routing.normalization}norm", "am recipe eie: normalization")
    known |= {
        ("Batch size, packing", "O3BPP"): read(packing, "batch", "attend2pack recipe paper"),
        ("Batch size", "TSP"): read(routing, "batch", "am recipe eie"),
        ("Learning rate", "TSP"): read(routing, "lr", "am recipe eie"),
        ("Learning rate, C_v = 15, 20", "CVRP"): read(
            routing, "lr", "am recipe eie",
            f"the recipe is that of C_v = {routing.capacity:g}; for 15 and 20 add --config lr=5e-5",
        ),
    }  # fmt: skip
    return compared(table, known | _lambda_fields())


def _norm_of_attend2pack() -> str:
    import torch

    from nco_bench.nn.build import build_path_policy

    with torch.device("meta"):
        network = build_path_policy("attend2pack", "bpp3d")
    return next(type(m.norm_attention).__name__ for m in network.modules() if hasattr(m, "norm_attention"))


def _eie_column(column: str, recipe: Any, model: Any, place: str, size: str) -> dict[tuple[str, str], Ours]:
    training, network = partial(read, recipe, place=place), partial(read, model, place=place)
    known = {
        "Optimizer": training("optimizer"),
        "Factor of the learning rate where p > 0.95": training("shrink"),
        "Epochs": Ours(recipe.steps / recipe.epoch_steps, f"{place}: steps / epoch_steps"),
        "Steps per epoch": training("epoch_steps"),
        "Heads": network("heads"),
        "Dimension of the head": Ours(model.width / model.heads, f"{place}: width / heads"),
        "Layers": network("layers"),
        "Feed-forward layers, hidden": network("ffn"),
        "Feed-forward layers, output": network("width"),
        "Temperature coefficient C": network("clip"),
        "Training size N": training(size),
    }
    return {(row, column): ours for row, ours in known.items()}


def _lambda_fields() -> dict[tuple[str, str], Ours]:
    from nco_bench.nn.eie import EieConfig
    from nco_bench.training.learners.eie import RECIPES

    recipe, config = RECIPES["paper"], EieConfig()
    place = "lambda(n) recipe paper"
    known = {
        "residual blocks": read(config, "blocks", "lambda(n)"),
        "width": read(config, "width", "lambda(n)"),
        "learning rate": read(recipe, "lr", place),
        "epochs": read(recipe, "steps", place),
        "factor per epoch": Ours(recipe.final_lr ** (1 / recipe.steps), f"{place}: final_lr ^ (1 / steps)"),
        "batch size": read(recipe, "batch", place),
        "epsilon": read(config, "epsilon", "lambda(n)"),
        "N_max": read(config, "largest_size", "lambda(n)"),
    }
    return {(f"lambda network, {row}", "lambda(n)"): ours for row, ours in known.items()}
