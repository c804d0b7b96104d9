"""Which sets share their columns: a set and its beginnings are one, whatever they were called when they were run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nco_bench.datasets.names import stream_of
from nco_bench.runs.records import Cell

Set = tuple[str, str]
"""Name and content hash."""


@dataclass(frozen=True)
class Whole:
    """Sets whose records stand in one column.

    Attributes
    ----------
    key
        What they have in common, see `nco_bench.datasets.names`.
    name, sha256
        Of the longest of them.
    names
        Name to content hash, of all of them.
    stream
        Their name without its count; empty for sets that no generator made.
    """

    key: str
    name: str
    sha256: str
    names: Mapping[str, str] = field(default_factory=dict)
    stream: str = ""


def wholes(cells: Iterable[Cell]) -> dict[Set, Whole]:
    """Say of every set that occurs what it is part of.

    Sets of one name and different content (of another machine, whose sines differ in the last bit) are no part of each
    other, nor is anything else of their stream part of them: which one would be a guess.
    """
    keys = {(cell.dataset, cell.dataset_sha256): cell.whole for cell in cells}
    named: dict[tuple[str, str], set[str]] = {}
    for (name, sha256), key in keys.items():
        named.setdefault((key, name), set()).add(sha256)
    torn = {key for (key, _), hashes in named.items() if len(hashes) > 1}
    keys = {one: one[1] if key in torn else key for one, key in keys.items()}
    # The same content under another name, such as a file's, is the same set.
    by_content = {sha256: key for (_, sha256), key in keys.items() if key != sha256}
    keys = {one: by_content.get(one[1], key) for one, key in keys.items()}
    members: dict[str, list[Set]] = {}
    for one, key in keys.items():
        members.setdefault(key, []).append(one)
    known = {key: _whole(key, sets) for key, sets in members.items()}
    return {one: known[key] for one, key in keys.items()}


def _whole(key: str, sets: list[Set]) -> Whole:
    counts = {name: found[1] if (found := stream_of(name)) else 0 for name, _ in sets}
    name, sha256 = max(sets, key=lambda one: counts[one[0]])
    found = stream_of(name) if key != sha256 else None
    return Whole(key, name, sha256, dict(sets), "" if found is None else found[0])
