"""Generated datasets: `names` says which sets there are, `generators` how an instance is made; here sets are made.

Every instance has a random stream of its own, keyed by seed, index and the stream's name (problem, size,
distribution), so the first 1,000 instances of 10,000 are the set of 1,000, and sets of another problem, size or distribution
share nothing with it. Another capacity keeps the points and demands. Kool's sets come from NumPy's legacy generator
instead, as published; there TSP is prefix-stable, CVRP is not, because its depots are drawn first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.generators import generator
from nco_bench.datasets.names import DEFAULT_SEED, KOOL, TASKS, GenerationSpec, specify
from nco_bench.errors import BadInputError, counted

GENERATOR_VERSION = "1"
"""Bumped whenever the same name gives other numbers; it is part of every stream's key."""

INSTANCE_OVERHEAD_BYTES = 1000
"""Python objects per instance, measured; counts only for sets of very many small instances."""

KEPT_BYTES = 2**28
"""Of all sets that `generated_once` keeps; the one that was asked for longest ago goes first."""
_kept: dict[GenerationSpec, Dataset] | None = None


@contextmanager
def generated_once() -> Iterator[None]:
    """Within, a set is made and hashed once, as long as there is room for it; nobody may change its arrays."""
    global _kept
    before, _kept = _kept, {} if _kept is None else _kept
    try:
        yield
    finally:
        _kept = before


def generate(
    problem: str,
    n: int,
    count: int | None = None,
    distribution: str = "uniform",
    seed: int = DEFAULT_SEED,
    **params: Any,
) -> Dataset:
    """Generate a dataset; the same arguments give the same instances.

    Uniform sets have the same bytes on every machine. The others pass through sine, cosine or logarithm, whose last
    bit may depend on the machine; the content hash tells.

    Parameters
    ----------
    problem
        A key of `generators.GENERATORS`, or an algorithmic task.
    n, count
        Size of an instance and number of instances (None: `default_count`).
    distribution
        See `nco_bench.problems.distributions`; parameters as in ``explosion:radius=0.2``.
    seed
        0 .. 2^32 - 1.
    **params
        The problem's parameters: ``range`` (``LO..HI``, default ``0..1``: the square), for CVRP also ``capacity`` and
        ``demand`` (``integer``: 1..9, or ``unit``: real numbers in (0, 1]).

    Raises
    ------
    UnknownNameError
        For an unknown problem, distribution or parameter.
    BadInputError
        For a size, count, seed or value that makes no sense or does not fit into memory.
    """
    return generate_spec(specify(problem, n, count, distribution, seed, params))


def generate_spec(spec: GenerationSpec) -> Dataset:
    """Make the set that `spec` describes; raises `BadInputError` when it does not fit into memory."""
    if _kept is None:
        return _made(spec)
    found = _kept.pop(spec, None) or _made(spec)
    room = KEPT_BYTES - _bytes(found)
    if room >= 0:
        while sum(map(_bytes, _kept.values())) > room:
            del _kept[next(iter(_kept))]
        _kept[spec] = found
    return found


def _bytes(dataset: Dataset) -> int:
    one = sum(array.nbytes for array in dataset.instances[0].arrays().values())
    return len(dataset) * (one + INSTANCE_OVERHEAD_BYTES)


def _made(spec: GenerationSpec) -> Dataset:
    if spec.family == TASKS:
        return _generate_task(spec)
    made_by = generator(spec.problem)
    _check_memory(spec, made_by.bytes_per_node)
    if spec.family == KOOL:
        from nco_bench.datasets.kool import kool_tsp, kool_vrp

        make = kool_tsp if spec.problem == "tsp" else kool_vrp
        return make(spec.n, spec.seed, spec.count)
    instances = made_by.build(spec)
    origin = Origin("nco-bench", GENERATOR_VERSION, spec.distribution, spec.seed, dict(spec.params))
    return Dataset(spec.name, instances[0].problem, tuple(instances), (None,) * len(instances), origin)


def _generate_task(spec: GenerationSpec) -> Dataset:
    from nco_bench.datasets import tasks

    _check_memory(spec, tasks.bytes_per_n(spec))
    made = tasks.build(spec)
    origin = Origin("nco-bench tasks", tasks.VERSION, spec.distribution, spec.seed, dict(spec.params))
    return Dataset(spec.name, made[0].problem, tuple(made), (None,) * len(made), origin)


def _check_memory(spec: GenerationSpec, bytes_per_node: int) -> None:
    import psutil

    needed = spec.count * (spec.n * bytes_per_node + INSTANCE_OVERHEAD_BYTES)
    free = psutil.virtual_memory().available
    if needed > free:
        raise BadInputError(
            f"{spec.name}: {counted(spec.count, 'instance')} of {spec.n:,} nodes need {needed / 2**30:,.1f} GiB of memory, "
            f"{free / 2**30:,.1f} GiB are free; generate fewer or smaller ones."
        )
