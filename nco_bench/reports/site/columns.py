"""Records as short columns: 100,000 of them must fit in a folder of 3 MB, with everything else.

What is the same for all records of a row stands once, places in a set are ranges, and what belongs to an instance (its name,
size and reference) stands with the dataset. Gaps are computed by the page, from cost and reference.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from nco_bench.reports.frame.result_frame import OK, ResultFrame
from nco_bench.reports.site.rows import rounded

COST_DIGITS = 8
SECONDS_DIGITS = 3


def record_columns(part: pd.DataFrame, messages: tuple[str, ...]) -> dict[str, Any]:
    """Return the records of one row, by repeat and then instance.

    Parameters
    ----------
    part
        Records of a frame.
    messages
        What their ``message`` stands for.

    Returns
    -------
    dict
        ``ranges`` of ``[repeat, first, last + 1]``, which together say repeat and instance of every record; ``cost`` (None
        where it is not known), ``seconds``; ``failed``: position to ``[status, message]`` of records that are not ok.
    """
    ordered = part.sort_values(["repeat", "instance"], kind="stable")
    repeat, instance = ordered["repeat"].to_numpy(), ordered["instance"].to_numpy()
    status = ordered["status"].to_numpy()
    said = ordered["message"].to_numpy()
    bad = np.flatnonzero(status != OK).tolist()
    return {
        "ranges": ranges(repeat.tolist(), instance.tolist()),
        "cost": [rounded(value, COST_DIGITS) for value in ordered["cost"].tolist()],
        "seconds": [rounded(value, SECONDS_DIGITS) for value in ordered["seconds"].tolist()],
        "failed": {str(i): [int(status[i]), messages[int(said[i])][:300]] for i in bad},
    }


def ranges(repeats: list[int], instances: list[int]) -> list[list[int]]:
    """Return runs of neighbouring instances of one repeat, as ``[repeat, first, last + 1]``."""
    found: list[list[int]] = []
    for repeat, instance in zip(repeats, instances, strict=True):
        if found and found[-1][0] == repeat and found[-1][2] == instance:
            found[-1][2] += 1
        else:
            found.append([repeat, instance, instance + 1])
    return found


def dataset_columns(part: pd.DataFrame, frame: ResultFrame) -> dict[str, Any]:
    """Return the instances of one dataset, whichever row has records of them.

    Returns
    -------
    dict
        ``ranges`` of ``[0, first, last + 1]``; ``names``, a list or ``[what all begin with, digits]`` where the rest is the
        instance's number; ``n``, one number or a list; ``reference`` and ``source`` (number in ``sources``, or -1).
    """
    known = part.sort_values("instance", kind="stable").drop_duplicates("instance")
    instances = known["instance"].tolist()
    sizes = known["n"].tolist()
    origin = known["reference_from"].to_numpy()
    used = sorted(set(origin[origin >= 0].tolist()))
    code = {number: position for position, number in enumerate(used)}
    sources = [code.get(number, -1) for number in origin.tolist()]
    return {
        "ranges": ranges([0] * len(instances), instances),
        "names": _names([frame.names[i] for i in known["name"].tolist()], instances),
        "n": sizes[0] if len(set(sizes)) == 1 else sizes,
        "reference": [rounded(value, COST_DIGITS) for value in known["reference"].tolist()],
        "source": sources[0] if len(set(sources)) == 1 else sources,
        "sources": [[frame.references[i].who, frame.references[i].date] for i in used],
    }


def _names(names: list[str], instances: list[int]) -> list[Any]:
    found = re.fullmatch(r"(.*?)(\d+)", names[0], re.DOTALL)
    if found:
        before, width = found[1], len(found[2])
        if all(name == f"{before}{i:0{width}d}" for name, i in zip(names, instances, strict=True)):
            return [before, width]
    return names
