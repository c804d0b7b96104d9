"""Shorter names for the datasets of a frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from nco_bench.errors import BadInputError, MissingRecordsError
from nco_bench.reports.frame.result_frame import ResultFrame, nearest


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
    MissingRecordsError
        For a dataset without records.
    BadInputError
        For a short name that would stand for two datasets, or none.
    """
    if not aliases:
        return frame
    present = set(frame.records["group"].unique().tolist())
    solvers = {g.cell.solver for g in frame.groups}
    known = dict.fromkeys(g.cell.dataset for code, g in enumerate(frame.groups) if code in present)
    for name, short in aliases.items():
        if name not in known:
            listed = nearest(name, known)
            if name in solvers:
                raise BadInputError(
                    f"--alias {name}=: is a solver; only datasets have an alias, such as {listed}."
                )
            raise MissingRecordsError(
                f"--alias {name}=: the table has no records of it; there are of {listed}."
            )
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
