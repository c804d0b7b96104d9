"""The part of a results folder that one run asked for, and shorter names for its datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nco_bench.datasets.dataset import Reference
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.reports.frame.load import ResultFrame, load_frame
from nco_bench.runs.records import Cell


def frame_of_cells(
    results: Path,
    cells: Sequence[Cell],
    repeats: int,
    instances: Path | None = None,
    given: Mapping[str, Reference] | None = None,
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
    given
        References that came with the datasets, by the hash of the instance: the records may be of copies without them.
    """
    frame = load_frame(results, instances, given)
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


def with_aliases(frame: ResultFrame, aliases: Mapping[str, str]) -> ResultFrame:
    """Give datasets shorter names; a note of the frame says what each stands for.

    Parameters
    ----------
    frame
        From `load_frame`, perhaps with a selection.
    aliases
        Dataset, as tables call it, to its short name.

    Raises
    ------
    UnknownNameError
        For a dataset without records.
    BadInputError
        For a short name that would stand for two datasets, or none.
    """
    if not aliases:
        return frame
    present = set(frame.records["group"].unique().tolist())
    known = dict.fromkeys(g.cell.dataset for code, g in enumerate(frame.groups) if code in present)
    for name, short in aliases.items():
        if name not in known:
            raise UnknownNameError("dataset", name, known, "Only datasets of the table can have an alias.")
        if not short.strip():
            raise BadInputError(f"--alias {name}=: expected a short name after the last '='.")
    printed = [aliases.get(name, name) for name in known]
    twice = next((one for one in printed if printed.count(one) > 1), None)
    if twice is not None:
        raise BadInputError(f"--alias: {twice!r} would stand for two datasets; choose different names.")
    groups = tuple(
        replace(g, cell=replace(g.cell, dataset=aliases.get(g.cell.dataset, g.cell.dataset)))
        for g in frame.groups
    )
    told = ", ".join(f"{short} is {name}" for name, short in aliases.items() if short != name)
    return replace(frame, groups=groups, notes=(*frame.notes, f"{told}.") if told else frame.notes)
