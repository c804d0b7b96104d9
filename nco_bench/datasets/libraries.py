"""Datasets by name from TSPLIB, CVRPLIB and the fixed test sets.

Names: ``tsplib``, ``tsplib/berlin52``, ``cvrplib:X``, ``cvrplib/X-n101-k25``, ``fu_tsp500``. After the library any number of
filters, each after a colon: ``1001-10000``, ``n<=500``, a set of CVRPLIB (``X``, ``AGS``), ``no-limit`` (CVRPLIB: routes of
any length), an edge weight type (``EUC_2D``), or the selection of a paper (``tsplib:pens-100``, ``tsplib:sit``). n counts
nodes for the TSP and customers for the CVRP, so X-n101-k25 has n = 100.

Files are looked for in ``<instances>/tsplib/NAME.tsp[.gz]`` and ``<instances>/cvrplib/SET/NAME.vrp[.gz]``, then below the
mirror's ``instances/``. Each must be the published file (by SHA-256) or parse to the same instance.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from nco_bench.datasets import catalog, formats, testsets
from nco_bench.datasets.catalog import Entry, TestSet
from nco_bench.datasets.dataset import Dataset, Origin, Reference, content_sha256
from nco_bench.datasets.formats.reading import read_bytes
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import Instance, problem

PUBLISHED_DIGITS = 0.011
"""Unrounded values are published with two decimals; a solution this near a value is the one it was taken from."""

Rule = Callable[[Entry], bool]


def _pens(low: int, high: int) -> Rule:
    return lambda e: e.edge_weight_type == "EUC_2D" and e.name != "linhp318" and low <= e.n <= high


def _decoder_scaling(entry: Entry) -> bool:
    return entry.edge_weight_type == "EUC_2D" and entry.name != "linhp318" and entry.n < 5000


def _sit_tsp(entry: Entry) -> bool:
    return entry.n >= 1000 and entry.edge_weight_type in ("EUC_2D", "CEIL_2D")


def _sit_cvrp(entry: Entry) -> bool:
    return entry.n >= 1000 and entry.group in ("X", "XXL", "Li")


SELECTIONS: dict[str, dict[str, tuple[Rule, str]]] = {
    "tsplib": {
        "pens-100": (_pens(1, 100), "PENS: EUC_2D, 1 to 100 nodes, without linhp318 (12 instances)"),
        "pens-1000": (_pens(101, 1000), "PENS: EUC_2D, 101 to 1000 nodes, without linhp318 (36 instances)"),
        "pens-10000": (_pens(1001, 10_000), "PENS: EUC_2D, 1001 to 10,000 nodes (24 instances)"),
        "sit": (_sit_tsp, "SIT Table 2: 1000 nodes and more with planar coordinates (33 instances)"),
        "decoder-scaling": (
            _decoder_scaling,
            "decoder scaling and LEHD: EUC_2D below 5000 nodes (70 instances)",
        ),
    },
    "cvrplib": {
        "sit": (_sit_cvrp, "SIT Table 2: X, Li and XXL with 1000 customers and more (14 instances)"),
    },
}
"""Selections of the papers: library, name, rule and what it is. How each was established is in docs/formats.md."""

SET_ALIASES = {
    "AGS": "XXL",
    "ARNOLD": "XXL",
    "TAI": "Taillard",
    "GOLDEN": "Golden",
    "LI": "Li",
    "TAILLARD": "Taillard",
}
NO_LIMIT = "no-limit"
EDGE_TYPES = frozenset({"EUC_2D", "CEIL_2D", "GEO", "ATT", "EXPLICIT"})


def resolve_library(name: str, instances_dir: Path, mirror: Path | None = None) -> Dataset | None:
    """Load a library dataset or fixed test set.

    Parameters
    ----------
    name
        See the head of this file.
    instances_dir, mirror
        Where files are looked for, in this order.

    Returns
    -------
    Dataset | None
        None when `name` is no name of this kind. References come from the catalogue; where the published solution is at
        hand and costs the published value, it is enclosed.

    Raises
    ------
    UnknownNameError
        For an unknown instance, set or filter of a library.
    BadInputError
        When a file is missing (the message holds the command that fetches it) or is not the published one.
    """
    for entry in catalog.testsets():
        if entry.name == name:
            return _load_testset(entry, instances_dir, mirror)
    library = re.split("[:/]", name, maxsplit=1)[0]
    if library not in SELECTIONS:
        return None
    entries = select(name)
    places = _places(instances_dir, mirror)
    loaded = [_load_entry(entry, places) for entry in entries]
    return Dataset(
        name=name,
        problem="tsp" if library == "tsplib" else "cvrp",
        instances=tuple(instance for instance, _ in loaded),
        references=tuple(reference for _, reference in loaded),
        origin=Origin(library, version=max(entry.date for entry in entries), params={"selection": name}),
    )


def select(name: str) -> list[Entry]:
    """Return the catalogue entries that a library name means; raises `UnknownNameError` and `BadInputError`."""
    library, separator, rest = re.fullmatch(r"([^:/]*)([:/]?)(.*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
    entries = catalog.tsplib() if library == "tsplib" else catalog.cvrplib()
    if separator == "/":
        found = [entry for entry in entries if entry.name == rest]
        if not found:
            known = [entry.name for entry in entries]
            raise UnknownNameError(
                f"{library} instance", rest, known, hint=f"See 'nco-bench show {library}'."
            )
        return found
    chosen = list(entries)
    for word in filter(None, rest.split(":")):
        rule = _rule(library, word)
        chosen = [entry for entry in chosen if rule(entry)]
    if not chosen:
        raise BadInputError(f"{name}: no instance of {library} fits all of these; widen the filter.")
    return chosen


def _rule(library: str, word: str) -> Rule:
    """Turn one filter word into a condition."""
    if word in SELECTIONS[library]:
        return SELECTIONS[library][word][0]
    if match := re.fullmatch(r"(\d{1,9})-(\d{1,9})", word):
        low, high = int(match[1]), int(match[2])
        return lambda entry: low <= entry.n <= high
    if match := re.fullmatch(r"n(<=|>=|<|>|=)(\d{1,9})", word):
        compare, limit = match[1], int(match[2])
        return {
            "<=": lambda entry: entry.n <= limit,
            ">=": lambda entry: entry.n >= limit,
            "<": lambda entry: entry.n < limit,
            ">": lambda entry: entry.n > limit,
            "=": lambda entry: entry.n == limit,
        }[compare]
    if word.upper() in EDGE_TYPES:
        return lambda entry: entry.edge_weight_type == word.upper()
    if library == "cvrplib" and word == NO_LIMIT:
        return lambda entry: entry.max_route_length is None
    groups = {entry.group for entry in catalog.cvrplib()}
    group = SET_ALIASES.get(word.upper(), word.upper())
    if library == "cvrplib" and group in groups:
        return lambda entry: entry.group == group
    known = [*SELECTIONS[library], *sorted(EDGE_TYPES), "1001-10000", "n<=500"]
    known += [NO_LIMIT, *sorted({*groups, "AGS"})] if library == "cvrplib" else []
    # Few of the sets' names are near to one another, so all are told.
    raise UnknownNameError(f"filter of {library}", word, (), hint=f"Known: {', '.join(known)}.")


def library_names() -> list[str]:
    """Names of library datasets and test sets, for listings and suggestions."""
    return [str(entry["name"]) for entry in library_entries()]


def library_entries() -> list[dict[str, Any]]:
    """Describe every library dataset and test set: name, problem, instances, sizes, description."""
    out = [_described("tsplib", "all symmetric TSPLIB 95 instances")]
    out += [_described(f"tsplib:{key}", text) for key, (_, text) in SELECTIONS["tsplib"].items()]
    out.append(
        _described("cvrplib", "all CVRPLIB instances at hand: A B E F M P X XL XXL Golden Li Taillard")
    )
    groups = list(dict.fromkeys(entry.group for entry in catalog.cvrplib()))
    out += [_described(f"cvrplib:{group}", f"CVRPLIB set {group}") for group in groups]
    out += [_described(f"cvrplib:{key}", text) for key, (_, text) in SELECTIONS["cvrplib"].items()]
    for test in catalog.testsets():
        text = f"{test.distribution}; references: {test.solver}"
        out.append(
            {
                "name": test.name,
                "problem": test.problem,
                "instances": test.count,
                "sizes": (test.n, test.n),
                "description": text,
            }
        )
    return out


def _described(name: str, description: str) -> dict[str, Any]:
    entries = select(name)
    sizes = [entry.n for entry in entries]
    kind = "tsp" if name.startswith("tsplib") else "cvrp"
    return {
        "name": name,
        "problem": kind,
        "instances": len(entries),
        "sizes": (min(sizes), max(sizes)),
        "description": description,
    }


def _places(instances_dir: Path, mirror: Path | None) -> list[Path]:
    return [instances_dir] if mirror is None else [instances_dir, mirror / "instances"]


def find_file(places: Iterable[Path], folder: str, file: str) -> Path | None:
    """Return the first of ``PLACE/folder/file`` and ``PLACE/folder/file.gz`` that exists."""
    for place in places:
        for path in (place / folder / file, place / folder / f"{file}.gz"):
            if path.is_file():
                return path
    return None


def _load_entry(entry: Entry, places: list[Path]) -> tuple[Instance, Reference]:
    path = find_file(places, entry.folder, entry.file)
    if path is None:
        raise BadInputError(
            f"{entry.library}/{entry.name}: not found as {places[0] / entry.folder / entry.file}[.gz]; "
            f"run 'nco-bench instances pull {entry.library}'."
        )
    instance = read_checked(path, entry)
    return instance, _reference(entry, instance, find_file(places, entry.folder, entry.solution_file or "-"))


def read_checked(path: Path, entry: Entry) -> Instance:
    """Read an instance file and make sure that it is the published instance; raises `BadInputError`."""
    instance: Instance
    if entry.library == "tsplib":
        from nco_bench.datasets.formats import tsplib

        instance = tsplib.read_instance(path, name=entry.name)
    else:
        from nco_bench.datasets.formats import cvrplib

        instance = cvrplib.read_instance(path, name=entry.name)
    if hashlib.sha256(read_bytes(path)).hexdigest() == entry.sha256:
        return instance
    if content_sha256(instance.problem, [instance]) == entry.content_sha256:
        return instance  # other white space or line ends, the same instance
    raise BadInputError(
        f"{path}: not the published {entry.name} (its content has another hash), so the published value does not apply; "
        f"delete it and run 'nco-bench instances pull {entry.library}', or give its path to use it as it is."
    )


def _reference(entry: Entry, instance: Instance, solution_path: Path | None) -> Reference:
    """Published value, with the published solution where that costs as much."""
    source = f"{entry.source} ({entry.date})"
    # A free fleet beats some optima that hold for a fixed number of vehicles: then they are no bound for us.
    optimal = entry.proven == "yes" and entry.free_fleet_value is None
    params = (
        "" if entry.free_fleet_value is None else f"fixed fleet; {entry.free_fleet_value:g} with a free fleet"
    )
    published = Reference(entry.value, source, optimal=optimal, params=params)
    if solution_path is None:
        return published
    solution = formats.read_solution(solution_path, instance)
    referee = problem(instance.problem)
    faults = referee.violations(instance, solution)
    if faults:
        warnings.warn(
            f"{solution_path}: infeasible and left out: {faults[0]}", formats.FileWarning, stacklevel=4
        )
        return published
    cost = referee.score(instance, solution)
    rounding = PUBLISHED_DIGITS if entry.convention == "euclidean" else 0.0
    if cost > entry.value + rounding:
        return published
    return Reference(cost, source, solution, optimal=optimal, params=params)


def _load_testset(entry: TestSet, instances_dir: Path, mirror: Path | None) -> Dataset:
    places = _places(instances_dir, mirror)
    path = find_file(places, testsets.FOLDER, f"{entry.name}.npz")
    if path is None:
        raise BadInputError(
            f"{entry.name}: not found as {places[0] / testsets.FOLDER / entry.name}.npz; "
            f"run 'nco-bench instances pull {entry.name}'."
        )
    return testsets.load(entry, path)
