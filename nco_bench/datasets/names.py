"""Names of generated sets: a name describes one set completely, and parses back.

``tsp100``, ``tsp10000:clustered:seed=7``, ``cvrp1000:capacity=250``, ``tsp100:explosion:radius=0.2:count=1000``,
``tsp100:range=-1..1``, ``cvrp100:capacity=10:demand=unit:range=-1..1``, ``kool-tsp100``: the problem with its size,
then the distribution with its parameters, the problem's parameters, seed and count. What stands at its default is
left out of the canonical name, but CVRP's capacity never is: papers differ in it for the same n.

The default count is the literature's, so ``tsp100`` is 10,000 instances wherever and whenever it is read, whatever lies in
the instances folder; a set of 16 is called ``tsp100:count=16``, and is the first 16 of them: every instance has a random
stream of its own. So a record or a reference of one set is one of the other (`whole_of`); a set from elsewhere is nothing
but its content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from nco_bench.datasets.generators import GENERATORS, generator
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.settings import pairs, parse

if TYPE_CHECKING:
    from nco_bench.datasets.dataset import Dataset

DEFAULT_SEED = 1234
"""Kool et al.'s test seed, kept as the default."""

LARGEST_SEED = 2**32 - 1

KOOL, TASKS = "kool", "tasks"
"""Families of sets beside the ones that `GENERATORS` makes; their modules are imported when a name is theirs."""


@dataclass(frozen=True)
class GenerationSpec:
    """A complete description of a generated set; make one with `parse_generated` or `specify`.

    Attributes
    ----------
    problem, n, count, seed
        What, how large, how many, from which seed.
    distribution
        Canonical text, with its parameters that differ from the default.
    params
        The problem's parameters with their canonical text, all of them, in the order of its table entry.
    family
        ``nco-bench``, ``tasks`` for the algorithmic tasks, or ``kool`` for the sets of Kool et al.
    """

    problem: str
    n: int
    count: int
    distribution: str = "uniform"
    seed: int = DEFAULT_SEED
    params: tuple[tuple[str, str], ...] = ()
    family: str = "nco-bench"

    @property
    def name(self) -> str:
        """The canonical name: equal sets have equal names."""
        if self.family == KOOL:
            from nco_bench.datasets import kool

            return kool.kool_name(self.problem, self.n, self.seed, self.count)
        if self.family == TASKS:
            from nco_bench.datasets import tasks

            return tasks.canonical_name(self, DEFAULT_SEED)
        made = generator(self.problem)
        parts = [self.problem if self.n == made.default_n else f"{self.problem}{self.n}"]
        if self.distribution != made.default_distribution:
            parts.append(self.distribution)
        defaults = made.defaults(dict(self.params), self.n)
        parts += [f"{k}={v}" for k, v in self.params if k in made.always_named or v != defaults[k]]
        if self.seed != DEFAULT_SEED:
            parts.append(f"seed={self.seed}")
        if self.count != made.default_count(self.n):
            parts.append(f"count={self.count}")
        return ":".join(parts)

    @property
    def stream(self) -> str:
        """The name without its count; of two sets with the same one, the shorter is the beginning of the longer."""
        if self.family == KOOL and self.problem != "tsp":
            return self.name
        return re.sub(r":count=\d+$", "", self.name)


def specify(
    problem: str,
    n: int | None,
    count: int | None = None,
    distribution: str = "uniform",
    seed: int = DEFAULT_SEED,
    params: Mapping[str, Any] | None = None,
    *,
    options: Mapping[str, str] = MappingProxyType({}),
) -> GenerationSpec:
    """Check arguments as those of `generate` and return the set's description.

    `options` says in messages how an argument was typed, where it stands in no name: ``capacity`` as ``--capacity``.
    """
    if problem not in GENERATORS:
        return _specify_task(problem, n, count, distribution, seed, params, options)
    if n is None:
        raise BadInputError(f"{problem}: its size is missing; give n.")
    made = generator(problem)

    def place(key: str) -> str:
        return f"{problem}{n}: {options.get(key, key)}"

    _check_numbers(problem, n, count, seed, made.smallest_n, options)
    given = {}
    for key, value in (params or {}).items():
        if value is None:
            continue
        if key not in made.parameters:
            raise UnknownNameError(f"parameter of {problem}:", key, made.parameters)
        given[key] = made.parameters[key](place(key), str(value))
    made.check(given, place)
    defaults = made.defaults(given, n)
    return GenerationSpec(
        problem=problem,
        n=n,
        count=made.default_count(n) if count is None else count,
        distribution=made.canonical_distribution(distribution),
        seed=seed,
        params=tuple((key, given.get(key, defaults[key])) for key in made.parameters),
    )


