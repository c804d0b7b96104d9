"""References of sets that were found solved as copies without references: their records do not know them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.names import stream_of
from nco_bench.datasets.places import Places
from nco_bench.errors import NcoBenchError
from nco_bench.runs.records import Cell


def references_of_sets(cells: Iterable[Cell], instances: Path) -> dict[str, Reference]:
    """Return the references, by the hash of the instance, of the sets of those cells that have no records of their own.

    Such a cell says that a run found its set solved under another name. A set that is no longer there, or damaged, has no
    references here; those of generated sets are the ledger's.

    Parameters
    ----------
    cells
        Of any runs.
    instances
        Folder of datasets.
    """
    from nco_bench.datasets.load import load_dataset

    added = [cell.source for cell in cells if cell.seconds_total == 0 and cell.reference_solver is not None]
    found: dict[str, Reference] = {}
    for source in dict.fromkeys(added):
        if source and stream_of(source) is None:
            with suppress(NcoBenchError):
                found |= load_dataset(source, Places.from_environment(instances)).costs_of_references()
    return found
