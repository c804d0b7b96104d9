"""Numbers that a function gets by running networks, kept beside the runs: with the same weights none is computed twice."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nco_bench.errors import ResultsError
from nco_bench.files import write
from nco_bench.papers.judging import Verdict
from nco_bench.papers.published import PublishedTable
from nco_bench.papers.stored import unchanged
from nco_bench.runs.environment import code_revision, cpu_model, package_versions

Computed = Mapping[tuple[str, str], "float | Verdict | tuple[float, Verdict]"]
"""Numbers by row and column; a verdict says why there is none, or goes with a number that must not be judged by its size."""
RUNS_NETWORKS = ("nco_bench.papers.claims_measured:", "nco_bench.papers.tropical.cells:")
"""Functions that run networks themselves, and so no part of what is stored; their modules name the weights they use."""
FOLDER = "computed"


def place(results: Path, table: PublishedTable, scale: str) -> Path:
    """Return where the numbers of a table at a scale are kept."""
    return results / FOLDER / f"{table.paper}-table-{table.number}-{scale}.json"


def keep(
    results: Path, target: str, table: PublishedTable, scale: str, computed: Computed, command: str
) -> Path:
    """Write the numbers of a table with the hashes of the weights behind them; raises `ResultsError`."""
    document = {
        "function": target,
        "scale": scale,
        "command": command,
        "code": code_revision(),
        "packages": package_versions(),
        "processor": cpu_model(),
        "weights": dict(_weights_behind(target)(table)),
        **as_document(computed),
    }
    path = place(results, table, scale)
    write(path, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def kept(folders: Sequence[Path], target: str, table: PublishedTable, scale: str) -> Computed | None:
    """Return the numbers that a folder keeps, or None: without any, and where weights are at hand that differ.

    Raises
    ------
    ResultsError
        For a file that is damaged.
    """
    for folder in folders:
        path = place(folder, table, scale)
        if not path.is_file():
            continue
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            same = document["function"] == target
            if same and all(unchanged(name, sha256) for name, sha256 in document["weights"].items()):
                found = from_document(document)
                return None if isinstance(found, Verdict) else found
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultsError(
                f"{path}: not readable ({error!r}); remove it, and reproduce makes it again."
            ) from error
    return None


def _weights_behind(target: str) -> Callable[[PublishedTable], Mapping[str, str]]:
    module = importlib.import_module(target.partition(":")[0])
    found: Callable[[PublishedTable], Mapping[str, str]] = module.weights_behind
    return found


def as_document(computed: Computed | Verdict) -> dict[str, Any]:
    """Return computed numbers, or why there are none, as JSON values."""
    if isinstance(computed, Verdict):
        return {"verdict": [computed.status, computed.reason]}
    cells = []
    for (row, column), found in computed.items():
        number = found[0] if isinstance(found, tuple) else None if isinstance(found, Verdict) else found
        verdict = found[1] if isinstance(found, tuple) else found if isinstance(found, Verdict) else None
        cells.append([row, column, number, verdict and [verdict.status, verdict.reason]])
    return {"cells": cells}


def from_document(document: Mapping[str, Any]) -> Computed | Verdict:
    """Return what `as_document` was given."""
    if "verdict" in document:
        return Verdict(*document["verdict"])
    found: dict[tuple[str, str], float | Verdict | tuple[float, Verdict]] = {}
    for row, column, number, said in document["cells"]:
        verdict = None if said is None else Verdict(*said)
        if verdict is None:
            found[row, column] = number
        else:
            found[row, column] = verdict if number is None else (number, verdict)
    return found