def _specify_task(
    problem: str,
    n: int | None,
    count: int | None,
    setting: str,
    seed: int,
    params: Mapping[str, Any] | None,
    options: Mapping[str, str],
) -> GenerationSpec:
    from nco_bench.datasets import tasks

    if problem not in tasks.NAMES:
        raise UnknownNameError("problem", problem, (*GENERATORS, *tasks.NAMES))
    _check_seed(problem, seed)
    return GenerationSpec(**tasks.describe(problem, n, count, setting, seed, params, options))


def _check_numbers(
    problem: str, n: int, count: int | None, seed: int, smallest_n: int, options: Mapping[str, str]
) -> None:
    if n < smallest_n:
        unit = {"cvrp": "customer(s)", "bpp3d": "box(es)"}.get(problem, "nodes")
        raise BadInputError(
            f"{problem}{n}: an instance needs at least {smallest_n} {unit}; give a larger {options.get('n', 'n')}."
        )
    if count is not None and count < 1:
        raise BadInputError(
            f"{problem}{n}: {options.get('count', 'count')} is {count}; a dataset needs at least 1 instance."
        )
    _check_seed(f"{problem}{n}", seed)


def _check_seed(name: str, seed: int) -> None:
    if not 0 <= seed <= LARGEST_SEED:
        raise BadInputError(f"{name}: seed is {seed}; expected a whole number in [0, {LARGEST_SEED}].")


def parse_generated(name: str) -> GenerationSpec | None:
    """Read the name of a generated set; the inverse of `GenerationSpec.name`, which also takes parts in any order.

    Returns
    -------
    GenerationSpec or None
        None when the name is not of this shape: a known problem (or ``kool-``), a number, then parts after colons.

    Raises
    ------
    UnknownNameError
        For an unknown distribution or parameter.
    BadInputError
        For parts that make no sense, such as ``tsp1`` or ``tsp100:seed=x``.
    """
    head, *parts = name.split(":")
    match = re.fullmatch(r"(kool-)?([a-z][a-z0-9-]*?)(\d{0,12})", head)
    if match is None:
        return None
    prefix, problem, size = match.groups()
    if prefix:
        return _parse_kool(name, problem, size, parts)
    if problem not in GENERATORS:
        return _parse_task(name, problem, size, parts)
    default_n = generator(problem).default_n
    if not size and default_n is None:
        return None
    distribution, settings = _sort_parts(name, parts, problem)
    count, seed = (_take_int(name, settings, key) for key in ("count", "seed"))
    n = int(size) if size else default_n
    assert n is not None
    return specify(problem, n, count, distribution, DEFAULT_SEED if seed is None else seed, settings)


def _sort_parts(name: str, parts: list[str], problem: str) -> tuple[str, dict[str, str]]:
    """Return the distribution with its own parameters, and all other settings."""
    made = generator(problem)
    bare = [part for part in parts if "=" not in part]
    if len(bare) > 1 or "" in bare:
        raise BadInputError(
            f"{name!r}: expected at most one distribution and then KEY=VALUE parts, separated by ':'."
        )
    base = bare[0] if bare else made.default_distribution
    if bare:
        made.canonical_distribution(base)
    own = made.distribution_parameters(base)
    known = [*made.parameters, *own, "seed", "count"]
    settings = pairs(repr(name), (part for part in parts if "=" in part), _kind(name), known)
    distribution = ":".join([base, *(f"{key}={settings.pop(key)}" for key in list(settings) if key in own)])
    return distribution, settings


