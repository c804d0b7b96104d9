"""The part of a results folder that one command asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nco_bench.reports.load import ResultFrame, group_identity, load_frame
from nco_bench.runs.records import Cell


def frame_of_cells(
    results: Path, cells: Sequence[Cell], limit: tuple[int, int | None] | None, repeats: int
) -> ResultFrame:
    """Read the records of some cells, whichever runs found them.

    Parameters
    ----------
    results
        Folder of all runs.
    cells
        The cells asked for, in the order that the result shall have.
    limit
        Instances ``limit[0] .. limit[1] - 1``, or None for all.
    repeats
        Repeats ``0 .. repeats - 1``.
    """
    frame = load_frame(results)
    wanted = {group_identity(cell): rank for rank, cell in enumerate(cells)}
    ranks = np.array([wanted.get(group_identity(group.cell), -1) for group in frame.groups])
    records = frame.records
    keep = (ranks[records["group"].to_numpy()] >= 0) & (records["repeat"].to_numpy() < repeats)
    if limit is not None:
        instance = records["instance"].to_numpy()
        keep &= instance >= limit[0]
        if limit[1] is not None:
            keep &= instance < limit[1]
    records = records[keep]
    order = np.argsort(ranks[records["group"].to_numpy()], kind="stable")
    renumbered = np.where(ranks >= 0, ranks, len(cells))
    groups = {int(code): group for code, group in zip(renumbered, frame.groups, strict=True)}
    records = records.iloc[order].assign(group=renumbered[records["group"].to_numpy()[order]])
    return replace(
        frame,
        records=records.reset_index(drop=True),
        groups=tuple(groups.get(i, frame.groups[0]) for i in range(len(cells))),
    )


def dataset_called(frame: ResultFrame, name: str) -> str:
    """Return the name under which records of a dataset are stored, given that name or what was asked for when it was run.

    ``tsp100`` may have meant a stored set of 1,000 instances, whose own name is ``tsp100:count=1000``. A name that nothing
    answers to is returned as it is.
    """
    cells = [group.cell for group in frame.groups]
    if any(cell.dataset == name for cell in cells):
        return name
    return next((cell.dataset for cell in reversed(cells) if cell.source == name), name)
