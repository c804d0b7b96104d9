"""Which sets are the beginning of which: every instance of a generated set has a random stream of its own.

So ``tsp100:count=16`` is the first 16 of ``tsp100``, and a record or a reference of one is one of the other. A set from
elsewhere is nothing but its content.
"""

from __future__ import annotations

from functools import lru_cache

from nco_bench.datasets.dataset import Dataset
from nco_bench.errors import BadInputError, UnknownNameError

GENERATORS = {"nco-bench": "nco-bench", "nco-bench tasks": "tasks", "kool": "kool"}
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
    from nco_bench.datasets.names import parse_generated  # it needs datasets itself

    try:
        spec = parse_generated(name)
    except (BadInputError, UnknownNameError):
        return None
    if spec is None or (generator is not None and GENERATORS.get(generator) != spec.family):
        return None
    return spec.stream, spec.count
