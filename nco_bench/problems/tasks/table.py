"""The eleven algorithmic tasks of the Tropical Attention paper (Table 5), and the way from a name to instances.

Settings: ``id`` (as in training), ``length-ood`` (longer), ``value-ood`` (another value range; targets, capacities and
weights keep theirs) and ``noise-ood`` (the ``id`` instances with each token perturbed with probability 0.5; labels
stay those of the clean instance). ``noise-ood`` and ``id`` of one seed hold the same instances before the noise.

Variants: the public generators changed between commits; the first variant of a task is its default, chosen by which one the
published numbers fit. Ranges are those of the paper's table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.tasks.draws import Draws
from nco_bench.problems.tasks.spec import Clean, Ranges, TaskBatch

STREAM_VERSION = 1
"""Part of every stream's key; bumped when the same name gives other numbers."""

SETTINGS = ("id", "length-ood", "value-ood", "noise-ood")
BLOCK = 8192
"""Instances of length 8 that are made together; longer ones are made in smaller blocks, to bound the memory."""


@dataclass(frozen=True)
class Task:
    """One task in one variant.

    Attributes
    ----------
    name, variant
        As in ``floyd-warshall:variant=distances``.
    output
        ``token``: one answer per token; ``pooled``: one per instance.
    answer
        ``binary`` (0/1), ``classes`` (0 .. n) or ``real``.
    width
        Features per token.
    values, ood_values
        Value ranges in training and in the setting ``value-ood``.
    noise
        Range of the perturbation, None where it needs none.
    target, weight
        Ranges of targets or capacities and of weights.
    graph
        Whether n counts nodes; there are n * n tokens then.
    lengths
        Smallest and largest n supported.
    """

    name: str
    variant: str
    output: str
    answer: str
    width: int
    values: tuple[Any, Any]
    ood_values: tuple[Any, Any]
    noise: tuple[int, int] | None = None
    target: tuple[int, int] | None = None
    weight: tuple[int, int] | None = None
    graph: bool = False
    lengths: tuple[int, int] = (2, 2048)

    @property
    def kind(self) -> str:
        """``token-classification``, ``pooled-classification``, ``token-regression`` or ``pooled-regression``."""
        return f"{self.output}-{'regression' if self.answer == 'real' else 'classification'}"

    @property
    def regression(self) -> bool:
        """Whether the answer is a real number (scored by MSE, lower is better)."""
        return self.answer == "real"

    @property
    def train_n(self) -> int:
        """Length in training and in all settings but ``length-ood``."""
        return 8

    @property
    def length_ood_n(self) -> int:
        """Length in the setting ``length-ood``: 64, for graphs 16 nodes."""
        return 16 if self.graph else 64

    def default_n(self, setting: str) -> int:
        """Length in a setting."""
        return self.length_ood_n if setting == "length-ood" else self.train_n

    def tokens(self, n: int) -> int:
        """Tokens of an instance of length n."""
        return n * n if self.graph else n

    def ranges(self, setting: str) -> Ranges:
        """Return the ranges that instances are drawn from in a setting; ``value-ood`` has values of its own."""
        values = self.ood_values if setting == "value-ood" else self.values
        return Ranges(values, self.target, self.weight)


_GRAPH = (2, 64)


def _fractional(variant: str, output: str) -> Task:
    return Task(
        "fractional-knapsack", variant, output, "real", 3, (1, 10), (11, 21), (1, 5), (10, 20), (1, 10)
    )


def _floyd(variant: str, answer: str) -> Task:
    return Task(
        "floyd-warshall", variant, "token", answer, 3, (1, 15), (16, 30), (1, 10), graph=True, lengths=_GRAPH
    )


def _scc(variant: str, p: float, ood_p: float) -> Task:
    return Task("scc", variant, "token", "binary", 3, (p, p), (ood_p, ood_p), graph=True, lengths=_GRAPH)


_ALL = (
    Task("subset-sum", "balanced", "pooled", "binary", 2, (-5, 5), (-20, 20), (10, 30), (1, 10)),
    Task("subset-sum", "legacy", "pooled", "binary", 2, (-5, 5), (-20, 20), (10, 30), (1, 10)),
    Task("knapsack", "mask", "token", "binary", 3, (1, 10), (11, 21), (10, 30), (10, 20), (1, 10)),
    _fractional("value", "pooled"),
    _fractional("fractions", "token"),
    Task("min-coin-change", "mask", "token", "binary", 2, (1, 10), (11, 21), (1, 5), (10, 20)),
    Task("min-coin-change", "legacy", "pooled", "real", 2, (1, 10), (11, 21), (1, 5), (10, 20)),
    Task("quickselect", "normalised", "token", "binary", 2, (1, 10), (11, 21), (1, 5)),
    Task("quickselect", "raw", "token", "binary", 2, (1, 10), (11, 21), (1, 5)),
    Task("quickselect", "legacy", "token", "binary", 2, (1, 10), (11, 21), (1, 5)),
    Task("balanced-partition", "mask", "token", "binary", 1, (1, 10), (11, 100), (10, 30)),
    Task("balanced-partition", "legacy", "pooled", "real", 1, (1, 10), (11, 100), (10, 30)),
    Task("bin-packing", "mask", "token", "binary", 3, (1, 10), (11, 100), (10, 30), (10, 30)),
    Task("convex-hull", "mask", "token", "binary", 2, (0, 10), (11, 21), (1, 5)),
    Task(
        "three-sum", "decision", "pooled", "binary", 2, (-20, 20), (-375, 375), (40, 60), (-75, 75), None,
        lengths=(3, 2048),
    ),
    _floyd("legacy", "real"),
    _floyd("distances", "real"),
    _floyd("predecessors", "classes"),
    _scc("published", 0.001, 0.1),
    _scc("dense", 0.35, 0.6),
    _scc("legacy", 0.001, 0.1),
)  # fmt: skip

