"""Labelled instances as a stream: shard after shard, at a position that can be saved.

The order is a function of seed and epoch alone, so a position is three numbers. Shards are kept in memory up to a limit,
for a GPU goes through one in a second; of more than that, the next is read while the current one is learned from.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.errors import BadInputError
from nco_bench.training.shards import Shard, ShardFacts, find_shards, read_shard
from nco_bench.weights.manifest import TrainingData

if TYPE_CHECKING:
    from nco_bench.datasets.places import Places


KEPT_BYTES = 1 << 30
"""Of shards that are kept in memory."""
LOOKED_AT = 1 << 20
"""Bytes at either end of a file without checksums."""


@dataclass(frozen=True)
class Batch:
    """Some instances of a shard, in the order of their tours or paths, or packed CVRP solutions."""

    ordered: NDArray[np.float32]
    tours: bool


class LabelStream:
    """Batches of labelled instances, forever, from shards in a shuffled order.

    Parameters
    ----------
    sources
        Files, folders or dataset names, see `find_shards`.
    seed
        Decides the order of shards and of the instances in them, per epoch.
    hold_out
        This many instances at the end of the last shard (at most a fifth of it) are not learned from.
    places
        Where datasets are found by name.
    """

    def __init__(
        self, sources: Sequence[str | Path], seed: int, *, hold_out: int = 0, places: Places | None = None
    ) -> None:
        self.shards = sorted(find_shards(sources), key=lambda source: Path(source).name)
        if not self.shards:
            raise BadInputError("No labelled data: give at least one dataset with --data.")
        self.seed, self.places, self._hold_out = seed, places, hold_out
        self.epoch, self.shard, self.offset = 0, 0, 0
        self.facts: dict[str, ShardFacts] = {}
        self._loaded: tuple[int, int] | None = None
        self._rows: NDArray[np.float32] = np.empty((0, 0, 2), np.float32)
        self._order: NDArray[np.integer] = np.empty(0, np.int64)
        self._kept: dict[int, Shard] = {}
        self._tours = True
        self._problem = ""
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="labels")
        self._ahead: tuple[int, Future[Shard]] | None = None

    @cached_property
    def content(self) -> str:
        """What is in the shards, as it was when this was first asked."""
        return content_of(self.shards)

    def held_out(self) -> NDArray[np.float32]:
        """Return the instances that are not learned from, ``(B, N, 2)`` in tour order."""
        last = read_shard(self.shards[-1], self.places)
        self._problem = last.problem
        if not last.tours:
            raise BadInputError(
                f"{self.shards[-1]}: holds paths; validation needs tours, give them with --validation."
            )
        rows = last.ordered
        return rows[len(rows) - self._held(len(rows)) :]

    @property
    def problem(self) -> str:
        """``tsp`` or ``cvrp``: what the last shard holds, and all others must."""
        if not self._problem:
            self._problem = read_shard(self.shards[-1], self.places).problem
        return self._problem

    def _held(self, rows: int) -> int:
        return min(self._hold_out, rows // 5)

    def take(self, count: int) -> Batch:
        """Return the next instances; fewer than `count` at a shard's end."""
        rows = self._current()
        tours = self._tours
        batch = rows[self._order[self.offset : self.offset + count]]
        self.offset += len(batch)
        if self.offset >= len(rows):
            self.epoch, self.shard = self._following()
            self.offset = 0
        return Batch(batch, tours)

    def _following(self) -> tuple[int, int]:
        last = self.shard + 1 >= len(self.shards)
        return (self.epoch + 1, 0) if last else (self.epoch, self.shard + 1)

    def _current(self) -> NDArray[np.float32]:
        if self._loaded != (self.epoch, self.shard):
            index = self._index(self.epoch, self.shard)
            rows = self._read(index)
            self._order = np.random.default_rng([self.seed, self.epoch, index]).permutation(len(rows))
            self._rows = rows
            self._loaded = (self.epoch, self.shard)
        return self._rows

    def _index(self, epoch: int, shard: int) -> int:
        return int(np.random.default_rng([self.seed, epoch]).permutation(len(self.shards))[shard])

    def _read(self, index: int) -> NDArray[np.float32]:
        """Take a shard from memory or from the reader, and let it begin with the next one."""
        if index in self._kept:
            shard = self._kept[index]
        elif self._ahead is not None and self._ahead[0] == index:
            shard = self._ahead[1].result()
        else:
            shard = read_shard(self.shards[index], self.places)
        if shard.problem != self.problem:
            raise BadInputError(
                f"{self.shards[index]}: holds {shard.problem} instances, other shards {self.problem}; choose one."
            )
        kept = sum(one.ordered.nbytes for one in self._kept.values())
        if index not in self._kept and kept + shard.ordered.nbytes <= KEPT_BYTES:
            self._kept[index] = shard
        following = self._index(*self._following())
        self._ahead = None
        if following != index and following not in self._kept:
            self._ahead = (following, self._reader.submit(read_shard, self.shards[following], self.places))
        self.facts[self.shards[index]] = shard.facts
        self._tours = shard.tours
        held = self._held(len(shard.ordered)) if index == len(self.shards) - 1 else 0
        return shard.ordered[: len(shard.ordered) - held]

    def position(self) -> dict[str, Any]:
        """Return where the stream stands, a fingerprint of what it reads, and what it has read so far."""
        return {
            "epoch": self.epoch,
            "shard": self.shard,
            "offset": self.offset,
            "shards": fingerprint(self.shards),
            "content": self.content,
            "held_out": self._hold_out,
            "facts": {source: dataclasses.asdict(facts) for source, facts in self.facts.items()},
        }

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position.

        Parameters
        ----------
        position
            From `position`.
        adopt
            Other data, or others held out of the same, are welcome: begin them at the next epoch.

        Raises
        ------
        BadInputError
            When the shards are not those that the position was taken from, or others were held out of them.
        """
        self.facts = {source: ShardFacts(**facts) for source, facts in position.get("facts", {}).items()}
        same = same_data(position, self.position())
        if not same and not adopt:
            raise BadInputError(
                "The labelled data is not what this run was started with; resume with the same --data, "
                "or start anew without --resume."
            )
        held = position.get("held_out", self._hold_out)
        if held != self._hold_out and not adopt:
            raise BadInputError(
                f"This run was started {'without' if held else 'with'} --validation; resume it so, for what was held out "
                "to judge by would be learned from, or the other way round."
            )
        if same and held == self._hold_out:
            self.epoch, self.shard, self.offset = position["epoch"], position["shard"], position["offset"]
        else:
            self.epoch, self.shard, self.offset = position["epoch"] + 1, 0, 0


def same_data(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two positions are of the same data; earlier versions knew names and sizes of the shards alone."""
    return all(before.get(key, now.get(key)) == now.get(key) for key in ("shards", "content"))


