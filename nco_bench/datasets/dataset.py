"""A dataset: an immutable batch of instances that knows where it comes from and what it is compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError, counted
from nco_bench.problems import Instance

MIXED = "mixed"
"""Convention of a set whose instances have several."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The best known solution of one instance.

    Attributes
    ----------
    cost
        Under the instance's own convention.
    solver
        Who found it: a solver name, or the source of a published value.
    solution
        The solution, or None where only the value is published.
    optimal
        True where optimality is proven.
    seconds, params
        What it took, where known.
    """

    cost: float
    solver: str
    solution: NDArray[np.integer] | None = None
    optimal: bool = False
    seconds: float | None = None
    params: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a dataset comes from: generator (or source), its version, distribution, seed and parameters."""

    generator: str
    version: str = ""
    distribution: str = ""
    seed: int | None = None
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Instances of one problem.

    Attributes
    ----------
    name
        Structured name, see `nco_bench.datasets.names`.
    problem
        Name of the problem.
    instances
        At least one instance.
    references
        One per instance, None where nothing is known.
    origin
        Where the instances come from.
    first_index
        Index of the first instance in the dataset this is a slice of; seeds and record keys use the index in
        the whole dataset, so that ``--limit 10-20`` solves the same thing as the whole.
    whole_sha256
        Content hash of the dataset this is a slice of, None for a whole one.
    """

    name: str
    problem: str
    instances: Sequence[Instance]
    references: Sequence[Reference | None]
    origin: Origin
    first_index: int = 0
    whole_sha256: str | None = None

    def __post_init__(self) -> None:
        if not len(self.instances):
            raise BadInputError(f"{self.name}: a dataset needs at least one instance.")
        if len(self.references) != len(self.instances):
            raise BadInputError(
                f"{self.name}: {counted(len(self.references), 'reference')} for {counted(len(self.instances), 'instance')}."
            )

    def __len__(self) -> int:
        return len(self.instances)

    def __repr__(self) -> str:
        """Return it in one line: a notebook would print every instance."""
        smallest, largest = self.sizes
        known = sum(reference is not None for reference in self.references)
        return (
            f"<Dataset {self.name}: {counted(len(self), f'{self.problem} instance')}, "
            f"n = {smallest:,}{f' to {largest:,}' if largest > smallest else ''}, {counted(known, 'reference')}>"
        )

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.instances)

    @property
    def convention(self) -> str:
        """The scoring convention, or ``mixed`` (then each record names its own)."""
        names = {instance.convention for instance in self.instances}
        return names.pop() if len(names) == 1 else MIXED

    @property
    def sizes(self) -> tuple[int, int]:
        """Smallest and largest n."""
        sizes = [instance.n for instance in self.instances]
        return min(sizes), max(sizes)

    @cached_property
    def sha256(self) -> str:
        """Content hash of problem, conventions and arrays (not of names and references); of the whole set for a slice."""
        if self.whole_sha256:
            return self.whole_sha256
        whole, self.__dict__["instance_hashes"] = content_hashes(self.problem, self.instances)
        return whole

    @cached_property
    def instance_hashes(self) -> tuple[str, ...]:
        """Content hash of every instance alone, its first 16 hex digits: what records and references belong to."""
        return tuple(map(instance_sha256, self.instances))

    def holds(self, index: int, sha256: str) -> bool:
        """Whether the instance of this index in the whole dataset is here, and has this hash (empty: not known)."""
        position = index - self.first_index
        return 0 <= position < len(self) and sha256 in ("", self.instance_hashes[position])

    def refuse_beyond(self, index: int) -> None:
        """Refuse an instance (from 0; options count from 1) that is not there; raises `BadInputError`."""
        if not 0 <= index < len(self):
            raise BadInputError(f"--instance {index + 1}: {self.name} holds instances 1..{len(self)}.")

    def slice(self, start: int, stop: int) -> Dataset:
        """Return instances ``start .. stop - 1`` (0-based), keeping name, hash and indices of the whole."""
        if not 0 <= start < stop <= len(self):
            raise BadInputError(
                f"{self.name} holds instances 0..{len(self) - 1}; cannot take {start}..{stop - 1}."
            )
        part = replace(
            self,
            instances=self.instances[start:stop],
            references=self.references[start:stop],
            first_index=self.first_index + start,
            whole_sha256=self.sha256,
        )
        return self._with_known_hashes(part, start, stop)

    def with_references(self, references: Sequence[Reference | None]) -> Dataset:
        """Return the same instances with other references."""
        return self._with_known_hashes(replace(self, references=tuple(references)), 0, len(self))

    def costs_of_references(self) -> dict[str, Reference]:
        """Return the references that are known by the hash of the instance, without solutions."""
        known = zip(self.instance_hashes, self.references, strict=True)
        return {sha256: replace(one, solution=None) for sha256, one in known if one is not None}

    def _with_known_hashes(self, other: Dataset, start: int, stop: int) -> Dataset:
        """Give another set of these instances the hashes that are known here."""
        for name, known in self.__dict__.items():
            if name == "instance_hashes":
                other.__dict__[name] = known[start:stop]
            elif name == "sha256":
                other.__dict__[name] = known
        return other


def content_sha256(problem: str, instances: Sequence[Instance]) -> str:
    """Hash what is solved: problem, and per instance convention, array names, dtypes, shapes and bytes.

    Arrays are hashed C-contiguous and little-endian, so the value is the same on every machine.
    """
    return content_hashes(problem, instances)[0]


def content_hashes(problem: str, instances: Sequence[Instance]) -> tuple[str, tuple[str, ...]]:
    """Return `content_sha256` and the `instance_sha256` of each: what is hashed is put together once for both."""
    whole = hashlib.sha256(f"{problem}\n{len(instances)}\n".encode())
    alone = hashlib.sha256(f"{problem}\n1\n".encode())
    each = []
    for instance in instances:
        content = _content(instance)
        whole.update(content)
        one = alone.copy()
        one.update(content)
        each.append(one.hexdigest()[:16])
    return whole.hexdigest(), tuple(each)


def instance_sha256(instance: Instance) -> str:
    """Return the first 16 hex digits of the content hash of one instance."""
    digest = hashlib.sha256(f"{instance.problem}\n1\n".encode())
    digest.update(_content(instance))
    return digest.hexdigest()[:16]


def _content(instance: Instance) -> bytes:
    parts = [f"{instance.convention}\n".encode()]
    for key, array in sorted(instance.arrays().items()):
        kind = array.dtype.str
        if kind[0] == ">" or not array.shape:
            array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            kind = array.dtype.str
        parts += (_head(key, kind, array.shape), array.tobytes())
    return b"".join(parts)


@lru_cache(1024)
def _head(key: str, kind: str, shape: tuple[int, ...]) -> bytes:
    """Return what stands before an array's bytes; the same for all instances of one size, so made once."""
    return f"{key} {kind} {shape}\n".encode()
