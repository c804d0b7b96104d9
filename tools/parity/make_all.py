"""Make every fixture whose authors' repository lies in a folder of checkouts; `make parity OFFICIAL=FOLDER` replays them.

    python tools/parity/make_all.py --official FOLDER --out parity

A checkout is called like its repository (``POMO``) or with its owner (``yd-kwon+POMO``). Status 1 where none is found or a
maker fails; repositories that are missing are named.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from making import arguments

HERE = Path(__file__).parent


def main() -> int:
    options = arguments(__doc__)
    made, failed = 0, 0
    for maker in sorted(HERE.glob("make_*.py")):
        repository = re.search(r'^REPOSITORY = "(.+)"$', maker.read_text(), re.MULTILINE)
        if repository is None:  # this file
            continue
        checkout = found(options.official, repository[1])
        if checkout is None:
            print(f"{maker.stem.removeprefix('make_')}: no checkout of {repository[1]} in {options.official}")
            continue
        command = [sys.executable, str(maker), "--official", str(checkout), "--out", str(options.out)]
        command += ["--any-commit"] if options.any_commit else []
        status = subprocess.run(command, check=False).returncode
        made, failed = made + (status == 0), failed + (status != 0)
    return 0 if made and not failed else 1


def found(folder: Path, repository: str) -> Path | None:
    """Return the checkout of ``owner/name`` in the folder."""
    owner, name = repository.split("/")
    return next((folder / one for one in (name, f"{owner}+{name}") if (folder / one).is_dir()), None)


if __name__ == "__main__":
    sys.exit(main())