VARIANTS: dict[str, dict[str, Task]] = {}
"""Task name to variants; the first is the default."""
for _task in _ALL:
    VARIANTS.setdefault(_task.name, {})[_task.variant] = _task

TASKS: dict[str, Task] = {name: next(iter(variants.values())) for name, variants in VARIANTS.items()}
"""Task name to its default variant."""


def task(name: str, variant: str | None = None) -> Task:
    """Return a task; raises `UnknownNameError` for an unknown task or variant."""
    if name not in VARIANTS:
        raise UnknownNameError("task", name, VARIANTS)
    if variant is None:
        return TASKS[name]
    if variant not in VARIANTS[name]:
        raise UnknownNameError(f"variant of {name}:", variant, VARIANTS[name])
    return VARIANTS[name][variant]


def check(name: str, setting: str, n: int | None, variant: str | None = None) -> tuple[Task, int]:
    """Return the task and the length that these arguments mean.

    Raises
    ------
    UnknownNameError
        For an unknown task, variant or setting; the message has the nearest names.
    BadInputError
        For an unsupported length; the message has the supported range.
    """
    chosen = task(name, variant)
    if setting not in SETTINGS:
        raise UnknownNameError(f"setting of {name}:", setting, SETTINGS)
    length = chosen.default_n(setting) if n is None else n
    low, high = chosen.lengths
    if not low <= length <= high:
        what = "nodes" if chosen.graph else "tokens"
        raise BadInputError(f"{name}: n={length} is not supported; give {low} to {high} {what}.")
    return chosen, length


def generate(
    name: str,
    setting: str = "id",
    n: int | None = None,
    count: int = 5000,
    seed: int = 1234,
    variant: str | None = None,
) -> TaskBatch:
    """Make a set of instances; the first k of a larger set are the set of k.

    Parameters
    ----------
    name, variant
        A key of `TASKS`, and of its variants (None: the default).
    setting
        One of `SETTINGS`.
    n
        Length, or nodes for the graph tasks; None for the setting's usual one (8; length-ood 64, graphs 16).
    count, seed
        How many, from which seed.

    Raises
    ------
    UnknownNameError, BadInputError
        As `check`.
    """
    chosen, length = check(name, setting, n, variant)
    if count < 1:
        raise BadInputError(f"{name}: count is {count}; a set needs at least 1 instance.")
    blocks = [
        _block(chosen, setting, length, start, min(_rows(chosen, length), count - start), (seed, 0))
        for start in range(0, count, _rows(chosen, length))
    ]
    return _joined(blocks)


def stream(
    name: str,
    setting: str = "id",
    n: int | None = None,
    batch: int = 500,
    seed: int = 0,
    variant: str | None = None,
) -> Iterator[TaskBatch]:
    """Yield batches for training without end, made in blocks; no instance of any `generate` set is drawn again.

    The batches depend on all arguments; nothing promises that another batch size cuts the same instances.
    """
    chosen, length = check(name, setting, n, variant)
    if batch < 1:
        raise BadInputError(f"{name}: a batch of {batch} is empty; give at least 1.")
    rows = batch * max(1, _rows(chosen, length) // batch)
    start = 0
    while True:
        parts = [
            _block(chosen, setting, length, start + low, min(_rows(chosen, length), rows - low), (seed, 1))
            for low in range(0, rows, _rows(chosen, length))
        ]
        block = _joined(parts)
        for low in range(0, rows, batch):
            yield TaskBatch(block.inputs[low : low + batch], block.targets[low : low + batch])
        start += rows


def _rows(chosen: Task, n: int) -> int:
    """Instances of a block: few enough for the caches, and for the tables of dynamic programs that grow faster than n."""
    if chosen.graph:
        return max(1, BLOCK * 8 // chosen.tokens(n))
    return max(1, int(BLOCK * min(1.0, 8 / n) ** 1.5))


def _joined(blocks: list[TaskBatch]) -> TaskBatch:
    if len(blocks) == 1:
        return blocks[0]
    return TaskBatch(np.concatenate([b.inputs for b in blocks]), np.concatenate([b.targets for b in blocks]))


def _block(chosen: Task, setting: str, n: int, start: int, count: int, purpose: tuple[int, int]) -> TaskBatch:
    """Make instances ``start .. start + count - 1``; `purpose` is the seed, and 0 for sets, 1 for streams."""
    module = import_module(f"nco_bench.problems.tasks.{chosen.name.replace('-', '_')}")
    named = zlib.crc32(f"{chosen.name}:{n}".encode())
    key = (*purpose, STREAM_VERSION, named)
    clean: Clean = module.sample(Draws((*key, 0), start, count), n, chosen.ranges(setting), chosen.variant)
    inputs = clean.inputs
    if setting == "noise-ood":
        module.perturb(Draws((*key, 1), start, count), inputs, chosen.noise or (0, 0), chosen.variant)
    return TaskBatch(inputs, clean.targets)