def _parse_task(name: str, problem: str, size: str, parts: list[str]) -> GenerationSpec | None:
    from nco_bench.datasets import tasks

    if problem not in tasks.NAMES:
        return None
    setting, values = tasks.read_parts(name, [f"n={size}", *parts] if size else parts)
    n, count, seed = (_take_int(name, values, key) for key in ("n", "count", "seed"))
    return specify(problem, n, count, setting, DEFAULT_SEED if seed is None else seed, values)


def _parse_kool(name: str, short_name: str, size: str, parts: list[str]) -> GenerationSpec | None:
    from nco_bench.datasets import kool

    problems = {"tsp": "tsp", "vrp": "cvrp", "cvrp": "cvrp"}
    if short_name not in problems or not size:
        return None
    settings = pairs(repr(name), parts, _kind(name), ["seed", "count"])
    count, seed = (_take_int(name, settings, key) for key in ("count", "seed"))
    problem, n = problems[short_name], int(size)
    chosen_count = kool.COUNT if count is None else count
    chosen_seed = kool.TEST_SEED if seed is None else seed
    kool.check(problem, n, chosen_seed, chosen_count)
    params = (("capacity", f"{kool.CAPACITIES[n]:g}"),) if problem == "cvrp" else ()
    return GenerationSpec(problem, n, chosen_count, "uniform", chosen_seed, params, family=KOOL)


def _take_int(name: str, settings: dict[str, str], key: str) -> int | None:
    text = settings.pop(key, None)
    return None if text is None else parse(f"{name!r}: {key}", text, int)


def _kind(name: str) -> str:
    return f"part of dataset name {name!r}:"


def examples() -> tuple[str, ...]:
    """Return names to show and to match misspelt ones against."""
    from nco_bench.datasets import lra, packing, tasks
    from nco_bench.problems.distributions import DISTRIBUTIONS

    return (
        "tsp100",
        "tsp1000",
        "tsp10000",
        "cvrp100",
        "cvrp1000",
        "tsp100:count=1000",
        "cvrp1000:capacity=250",
        "tsp10000:clustered:seed=7:count=16",
        *(f"tsp100:{name}" for name in DISTRIBUTIONS if name != "uniform"),
        *(f"bpp3d100:{base}" for base in packing.BINS),
        "bpp3d400:120x100",
        *tasks.EXAMPLES,
        *lra.EXAMPLES,
    )


def generated_aliases() -> tuple[str, ...]:
    """Return the catalogued names of sets with a meaning in the literature: Kool et al.'s, test and validation."""
    from nco_bench.datasets import kool

    return tuple(
        kool.kool_name(problem, n, seed)
        for seed in kool.SEEDS
        for problem in kool.SHORT_NAMES
        for n in kool.SIZES
    )


FAMILIES = {"nco-bench": "nco-bench", "nco-bench tasks": "tasks", "kool": "kool"}
"""Generator, as a set's origin names it, to the family of names that it makes."""


@lru_cache(maxsize=4096)
def whole_of(name: str, generator: str, version: str, sha256: str) -> str:
    """Return what a set has in common with all sets that begin as it does, and with no others.

    Parameters
    ----------
    name
        Of the set.
    generator, version
        Of its origin; another version of a generator may give other instances under the same name.
    sha256
        Content hash of the set.

    Returns
    -------
    str
        Generator, version and name without its count; the content hash of a set that no generator made.
    """
    stream = stream_of(name, generator)
    return sha256 if stream is None else f"{generator} {version} {stream[0]}"


def whole_of_set(dataset: Dataset) -> str:
    """Return the identity of the longest set that a dataset is the beginning of."""
    return whole_of(dataset.name, dataset.origin.generator, dataset.origin.version, dataset.sha256)


@lru_cache(maxsize=4096)
def stream_of(name: str, generator: str | None = None) -> tuple[str, int] | None:
    """Return a generated set's name without its count, and its count; None for another set.

    Parameters
    ----------
    name
        Of the set.
    generator
        That made it, as its origin says: a file may bear the name of a generated set and hold another one.
    """
    try:
        spec = parse_generated(name)
    except (BadInputError, UnknownNameError):
        return None
    if spec is None or (generator is not None and FAMILIES.get(generator) != spec.family):
        return None
    return spec.stream, spec.count
