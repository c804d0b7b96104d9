"""Every file format of the field, to and from datasets.

`FORMATS` is the table; `detect` tells the format of a file by its content, `read_file` and `write_file` convert,
`read_solution` reads one solution for an instance. Files ending in .gz are read and written as their plain form.
Pickles go through `safe_pickle`, which cannot run code. See docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from nco_bench.datasets import storage
from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats import (
    bq,
    concorde_line,
    cvrplib,
    elg,
    gumbeldore,
    invit,
    kool,
    lehd,
    pomo,
    rl4co,
    testset,
    tsplib,
)
from nco_bench.datasets.formats.assemble import FileWarning
from nco_bench.datasets.formats.detection import detect
from nco_bench.datasets.formats.reading import plain_name
from nco_bench.datasets.formats.solutions import read_solution
from nco_bench.datasets.formats.torch_archive import read_torch_archive
from nco_bench.errors import BadInputError, UnknownNameError

__all__ = [
    "FORMATS",
    "FileWarning",
    "Format",
    "detect",
    "format_for",
    "read_file",
    "read_solution",
    "read_torch_archive",
    "write_file",
]


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes
    ----------
    name
        As in ``--from`` and ``--to``.
    read, write
        Functions, None where the format has no such direction (a .tour holds no instance).
    suffixes
        Of its files, without .gz; the first is the usual one.
    problems
        What it can hold.
    description
        One line.
    """

    name: str
    read: Callable[[Path], Dataset] | None
    write: Callable[[Dataset, Path], object] | None
    suffixes: tuple[str, ...]
    problems: tuple[str, ...]
    description: str


_BOTH = ("tsp", "cvrp")
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            "nco-bench",
            storage.load_saved,
            storage.save_dataset,
            (".npz",),
            _BOTH,
            "our own: arrays and manifest",
        ),
        Format("tsplib", tsplib.read, tsplib.write, (".tsp",), ("tsp",), "TSPLIB 95 instance"),
        Format("tour", None, tsplib.write_tour, (".tour",), ("tsp",), "TSPLIB tour: a solution"),
        Format("cvrplib", cvrplib.read, cvrplib.write, (".vrp",), ("cvrp",), "CVRPLIB instance"),
        Format("sol", None, cvrplib.write_solution, (".sol",), ("cvrp",), "CVRPLIB routes: a solution"),
        Format("kool", kool.read, kool.write, (".pkl",), _BOTH, "Kool et al.: pickled lists"),
        Format("rl4co", rl4co.read, rl4co.write, (".npz",), _BOTH, "RL4CO: locs, depot, demand, capacity"),
        Format(
            "concorde-line",
            concorde_line.read,
            concorde_line.write,
            (".txt",),
            ("tsp",),
            "'x y ... output tour' lines",
        ),
        Format(
            "lehd-cvrp",
            lehd.read_cvrp,
            lehd.write_cvrp,
            (".txt",),
            ("cvrp",),
            "LEHD/SIL CVRP lines with solutions",
        ),
        Format(
            "lehd-lib",
            lehd.read_library,
            lehd.write_library,
            (".txt",),
            _BOTH,
            "LEHD's TSPLIB and CVRPLIB lists",
        ),
        Format("bq", bq.read, bq.write, (".npz",), _BOTH, "BQ-NCO: coords with closing node, tour_lens"),
        Format(
            "gumbeldore",
            gumbeldore.read,
            gumbeldore.write,
            (".pickle",),
            _BOTH,
            "Gumbeldore/SIGD: list of dicts",
        ),
        Format("invit", invit.read, invit.write, (".txt",), _BOTH, "INViT: 'x,y x,y' lines"),
        Format(
            "pomo",
            pomo.read,
            pomo.write,
            (".pt",),
            ("cvrp",),
            "POMO: torch file of depot_xy, node_xy, node_demand",
        ),
        Format("elg", elg.read, elg.write, (".pkl",), ("tsp",), "ELG: one TSPLIB instance with its optimum"),
        Format(
            "testset", testset.read, None, (".npz",), _BOTH, "fixed test sets: coords, tour or routes, cost"
        ),
    )
}
"""Format name to format."""


def format_for(path: Path) -> str:
    """Return the format to write a file in, by its suffix.

    Raises
    ------
    UnknownNameError
        For a suffix that no format has.
    BadInputError
        For a suffix of several formats, such as .txt.
    """
    suffix = Path(plain_name(path)).suffix.lower()
    if suffix == ".npz":
        return "nco-bench"
    if suffix == ".pkl":
        return "kool"
    names = [entry.name for entry in FORMATS.values() if entry.write and suffix in entry.suffixes]
    if not names:
        known = {s for entry in FORMATS.values() for s in entry.suffixes}
        raise UnknownNameError(
            "file suffix", suffix or plain_name(path), known, hint="Name the format with --to."
        )
    if len(names) > 1:
        raise BadInputError(f"{path}: {suffix} can be {', '.join(names)}; name one with --to.")
    return names[0]


def _format(name: str) -> Format:
    if name not in FORMATS:
        raise UnknownNameError("file format", name, FORMATS, hint="See docs/formats.md.")
    return FORMATS[name]


def read_file(path: Path, fmt: str | None = None) -> Dataset:
    """Read a file of instances.

    Parameters
    ----------
    path
        The file, plain or .gz.
    fmt
        Format name; by default told by the content.

    Returns
    -------
    Dataset
        References are filled where the file has solutions, their costs recomputed. What a user should know (a
        stated cost that disagrees, an infeasible solution left out) is warned of as `FileWarning`.

    Raises
    ------
    UnknownNameError
        For an unknown format name or a file that no format fits.
    BadInputError
        For a damaged file, naming file, line and cause.
    """
    path = Path(path)
    entry = _format(fmt or detect(path))
    if entry.read is None:
        raise BadInputError(
            f"{path}: holds a solution ({entry.description}), not an instance; use 'nco-bench score INSTANCE SOLUTION'."
        )
    return entry.read(path)


def write_file(dataset: Dataset, path: Path, fmt: str | None = None) -> None:
    """Write a dataset; the file appears whole or not at all.

    Parameters
    ----------
    dataset
        What to write.
    path
        The file; a name ending in .gz is compressed.
    fmt
        Format name; by default told by the suffix.

    Raises
    ------
    UnknownNameError
        For an unknown format or suffix.
    BadInputError
        When the format cannot hold the dataset; the message says why.
    """
    path = Path(path)
    entry = _format(fmt or format_for(path))
    if entry.write is None:
        raise BadInputError(f"Format {entry.name!r} is read only; choose another with --to.")
    if dataset.problem not in entry.problems:
        others = [
            other.name
            for other in FORMATS.values()
            if other.read and other.write and other.name != "nco-bench" and dataset.problem in other.problems
        ]
        raise BadInputError(
            f"{path}: format {entry.name!r} holds {' and '.join(entry.problems)}, not {dataset.problem}; "
            f"choose a name ending in .npz, or another format with --to: {', '.join(others)}."
        )
    if entry.name == "nco-bench" and path.suffix != ".npz":
        raise BadInputError(f"{path}: our own format needs a name ending in .npz.")
    # A slice becomes a set of its own: the hash of the whole would not fit its file.
    entry.write(replace(dataset, first_index=0, whole_sha256=None), path)
