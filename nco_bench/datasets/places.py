"""Where datasets are looked for; listings ask here without loading any."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


def has_ledger(instances: Path) -> bool:
    """Whether references were ever stored in a folder of datasets; where not, nobody loads what reads them."""
    return (instances / "ledger").is_dir()


@dataclass(frozen=True)
class Places:
    """Where datasets are looked for.

    Attributes
    ----------
    instances
        Folder of generated and pulled sets, and of the reference ledger.
    mirror
        ``NCO_BENCH_MIRROR``: a local folder that stands in for the network.
    """

    instances: Path
    mirror: Path | None = None

    @staticmethod
    def from_environment(instances: Path | None = None) -> Places:
        """Take ``--instances`` (or ``NCO_BENCH_INSTANCES``, or ``instances``) and ``NCO_BENCH_MIRROR``."""
        folder = instances or Path(os.environ.get("NCO_BENCH_INSTANCES", "instances"))
        mirror = os.environ.get("NCO_BENCH_MIRROR")
        return Places(folder, Path(mirror) if mirror else None)
