"""The columns of a run in an archive: taken as they stand there, no line is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from nco_bench.errors import ResultsError
from nco_bench.reports.frame.blocks import (
    CODED,
    PLAIN,
    STATUS_CODES,
    Block,
    coded,
    contents,
    counted,
)
from nco_bench.runs.archives import ArchivedRun
from nco_bench.runs.stored_run import Run


def block_of(run: Run, index: int, groups: Mapping[int, int]) -> Block | None:
    """Return the columns of a run; None for one without records.

    Parameters
    ----------
    run
        In its archive.
    index
        Of the run, in the frame.
    groups
        The run's cells, as groups.

    Raises
    ------
    ResultsError
        When a record belongs to none of the run's cells.
    """
    assert isinstance(run, ArchivedRun)
    rows = run.rows()
    if not rows.num_rows:
        return None
    try:
        return _block(rows, index, groups, run.offsets)
    except (KeyError, ValueError) as error:
        raise ResultsError(
            f"{run.folder}: a record does not fit its run ({type(error).__name__}: {error}); move the archive away."
        ) from error


def _block(rows: Any, index: int, groups: Mapping[int, int], offsets: NDArray[np.int64]) -> Block:
    cells, places = np.unique(rows["cell"].to_numpy(), return_inverse=True)
    columns: dict[str, NDArray[Any]] = {
        "group": np.array([groups[cell] for cell in cells.tolist()], np.int32)[places],
        "content": contents(rows["instance_sha256"].to_pylist()),
    }
    strings = {}
    for name in CODED:
        columns[name], distinct = coded(rows[name].to_pylist())
        strings[name] = orjson.dumps(distinct)
    codes, distinct = coded(rows["status"].to_pylist())
    columns["status"] = np.array([STATUS_CODES[word] for word in distinct], np.int8)[codes]
    lengths = rows["solution_length"].fill_null(-1).to_numpy().astype(np.int32)
    columns["solution_offset"] = np.where(lengths < 0, -1, offsets[:-1])
    columns["solution_length"] = lengths
    for name, dtype in PLAIN:
        columns[name] = rows[name].to_numpy().astype(dtype)
    counts = [orjson.loads(text) if text else {} for text in rows["counts"].to_pylist()]
    return Block(index, columns, strings, counted(counts) if any(counts) else {})
