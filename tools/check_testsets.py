"""Check the catalogue's public files of test sets against clones of their authors' repositories.

    python tools/check_testsets.py CLONES

CLONES holds a clone (or a bare git directory) of each repository under its own name, such as CLONES/ELG. Every file is
read at the commit of the catalogue, checked by size and SHA-256, made into the set, and its instances and mean cost
compared with the catalogue's. Nothing is written. Status 1 if one differs; what a clone lacks is said, not counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from nco_bench.datasets import catalog, testsets
from nco_bench.errors import NcoBenchError


def main(clones: Path) -> int:
    """Print one line per set; return the exit status."""
    wrong = 0
    for entry in catalog.testsets():
        if not entry.files:
            print(f"{entry.name}: no address: {entry.no_address}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                testsets.keep(entry, Path(folder), lambda _, address: _blob(clones, address))
                dataset = testsets.load(entry, Path(folder) / testsets.FOLDER / f"{entry.name}.npz")
                print(f"{entry.name}: ok, {len(dataset)} instances of {len(entry.files)} file(s)")
            except NcoBenchError as error:
                lacking = "the source has no" in str(error)
                wrong += not lacking
                print(f"{entry.name}: {'not in these clones' if lacking else error}")
    return 1 if wrong else 0


def _blob(clones: Path, address: str) -> bytes | None:
    if address.endswith(".npz"):
        return None  # a mirror's form of the set
    _, name, commit, path = address.split("/", 3)
    command = ["git", "-C", str(clones / name), "show", f"{commit}:{path}"]
    done = subprocess.run(command, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clones", type=Path, metavar="CLONES")
    sys.exit(main(parser.parse_args().clones))