def content_of(shards: Sequence[str]) -> str:
    """Hash what is in the shards, cheaply: the checksums that npz files hold, first and last part of other files."""
    return hashlib.sha256(json.dumps([_checksums(Path(shard)) for shard in shards]).encode()).hexdigest()


def _checksums(path: Path) -> list[Any]:
    if not path.is_file():
        return []
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return [[member.filename, member.CRC] for member in archive.infolist()]
    with path.open("rb") as file:
        first = file.read(LOOKED_AT)
        file.seek(max(len(first), path.stat().st_size - LOOKED_AT))
        return [hashlib.sha256(first + file.read()).hexdigest()]


def fingerprint(shards: Sequence[str]) -> str:
    """Hash names and sizes of the shards: cheap, and enough to notice that shards were added or exchanged."""
    listing = []
    for shard in shards:
        path = Path(shard)
        listing.append((path.name, path.stat().st_size if path.is_file() else 0))
    return hashlib.sha256(json.dumps(listing).encode()).hexdigest()


def describe(stream: LabelStream) -> TrainingData:
    """Return what a manifest says about the data that was read so far."""
    facts = list(stream.facts.values())

    def joined(values: Sequence[str]) -> str:
        return ", ".join(sorted({value for value in values if value}))

    gap, measured = label_quality(stream.shards)
    return TrainingData(
        distribution=joined([f.distribution for f in facts]),
        size=max((f.size for f in facts), default=0),
        instances=sum(f.instances for f in facts),
        label_solver=joined([f.label_solver for f in facts]),
        label_params=joined([f.label_params for f in facts]),
        label_gap_percent=gap,
        label_gap_measured=measured,
        seeds=tuple(sorted({f.seed for f in facts if f.seed})),
        fingerprint=fingerprint(stream.shards),
        hashes=tuple(sorted({f.sha256 for f in facts if f.sha256})),
    )


def label_quality(shards: Sequence[str]) -> tuple[float | None, str]:
    """Return the gap of the labels in percent and how it was measured, from ``labels.quality.json`` beside the shards.

    Of several folders the first that was measured counts; `measured` names the file it was measured on.
    """
    for folder in dict.fromkeys(Path(shard).parent for shard in shards if Path(shard).is_file()):
        try:
            known = json.loads((folder / "labels.quality.json").read_text(encoding="utf-8"))
            return float(known["gap_percent"]), str(known["measured"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None, ""
