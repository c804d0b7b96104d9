"""Every file format of the field, to and from datasets.

`FORMATS` is the table; `detect` tells the format of a file by its content, `read_file` and `write_file` convert,
`read_solution` reads one solution for an instance. Files ending in .gz are read and written as their plain form.
Pickles go through `safe_pickle`, which cannot run code. See docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from nco_bench.errors import BadInputError, UnknownNameError

if TYPE_CHECKING:
    from nco_bench.datasets.dataset import Dataset
    from nco_bench.datasets.formats.assemble import FileWarning as FileWarning
    from nco_bench.datasets.formats.detection import detect as detect
    from nco_bench.datasets.formats.solutions import read_solution as read_solution

__all__ = [
    "FORMATS",
    "FileWarning",
    "Format",
    "detect",
    "format_for",
    "read_file",
    "read_solution",
    "write_file",
]

ELSEWHERE = {"FileWarning": "assemble", "detect": "detection", "read_solution": "solutions"}
"""What this package offers from its modules, which are imported when it is asked for: most runs read no file."""


def __getattr__(name: str) -> Any:
    if name not in ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{ELSEWHERE[name]}"), name)


@dataclass(frozen=True)
class Format:
    """One file format.

    Attributes
    ----------
    name
        As in ``--from`` and ``--to``.
    reader, writer
        ``module.function`` in this room; empty where the format has no such direction (a .tour holds no instance).
    suffixes
        Of its files, without .gz; the first is the usual one.
    problems
        What it can hold.
    description
        One line.
    one
        A file holds a single instance.
    needs
        What it cannot be written without: ``cost`` or ``solution`` of every instance, or nothing.
    rounded
        It means rounded distances, so that instances under ``euclidean`` are refused.
    """

    name: str
    reader: str
    writer: str
    suffixes: tuple[str, ...]
    problems: tuple[str, ...]
    description: str
    one: bool = False
    needs: Literal["", "cost", "solution"] = ""
    rounded: bool = False

    def takes(self, dataset: Dataset) -> bool:
        """Whether the format can be advised for a dataset: its problem, count, references and convention fit."""
        return (
            bool(self.writer)
            and dataset.problem in self.problems
            and not (self.one and len(dataset) > 1)
            and not (self.rounded and any(i.convention == "euclidean" for i in dataset.instances))
            and (
                not self.needs
                or all(
                    r is not None and (self.needs == "cost" or r.solution is not None)
                    for r in dataset.references
                )
            )
        )

    @property
    def read(self) -> Callable[[Path], Dataset] | None:
        """The function that reads a file; imported now."""
        return _function(self.reader)

    @property
    def write(self) -> Callable[[Dataset, Path], object] | None:
        """The function that writes a file; imported now."""
        return _function(self.writer)


def _function(target: str) -> Any:
    module, _, name = target.rpartition(".")
    return (
        getattr(import_module(module if "." in module else f"{__name__}.{module}"), name) if target else None
    )


_BOTH = ("tsp", "cvrp")
FORMATS: dict[str, Format] = {
    entry.name: entry
    for entry in (
        Format(
            "nco-bench",
            "nco_bench.datasets.storage.load_saved",
            "nco_bench.datasets.storage.save_dataset",
            (".npz",),
            _BOTH,
            "our own: arrays and manifest",
        ),
        Format("tsplib", "tsplib.read", "tsplib.write", (".tsp",), ("tsp",), "TSPLIB 95 instance", one=True),
        Format(
            "tour",
            "",
            "tsplib.write_tour",
            (".tour",),
            ("tsp",),
            "TSPLIB tour: a solution",
            one=True,
            needs="solution",
        ),
        Format(
            "cvrplib", "cvrplib.read", "cvrplib.write", (".vrp",), ("cvrp",), "CVRPLIB instance", one=True
        ),
        Format(
            "sol",
            "",
            "cvrplib.write_solution",
            (".sol",),
            ("cvrp",),
            "CVRPLIB routes: a solution",
            one=True,
            needs="solution",
        ),
        Format("kool", "kool.read", "kool.write", (".pkl",), _BOTH, "Kool et al.: pickled lists"),
        Format(
            "rl4co", "rl4co.read", "rl4co.write", (".npz",), _BOTH, "RL4CO: locs, depot, demand, capacity"
        ),
        Format(
            "concorde-line",
            "concorde_line.read",
            "concorde_line.write",
            (".txt",),
            ("tsp",),
            "'x y ... output tour' lines",
            needs="solution",
        ),
        Format(
            "lehd-cvrp",
            "lehd.read_cvrp",
            "lehd.write_cvrp",
            (".txt",),
            ("cvrp",),
            "LEHD/SIL CVRP lines with solutions",
            needs="solution",
        ),
        Format(
            "lehd-lib",
            "lehd.read_library",
            "lehd.write_library",
            (".txt",),
            _BOTH,
            "LEHD's TSPLIB and CVRPLIB lists",
            needs="cost",
            rounded=True,
        ),
        Format(
            "bq",
            "bq.read",
            "bq.write",
            (".npz",),
            _BOTH,
            "BQ-NCO: coords with closing node, tour_lens",
            needs="cost",
        ),
        Format(
            "gumbeldore",
            "gumbeldore.read",
            "gumbeldore.write",
            (".pickle",),
            _BOTH,
            "Gumbeldore/SIGD: list of dicts",
            needs="solution",
        ),
        Format("invit", "invit.read", "invit.write", (".txt",), _BOTH, "INViT: 'x,y x,y' lines"),
        Format(
            "pomo",
            "pomo.read",
            "pomo.write",
            (".pt",),
            ("cvrp",),
            "POMO: torch file of depot_xy, node_xy, node_demand",
        ),
        Format(
            "elg",
            "elg.read",
            "elg.write",
            (".pkl",),
            ("tsp",),
            "ELG: one TSPLIB instance with its optimum",
            one=True,
            needs="cost",
            rounded=True,
        ),
        Format(
            "testset", "testset.read", "", (".npz",), _BOTH, "fixed test sets: coords, tour or routes, cost"
        ),
    )
}
"""Format name to format."""


def format_for(path: Path, problem: str | None = None) -> str:
    """Return the format to write a file in, by its suffix; of several, those are named that can hold the problem.

    Raises
    ------
    UnknownNameError
        For a suffix that no format has.
    BadInputError
        For a suffix of several formats, such as .txt.
    """
    from nco_bench.datasets.formats.reading import plain_name

    suffix = Path(plain_name(path)).suffix.lower()
    if suffix == ".npz":
        return "nco-bench"
    if suffix == ".pkl":
        return "kool"
    names = [entry.name for entry in FORMATS.values() if entry.writer and suffix in entry.suffixes]
    if not names:
        known = {s for entry in FORMATS.values() for s in entry.suffixes}
        raise UnknownNameError(
            "file suffix", suffix or plain_name(path), known, hint="Name the format with --to."
        )
    if len(names) > 1:
        fitting = [name for name in names if problem is None or problem in FORMATS[name].problems]
        raise BadInputError(f"{path}: {suffix} can be {', '.join(fitting or names)}; name one with --to.")
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
    from nco_bench.datasets.formats.detection import detect

    entry = _format(fmt or detect(path))
    if not entry.reader:
        raise BadInputError(
            f"{path}: holds a solution ({entry.description}), not an instance; use 'nco-bench score INSTANCE SOLUTION'."
        )
    dataset: Dataset = _function(entry.reader)(path)
    return dataset


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
    entry = _format(fmt or format_for(path, dataset.problem))
    if not entry.writer:
        raise BadInputError(f"Format {entry.name!r} is read only; choose another with --to.")
    if dataset.problem not in entry.problems:
        others = [
            other.name
            for other in FORMATS.values()
            if other.reader and other.name != "nco-bench" and other.takes(dataset)
        ]
        more = f", or another format with --to: {', '.join(others)}" if others else ""
        raise BadInputError(
            f"{path}: format {entry.name!r} holds {' and '.join(entry.problems)}, not {dataset.problem}; "
            f"choose a name ending in .npz{more}."
        )
    if entry.name == "nco-bench" and path.suffix != ".npz":
        raise BadInputError(f"{path}: our own format needs a name ending in .npz.")
    # A slice becomes a set of its own: the hash of the whole would not fit its file.
    _function(entry.writer)(replace(dataset, first_index=0, whole_sha256=None), path)
