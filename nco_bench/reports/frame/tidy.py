"""Records as a tidy frame, a row per instance and repeat with all its facts in plain words, and as CSV or Parquet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from nco_bench import files
from nco_bench.errors import BadInputError, MissingDependencyError
from nco_bench.reports.frame.blocks import COUNT_PREFIX
from nco_bench.reports.frame.result_frame import Group, ResultFrame
from nco_bench.reports.frame.summary import hardware
from nco_bench.runs.records import STATUSES

FORMATS = (".csv", ".parquet")

_OF_GROUP: dict[str, Callable[[Group], Any]] = {
    "solver": lambda g: g.cell.solver,
    "label": lambda g: g.cell.label,
    "decoding": lambda g: g.cell.decoding,
    "kind": lambda g: g.cell.kind,
    "solver_version": lambda g: g.cell.solver_version,
    "weights": lambda g: (g.cell.weights or {}).get("name"),
    "weights_sha256": lambda g: (g.cell.weights or {}).get("sha256"),
    "dataset": lambda g: g.cell.dataset,
    "problem": lambda g: g.cell.problem,
    "objective": lambda g: g.cell.objective,
    "seed": lambda g: g.cell.seed,
    "device": lambda g: g.cell.device,
    "batch_size": lambda g: g.cell.batch_size,
    "hardware": lambda g: " / ".join(dict.fromkeys(hardware(e, g.cell.device) for e in g.environments)),
    "config_sha256": lambda g: g.cell.config_sha256,
    "dataset_sha256": lambda g: g.cell.dataset_sha256,
}


def tidy(frame: ResultFrame) -> pd.DataFrame:
    """Return all records with their facts.

    Parameters
    ----------
    frame
        From `nco_bench.reports.frame.load.load_frame`, perhaps with a selection.

    Returns
    -------
    DataFrame
        A row per instance and repeat, in the order of solver configurations, instances and repeats. ``instance`` is the
        index in the dataset, from 0; ``cost`` is missing where nothing was solved, and ``status`` says why; ``gap_percent``
        is to ``reference``, the best that is known now, found by ``reference_solver``. Words that recur are categories.
    """
    records = frame.records.sort_values(["group", "instance", "repeat"], kind="stable", ignore_index=True)
    group = records["group"].to_numpy()
    out: dict[str, Any] = {name: _words(group, list(map(of, frame.groups))) for name, of in _OF_GROUP.items()}
    out["run"] = _words(records["run"], [run.run_id for run in frame.runs])
    out["instance"] = records["instance"].to_numpy()
    out["instance_sha256"] = [
        f"{content:016x}" if content else None for content in records["content"].tolist()
    ]
    out["name"] = _words(records["name"], frame.names)
    out |= {key: records[key].to_numpy() for key in ("n", "repeat")}
    out["status"] = _words(records["status"], STATUSES)
    out |= {key: records[key].to_numpy() for key in ("cost", "reference")}
    sources = frame.references
    out["reference_solver"] = _words(records["reference_from"], [source.who for source in sources])
    out["reference_date"] = _words(records["reference_from"], [source.date for source in sources])
    out |= {key: records[key].to_numpy() for key in ("gap_percent", "seconds", "optimal")}
    out["convention"] = _words(records["convention"], frame.conventions)
    out["message"] = _words(records["message"], frame.messages)
    out |= {name: records[name].to_numpy() for name in records.columns if name.startswith(COUNT_PREFIX)}
    return pd.DataFrame(out)


def _words(codes: Any, values: Sequence[Any]) -> Any:
    """Return what codes stand for: numbers as they are, words as categories; missing for a code of -1 and a None."""
    places = np.asarray(codes, dtype=np.int64)
    if values and all(isinstance(value, int) for value in values):
        return np.asarray(values)[places]
    kinds = {value: code for code, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
    table = np.array([kinds.get(value, -1) for value in values] + [-1], dtype=np.int64)
    return pd.Categorical.from_codes(table[places], categories=pd.Index(list(kinds), dtype="object"))


def write(records: pd.DataFrame, path: Path) -> None:
    """Write a frame as CSV or Parquet, as the file's ending says; whole or not at all.

    Raises
    ------
    BadInputError
        For another ending.
    MissingDependencyError
        For Parquet without pyarrow.
    ResultsError
        When the place cannot be written.
    """
    check(path)
    with files.replacing(path, sync=False, mode=files.READABLE) as temporary:
        if path.suffix == ".csv":
            records.to_csv(temporary, index=False, lineterminator="\n")
        else:
            records.to_parquet(temporary, index=False, engine="pyarrow")


def check(path: Path) -> None:
    """Raise what `write` would for a file's ending, before the work that it is to hold."""
    if path.suffix not in FORMATS:
        raise BadInputError(f"--out {path}: expected a name that ends in {' or '.join(FORMATS)}.")
    if path.suffix == ".parquet":
        try:
            import pyarrow  # noqa: F401
        except ImportError:
            raise MissingDependencyError(
                f"{path}: Parquet needs pyarrow: pip install 'nco-bench[parquet]'; or name a .csv file."
            ) from None
