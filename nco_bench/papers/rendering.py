"""Every table from the records that are stored: nothing is run, and no solver, weights or GPU of this machine counts."""

from __future__ import annotations

from collections.abc import Sequence

from nco_bench.papers.entries import STORED, Reproduction
from nco_bench.papers.preset import load_preset
from nco_bench.papers.published import PublishedTable
from nco_bench.papers.standing import standings
from nco_bench.papers.stored import Stored


def from_records(tables: Sequence[PublishedTable], stored: Stored) -> list[Reproduction]:
    """Return published tables with the numbers that records answer; the others say what they lack.

    Raises
    ------
    BadInputError
        For a preset that leaves a printed number out.
    """
    found = standings(tables, stored, readings=True, anywhere=True)
    return [
        Reproduction(
            table,
            STORED,
            tuple(one.entry for one in found if one.table is table),
            load_preset(table.paper, table.number).notes,
        )
        for table in tables
    ]
