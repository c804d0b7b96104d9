"""What is stored, read: records, tables, comparisons, and whether all of it still holds. `nco_bench.api` runs.

Names, options and defaults are those of the command line; what goes wrong is an `NcoBenchError`, see `nco_bench.api`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from nco_bench.arguments import as_text, listed, plain, refused, several
from nco_bench.reports.frame.aliases import with_aliases
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.tables.table import Table, build_table
from nco_bench.study import places_of, results_folder

if TYPE_CHECKING:
    from nco_bench.reports.frame.compare import Comparison
    from nco_bench.runs.verify import Verified

Names = str | Sequence[str]
Folder = str | Path
Folders = Folder | Sequence[Folder]


def frame(
    *,
    data: Names = (),
    solver: Names = (),
    results: Folders | None = None,
    instances: Folder | None = None,
    alias: Mapping[str, str] | None = None,
) -> ResultFrame:
    """Read stored records in the form that tables and plots are made of; parameters as `records` and `table`."""
    datasets, solvers = several("data", data), several("solver", solver)
    places = places_of(instances)
    found = load_frame([results_folder(one) for one in _folders(results)], places.instances)
    if datasets or solvers:
        found = found.select(datasets=datasets, solvers=solvers)
    return with_aliases(found, _aliases(alias))


def records(
    *,
    data: Names = (),
    solver: Names = (),
    results: Folders | None = None,
    instances: Folder | None = None,
) -> pd.DataFrame:
    """Return stored records, a row per instance and repeat.

    Parameters
    ----------
    data, solver
        Names, or patterns like ``tsp*``, of what to keep; none means all.
    results
        Folder of runs, or several.
    instances
        Folder of the reference ledger, which the gaps are to.

    Returns
    -------
    DataFrame
        Columns as `nco_bench.reports.frame.tidy.tidy` says: solver, decoding, dataset, seed, instance, status, cost,
        reference, gap_percent, seconds and more.

    Raises
    ------
    ResultsError
        Where nothing is stored.
    """
    from nco_bench.reports.frame.tidy import tidy

    return tidy(frame(data=data, solver=solver, results=results, instances=instances))


def table(
    name: str = "main",
    *,
    data: Names = (),
    solver: Names = (),
    gap: str = "mean-of-gaps",
    alias: Mapping[str, str] | None = None,
    results: Folders | None = None,
    instances: Folder | None = None,
) -> Table:
    """Make a table of stored records, as ``nco-bench report`` does; it shows itself in a notebook, and prints as text.

    Parameters
    ----------
    name
        ``main``, ``gaps``, ``times``, ``instances`` or ``tasks``.
    data, solver, results, instances
        As `records`.
    gap
        ``mean-of-gaps`` or ``gap-of-means``.
    alias
        Dataset to the short name that the table prints for it.

    Raises
    ------
    UnknownNameError, ResultsError
        For another table, or where nothing is stored.
    """
    found = frame(data=data, solver=solver, results=results, instances=instances, alias=alias)
    return build_table(as_text("name", name), found, gap=as_text("gap", gap))


def compare(
    solver_a: str,
    solver_b: str,
    data: str,
    *,
    results: Folders | None = None,
    instances: Folder | None = None,
) -> Comparison:
    """Compare two solvers on a dataset, paired by instance: difference with its interval, wins, ties, losses, Wilcoxon.

    Parameters
    ----------
    solver_a, solver_b
        Rows of the main table, or solvers' names.
    data
        One dataset that both were run on; ``nco-bench compare`` takes several.
    results, instances
        As `records`.

    Returns
    -------
    Comparison
        Its ``difference`` is in percentage points of gap, or in cost where references lack, as ``unit`` says.

    Raises
    ------
    UnknownNameError, MissingRecordsError, BadInputError
        For a name without records, or one that fits several rows or datasets.
    """
    from nco_bench.reports.frame import compare as comparing

    one, two = as_text("solver_a", solver_a, "a name"), as_text("solver_b", solver_b, "a name")
    found = frame(results=results, instances=instances)
    return comparing.compare(found, one, two, as_text("data", data, "a name"))


def verify(runs: Names = (), *, results: Folder | None = None, instances: Folder | None = None) -> Verified:
    """Score stored solutions again and check every hash; ``findings`` is empty where all holds.

    Parameters
    ----------
    runs
        Ids; none means all.
    results, instances
        Folders of the runs and of the datasets.
    """
    from nco_bench.runs import verify as verifying

    return verifying.verify(results_folder(results), several("runs", runs), places_of(instances))


def _folders(results: Folders | None) -> list[Folder | None]:
    if results is None:
        return [None]
    found = listed(results)
    if not all(one is None or isinstance(one, str) for one in found):
        raise refused("results", results, "a folder or a list of folders, as text or paths")
    return found


def _aliases(alias: Mapping[str, str] | None) -> dict[str, str]:
    if alias is None:
        return {}
    names = [plain(name) for pair in alias.items() for name in pair] if isinstance(alias, Mapping) else [None]
    if not all(isinstance(name, str) for name in names):
        raise refused("alias", alias, "a dict of datasets to short names")
    return dict(zip(names[::2], names[1::2], strict=True))
