"""The part of a results folder that one run asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nco_bench.reports.load import ResultFrame, load_frame
from nco_bench.runs.records import Cell


def frame_of_cells(
    results: Path, cells: Sequence[Cell], repeats: int, instances: Path | None = None
) -> ResultFrame:
    """Read the records of what some cells asked for, whichever runs found them.

    Parameters
    ----------
    results
        Folder of all runs.
    cells
        The cells asked for, in the order that the result shall have.
    repeats
        Repeats ``0 .. repeats - 1``.
    instances
        Folder that holds the reference ledger.
    """
    frame = load_frame(results, instances)
    wanted = []
    for cell in cells:
        code = frame.code_of(cell)
        first, last = cell.asked or (0, cell.instances)
        if code is not None:
            facts = replace(
                frame.groups[code].cell,
                dataset=cell.dataset,
                dataset_sha256=cell.dataset_sha256,
                label=cell.label,
            )
            part = {code: (facts, first, last)}
            if part not in wanted:  # one set under two spellings
                wanted.append(part)
    frame = frame.parts(wanted)
    asked = [next((first, last, repeats) for _, first, last in part.values()) for part in wanted]
    groups = [replace(group, asked=(one,)) for group, one in zip(frame.groups, asked, strict=True)]
    records = frame.records
    records = records[records["repeat"] < repeats].reset_index(drop=True)
    return replace(frame, records=records, groups=tuple(groups))
