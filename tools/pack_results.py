"""Replace loose run folders in results/ by archives: ``python tools/pack_results.py results/cpu results/smoke [--remove]``.

Each folder gets one archive per paper that its runs reproduce, and ``runs.parquet`` for the rest; an archive that is
there already is written anew with its runs and the loose ones. A run that lies in two of the folders is packed once, in
``ONE-OTHER.parquet`` of the first, and linked from the other. Needs a checkout without uncommitted changes, whose
commit the archives name: pack, then commit archives and deletions together.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

from nco_bench.runs.archives import archived_runs
from nco_bench.runs.environment import code_revision
from nco_bench.runs.packing import contents, pack
from nco_bench.runs.stored_run import Run

LARGEST = 20_000
"""Nodes up to which solutions are kept: a repository is no place for tours of 50,000 cities; hashes stay."""
PAPER = re.compile(r"\breproduce ([a-z][a-z-]+)")


def loose_runs(folder: Path) -> list[Run]:
    """Return the runs of a results folder that stand in no archive."""
    return [Run(path.parent) for path in sorted(folder.glob("*/run.json"))]


def purpose(run: Run) -> str:
    """Return the paper that a run reproduces, or ``runs``."""
    found = PAPER.search(str(run.info.get("command") or ""))
    return found[1] if found and found[1] != "all" else "runs"


def main(arguments: list[str]) -> int:
    """Pack, link, and remove where that was asked for; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--remove", action="store_true", help="remove the run folders that were packed")
    given = parser.parse_args(arguments)
    copies: dict[str, list[Run]] = defaultdict(list)
    for folder in given.folders:
        for run in loose_runs(folder):
            copies[run.run_id].append(run)
    archives: dict[Path, list[Run]] = defaultdict(list)
    links: set[tuple[Path, Path]] = set()
    for same in copies.values():
        first, *others = same
        if any(contents(other) != contents(first) for other in others):
            raise SystemExit(f"{first.folder}: differs from its copies; nothing was packed")
        homes = [run.folder.parent for run in same]
        name = "-".join(home.name for home in homes) if others else purpose(first)
        archive = homes[0] / f"{name}.parquet"
        archives[archive].append(first)
        links |= {(home / archive.name, archive) for home in homes[1:]}
    revision = code_revision()
    for path, runs in sorted(archives.items()):
        pack([*(archived_runs(path) if path.exists() else ()), *runs], path, revision, largest=LARGEST)
        print(f"{path}: {len(runs)} runs packed, {path.stat().st_size / 1e6:.2f} MB")
    for link, archive in sorted(links):
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / archive.parent.name / archive.name)
    if given.remove:
        for run in (run for same in copies.values() for run in same):
            shutil.rmtree(run.folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
