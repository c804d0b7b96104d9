"""Checking what lies in the instances folder against its hashes, for ``nco-bench instances verify``."""

from __future__ import annotations

from pathlib import Path

from nco_bench.datasets.storage import load_saved
from nco_bench.errors import BadInputError, NcoBenchError
from nco_bench.progress import tracked


def verify_stored(instances: Path) -> dict[str, str]:
    """Read every stored dataset; return its file name to ``ok`` or what is wrong.

    Raises
    ------
    BadInputError
        When there is no such folder.
    """
    if not instances.is_dir():
        raise BadInputError(
            f"--instances {instances}: no such folder; 'nco-bench generate' makes datasets in it."
        )
    paths = sorted(instances.glob("*.npz"))
    return {
        path.name: _state(path) for path in tracked(paths, "file", [path.stat().st_size for path in paths])
    }


def _state(path: Path) -> str:
    try:
        load_saved(path)
    except NcoBenchError as error:
        return str(error)
    return "ok"
