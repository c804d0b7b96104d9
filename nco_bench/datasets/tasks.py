"""Datasets of the algorithmic tasks: names such as ``knapsack:length-ood:n=64``, and how they are made.

A task, then its setting (``id`` is left out), then ``n``, ``variant``, ``seed`` and ``count`` where they differ from the
default: n is 8, for ``length-ood`` 64 (graph tasks: 8 and 16 nodes); the default variant is the one that the published
numbers fit; the seed is 1234 and the count 5,000.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.algorithmic import TaskInstance
from nco_bench.problems.tasks import TASKS, Task, generate, task
from nco_bench.problems.tasks.table import STREAM_VERSION, check
from nco_bench.settings import pairs

if TYPE_CHECKING:
    from nco_bench.datasets.names import GenerationSpec
    from nco_bench.problems import Instance

NAMES = frozenset(TASKS)
COUNT = 5000
VERSION = str(STREAM_VERSION)
EXAMPLES = tuple(
    f"{name}{setting}" for name in TASKS for setting in ("", ":length-ood", ":value-ood", ":noise-ood")
)
"""Names to show and to match misspelt ones against."""


def describe(
    name: str,
    n: int | None,
    count: int | None,
    setting: str,
    seed: int,
    params: Mapping[str, Any] | None,
    options: Mapping[str, str],
) -> dict[str, Any]:
    """Check arguments and return the fields of the `GenerationSpec` that they describe.

    Parameters
    ----------
    name
        Task.
    n, count, seed
        None: the setting's usual length, `COUNT`.
    setting
        A setting; ``uniform``, every other problem's default, means ``id``.
    params
        ``variant``, perhaps.
    options
        As in `nco_bench.datasets.names.specify`.

    Raises
    ------
    UnknownNameError
        For an unknown setting, variant or parameter.
    BadInputError
        For an unsupported length, or a count below 1.
    """
    given = {key: str(value) for key, value in (params or {}).items() if value is not None}
    for key in given:
        if key != "variant":
            raise UnknownNameError(f"parameter of {name}:", key, ["variant"])
    setting = "id" if setting == "uniform" else setting
    chosen, length = check(name, setting, n, given.get("variant"))
    if count is not None and count < 1:
        raise BadInputError(
            f"{name}: {options.get('count', 'count')} is {count}; a dataset needs at least 1 instance."
        )
    return {
        "problem": name,
        "n": length,
        "count": COUNT if count is None else count,
        "distribution": setting,
        "seed": seed,
        "params": (("variant", chosen.variant),),
        "family": "tasks",
    }


def read_parts(name: str, parts: list[str]) -> tuple[str, dict[str, str]]:
    """Split what follows the task into the setting and ``KEY=VALUE`` parts."""
    bare = [part for part in parts if "=" not in part]
    if len(bare) > 1 or "" in bare:
        raise BadInputError(f"{name!r}: expected at most one setting and then KEY=VALUE parts.")
    keyed = (part for part in parts if "=" in part)
    known = ("n", "variant", "seed", "count")
    values = pairs(repr(name), keyed, f"part of dataset name {name!r}:", known)
    return bare[0] if bare else "id", values


def canonical_name(spec: GenerationSpec, default_seed: int) -> str:
    """Return the one name of a set."""
    chosen = task_of(spec)
    parts = [spec.problem]
    if spec.distribution != "id":
        parts.append(spec.distribution)
    if spec.n != chosen.default_n(spec.distribution):
        parts.append(f"n={spec.n}")
    if chosen.variant != TASKS[spec.problem].variant:
        parts.append(f"variant={chosen.variant}")
    if spec.seed != default_seed:
        parts.append(f"seed={spec.seed}")
    if spec.count != COUNT:
        parts.append(f"count={spec.count}")
    return ":".join(parts)


def task_of(spec: GenerationSpec) -> Task:
    """Return the task of a set, in its variant."""
    return task(spec.problem, dict(spec.params)["variant"])


def bytes_per_n(spec: GenerationSpec) -> int:
    """Return the bytes of one instance per unit of n."""
    chosen = task_of(spec)
    return 4 * (chosen.width + 1) * chosen.tokens(spec.n) // spec.n + 8


def build(spec: GenerationSpec) -> list[Instance]:
    """Make the instances of a set."""
    chosen = task_of(spec)
    batch = generate(spec.problem, spec.distribution, spec.n, spec.count, spec.seed, chosen.variant)
    start = f"{spec.problem}{spec.n}"
    return [
        TaskInstance(f"{start}-{i:05d}", spec.problem, chosen.variant, inputs, targets)
        for i, (inputs, targets) in enumerate(zip(batch.inputs, batch.targets, strict=True))
    ]
