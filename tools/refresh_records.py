"""Make stored records anew whose weights no longer ship: ``python tools/refresh_records.py NAME FOLDER``.

    python tools/ship_weights.py ... --name decoder-6x128      # and commit
    python tools/refresh_records.py decoder-6x128 /tmp/new --list
    python tools/refresh_records.py decoder-6x128 /tmp/new --part 1/2 & ... --part 2/2
    python tools/refresh_records.py decoder-6x128 /tmp/new --together
    python tools/refresh_records.py decoder-6x128 /tmp/new --pack

Stale is a cell below results/ of weights called NAME that have another hash than what ships. Each is run again as it was
asked for, into FOLDER; a second call goes on where the first ended. ``--part`` shares them out to processes by the time that
they took. A run of several cells, whose times stand beside each other, is left to ``--together``: it wants an idle machine.
One that cannot be made (weights without a calibration, say) is told and left, and the others go on; the status is 1 then.
``--pack`` puts what is new into the archives, in place of what is stale. ``--partly`` drops what is stale and was not made
anew, where that is not worth its time. Needs a checkout without uncommitted changes.
References that a run knew of a generated dataset come from the ledger of the instances folder, as they did then: make them
before (`generate tsp --n 100 --count 128 --reference lkh3` for results/readme), or what is made anew has no gaps.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from nco_bench.api import plan, run_study
from nco_bench.errors import NcoBenchError, counted
from nco_bench.runs.archives import archived_runs
from nco_bench.runs.environment import code_revision
from nco_bench.runs.packing import pack
from nco_bench.runs.records import Cell
from nco_bench.runs.stored_run import Run
from nco_bench.study import Study
from nco_bench.weights.store import SHIPPED, SUFFIX, verify

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Stale:
    """A run of weights that no longer ship, in the archive (below `results`) that holds it."""

    results: Path
    archive: Path
    run: Run
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        labels = ", ".join(dict.fromkeys(f"{cell.label} {cell.decoding}".rstrip() for cell in self.cells))
        return f"{self.archive.relative_to(self.results)}: {labels} on {self.cells[0].dataset}"

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(cell.seconds_total or 0.0 for cell in self.cells)

    def study(self, folder: Path) -> Study:
        """Return what makes it anew below a folder."""
        cell, options = self.cells[0], self.cells[0].options
        alone = (
            len(self.cells) == 1
        )  # solvers that stand beside each other have their own decodings and settings
        given = {key: value for key, value in options["params"].items() if f":{key}=" not in cell.label}
        first, last = cell.asked or (0, cell.instances)
        return Study(
            solvers=tuple(dict.fromkeys(one.label for one in self.cells)),
            data=(cell.source or cell.dataset,),
            decoding=(cell.decoding,) if alone else (),
            logit_scale=options["logit_scale"] if alone else None,
            coordinate_scale=options["coordinate_scale"] if alone else None,
            param=given if alone else {},
            seed=cell.seed,
            repeats=cell.repeats,
            limit=f"{first + 1}-{last}" if first else last,
            time_limit=options["time_limit"],
            results=self.place(folder),
        )

    def place(self, folder: Path) -> Path:
        """Return the results folder of its archive's new runs."""
        return folder / "-".join(self.archive.relative_to(self.results).with_suffix("").parts)


def stale_runs(name: str, sha256: str, results: Path) -> Iterator[Stale]:
    """Find the runs in archives that have a cell of weights called `name` with another hash."""
    for archive in sorted(results.glob("**/*.parquet")):
        if archive.is_symlink():
            continue
        for run in archived_runs(archive):
            cells = tuple({cell.cell: cell for cell in run.cells()}.values())
            weights = [cell.weights for cell in cells if cell.weights is not None]
            if any(one["name"] == name and one["sha256"] != sha256 for one in weights):
                yield Stale(results, archive, run, cells)


def part_of(found: Sequence[Stale], number: int, parts: int) -> list[Stale]:
    """Share runs out so that each part takes about as long, the longest first."""
    shares: list[list[Stale]] = [[] for _ in range(parts)]
    for one in sorted(found, key=lambda one: -one.seconds):
        min(shares, key=lambda share: sum(other.seconds for other in share)).append(one)
    return shares[number - 1]


def pack_anew(found: Sequence[Stale], folder: Path, *, partly: bool = False) -> None:
    """Put the new runs in place of the stale ones, in all archives; where one is missing, in none, unless `partly`."""
    for one in found:
        left = plan(one.study(folder)).to_solve
        if left and not partly:
            raise SystemExit(f"{one}: {left} instances are not solved in {folder}; nothing was packed")
        if left:
            print(f"{one}: {left} instances are not solved; what is stored of them is stale and dropped")
    revision = code_revision()
    for archive in dict.fromkeys(one.archive for one in found):
        stale = {one.run.run_id: one for one in found if one.archive == archive}
        (place,) = {one.place(folder) for one in stale.values()}
        new = [Run(path.parent) for path in sorted(place.glob("*/run.json"))]
        kept = [run for run in archived_runs(archive) if run.run_id not in stale]
        pack([*kept, *new], archive, revision, without=stale)
        print(f"{archive}: {len(new)} runs for {len(stale)}, {archive.stat().st_size / 1e6:.2f} MB")


def run_there(study: Study, folder: Path) -> None:
    """Run from a folder, so that the command in a record names no place of this machine; instances are those of here."""
    instances = Path(os.environ.get("NCO_BENCH_INSTANCES") or "instances").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with patch.dict(os.environ, {"NCO_BENCH_INSTANCES": str(instances)}), chdir(folder):
        run_study(study)


def main(arguments: list[str] | None = None) -> None:
    """List, run, or pack."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", help="of weights that ship")
    parser.add_argument("folder", type=Path, help="of the new runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N shares")
    parser.add_argument("--partly", action="store_true", help="with --pack: drop what was not made anew")
    what = parser.add_mutually_exclusive_group()
    for flag in ("--list", "--together", "--pack"):
        what.add_argument(flag, action="store_true")
    given = parser.parse_args(arguments)
    shipped = verify(SHIPPED / f"{given.name}{SUFFIX}").manifest.sha256
    found = list(stale_runs(given.name, shipped, given.results))
    if given.pack:
        pack_anew(found, given.folder, partly=given.partly)
        return
    if not given.list:
        number, parts = (int(one) for one in given.part.split("/"))
        found = [one for one in found if (len(one.cells) > 1) == given.together]
        found = part_of(found, number, parts)
    unmade = 0
    for one in found:
        print(f"{one}, {one.seconds:.0f} s", flush=True)
        try:
            if not given.list:
                run_there(one.study(Path()), given.folder)
        except NcoBenchError as error:
            unmade += 1
            print(f"{one}: {error}", file=sys.stderr)
    if unmade:
        raise SystemExit(f"{counted(unmade, 'run')} could not be made")


if __name__ == "__main__":
    main()
