"""Which ranges a task is really drawn from: its generator's own draws, written down while it makes instances.

A range that stands in the table of tasks need not be in force: a variant may aim its targets, or add noise of another kind.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.problems.tasks import VARIANTS, Task
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.scc import ACROSS

INSTANCES, SEED = 4000, 1234
"""Enough for the ends of the widest printed range (751 values, eight to an instance), always the same ones."""

TARGETS = {"bin-packing": 1}
"""Feature that holds the target or capacity, where it is not the last one."""

Range = tuple[float, float]


class Listening(Draws):
    """Draws that note the smallest and the largest integer of each call."""

    def __init__(self, key: tuple[int, ...], start: int, count: int) -> None:
        super().__init__(key, start, count)
        self.heard: list[Range] = []

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int32]:
        """Return integers as `Draws` does."""
        found = super().integers(low, high, *shape)
        self.heard.append(_ends(found))
        return found


def drawn_ranges(task: Task) -> dict[str, Range | None]:
    """Return what the ranges of the paper's Table 5 are in a task, by column; None where it has no such number.

    Values, weights and noise are the integers of the generator, before it clamps or normalises them; targets are those in
    the instances, and where no integers were drawn stand the real numbers in the instances.
    """
    sampling, noising, elsewhere = (Listening((SEED, use), 0, INSTANCES) for use in range(3))
    module: Any = import_module(f"nco_bench.problems.tasks.{task.name.replace('-', '_')}")
    clean = module.sample(sampling, task.train_n, task.ranges("id"), task.variant).inputs
    noisy = clean.copy()
    module.perturb(noising, noisy, task.noise or (0, 0), task.variant)
    far = module.sample(elsewhere, task.train_n, task.ranges("value-ood"), task.variant).inputs
    # The generators draw values first; a graph of scc has a probability, which no draw shows.
    values, ood = task.values, task.ood_values
    if task.name != "scc":
        values, ood = _first(sampling, clean[..., 0]), _first(elsewhere, far[..., 0])
    return {
        "Target Range": _ends(clean[..., TARGETS.get(task.name, -1)]) if task.target else None,
        "Weight Range": sampling.heard[1] if task.weight else None,
        "Value Range": values,
        "OOD Value Range": ood,
        "Perturbative Noise Range": _first(noising, noisy - clean) if task.noise else None,
    }


def drawn_otherwise(
    task: Task, what: str, drawn: Range | None, printed: tuple[float | None, float | None]
) -> str:
    """Say what a variant draws in place of a printed range, and which other variants have that range."""
    if drawn is None or None in printed or drawn == printed:
        return "our choice"
    kind = "" if all(end == int(end) for end in drawn) else "real numbers from "
    others = [v.variant for v in VARIANTS[task.name].values() if drawn_ranges(v)[what] == printed]
    alike = f"as printed with variant={' or '.join(others)}" if others else "as printed with no variant"
    low, high = (f"{round(end, 2):g}" for end in drawn)
    return f"variant {task.variant} draws {kind}{low} to {high}; {alike}"


def place_of(task: Task, what: str) -> str:
    """Return where a range stands; a graph of scc has a second probability, which the paper does not print."""
    across = f" (inside a part; across parts {ACROSS[task.variant]})" if task.name == "scc" else ""
    return f"task {task.name}: {what.lower()}{across}"


def _first(draws: Listening, numbers: NDArray[np.float32]) -> Range:
    """Return the range of the first integers that were drawn; of the numbers that are not 0 where none were."""
    return draws.heard[0] if draws.heard else _ends(numbers[numbers != 0])


def _ends(numbers: NDArray[Any]) -> Range:
    return float(numbers.min()), float(numbers.max())
