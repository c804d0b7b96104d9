"""What closed runs of a results folder hold, in one file, so that a job need not open all of them.

Each job asks which of its solutions are stored; of a thousand runs it would open every one to learn that none of them is
about its instances. So a run that is closed, to which nothing is added any more, says in a line of
``RESULTS/slurm/runs.jsonl`` of which configurations, seeds and instances its records are, and who asks leaves those out
that cannot answer.

The file is a help and no record. A run that has no line (its process was killed, a line was lost where two machines wrote at
once, the file was removed) is opened as ever, and so is one whose line does not have its checksum. A line is written after
the run's own files are on the disk, and can only say too much, which is found out by opening the run. The file is kept
where jobs are submitted from: results folders without ``slurm`` have none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from nco_bench.runs.records import SUBMISSIONS
from nco_bench.seals import is_sealed, seal_line, unseal_line

NAME = "runs.jsonl"


@dataclass
class Held:
    """What a run that is being written holds.

    Attributes
    ----------
    cells
        Configuration and seed, by cell.
    spans
        First and last instance of the records, by cell.
    """

    cells: dict[int, tuple[str, int]] = field(default_factory=dict)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def record(self, cell: int, instance: int) -> None:
        """Take a record."""
        first, last = self.spans.get(cell, (instance, instance))
        self.spans[cell] = min(first, instance), max(last, instance)

    def line(self, run_id: str) -> bytes:
        """Return the run's line, in lines of its own whatever stands before."""
        cells = [[*self.cells[cell], *span] for cell, span in self.spans.items()]
        return b"\n" + seal_line(orjson.dumps({"run": run_id, "cells": cells}) + b"\n")

    def tell(self, results: Path, run_id: str) -> None:
        """Say what a closed run holds; where that cannot be written, the run is opened as ever."""
        if not self.spans.keys() <= self.cells.keys():
            return
        with suppress(OSError):
            handle = os.open(results / SUBMISSIONS / NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, self.line(run_id))
            finally:
                os.close(handle)


def others(results: Path, config_sha256: str, seed: int, instances: range) -> frozenset[str]:
    """Return the closed runs that hold no record of a configuration, a seed and any of some instances."""

    def asked(config: str, drawn: int, first: int, last: int) -> bool:
        return (config, drawn) == (config_sha256, seed) and first < instances.stop and last >= instances.start

    return frozenset(
        line["run"] for line in _lines(results) if not any(asked(*cell) for cell in line["cells"])
    )


def _lines(results: Path) -> Iterator[dict[str, Any]]:
    try:
        lines = (results / SUBMISSIONS / NAME).read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        if is_sealed(line):  # else torn, or empty
            yield orjson.loads(unseal_line(line + b"\n"))
