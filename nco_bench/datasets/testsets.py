"""The field's fixed learning test sets: read, checked, and made from the files that their authors publish.

A set lies at ``<instances>/testsets/NAME.npz``. A mirror has it with solutions (known by its SHA-256); from the public
addresses of the catalogue it is made of the authors' own files, each checked by size and SHA-256, and known by the hash
of its instances, which is the same. Where the authors publish no solutions, the catalogue's costs are the references.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets import catalog, formats
from nco_bench.datasets.catalog import SourceFile, TestSet
from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats.reading import (
    MAX_BINARY_BYTES,
    MAX_TEXT_BYTES,
    read_bytes,
    read_npz,
    write_bytes,
    write_npz,
)
from nco_bench.datasets.sites import Fetch
from nco_bench.errors import BadInputError
from nco_bench.problems import Instance, problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

FOLDER = "testsets"
MEAN_TOLERANCE = 6e-7
"""The catalogue prints mean costs with six decimals."""

Solution = NDArray[np.int64]


def load(entry: TestSet, path: Path) -> Dataset:
    """Read a test set and make sure that it is the one of the catalogue.

    Raises
    ------
    BadInputError
        When the file is damaged, holds other instances, or solutions that do not cost what the catalogue says.
    """
    published = _is_published(entry, path)
    from nco_bench.datasets.formats import testset

    with warnings.catch_warnings():
        # A cost that does not recompute, in a set whose references must: an error, not a remark.
        warnings.simplefilter("error", formats.FileWarning)
        try:
            read = testset.read(path, entry.convention)
        except (formats.FileWarning, BadInputError) as error:
            told = str(error).rstrip(".")
            raise BadInputError(f"{told}; run 'nco-bench instances pull {entry.name}'.") from None
    if not published and read.sha256 != entry.content_sha256:
        raise BadInputError(
            f"{path}: not the set of the catalogue (its instances differ); "
            f"run 'nco-bench instances pull {entry.name}'."
        )
    costs = _known_costs(entry.name)
    references = tuple(
        Reference(costs[i], entry.solver)
        if costs is not None and (reference is None or reference.solution is None)
        else None
        if reference is None
        else Reference(reference.cost, entry.solver, reference.solution, optimal=entry.proven)
        for i, reference in enumerate(read.references)
    )
    _check_mean(entry, references, str(path))
    origin = Origin("testset", distribution=entry.distribution, params={"source": entry.source})
    return Dataset(entry.name, read.problem, read.instances, references, origin)


def is_whole(entry: TestSet, instances_dir: Path) -> bool:
    """Whether the set lies in the instances folder as the catalogue has it."""
    path = instances_dir / FOLDER / f"{entry.name}.npz"
    if not path.is_file():
        return False
    if _is_published(entry, path):
        return True  # no need to parse and score what is known by its hash
    try:
        load(entry, path)
    except BadInputError:
        return False
    return True


def _is_published(entry: TestSet, path: Path) -> bool:
    return hashlib.sha256(read_bytes(path, MAX_BINARY_BYTES)).hexdigest() == entry.npz_sha256


def keep(entry: TestSet, instances_dir: Path, fetch: Fetch) -> bool:
    """Make sure that a set is there; True if anything was fetched.

    Raises
    ------
    BadInputError
        When the source has it not, or has something else; nothing is written then.
    """
    if is_whole(entry, instances_dir):
        return False
    target = instances_dir / FOLDER / f"{entry.name}.npz"
    content = fetch(FOLDER, f"{entry.name}.npz")
    if content is not None:
        _check_hash(entry, content)
        write_bytes(target, content)
        return True
    if not entry.files:
        raise BadInputError(
            f"{entry.name}: no public address to fetch it from ({entry.no_address}); a folder that "
            f"NCO_BENCH_MIRROR names may have it as instances/{FOLDER}/{entry.name}.npz."
        )
    write_npz(target, arrays_of(entry, [_fetched(entry, file, fetch) for file in entry.files]))
    return True


def _check_hash(entry: TestSet, content: bytes) -> None:
    if hashlib.sha256(content).hexdigest() != entry.npz_sha256:
        raise BadInputError(
            f"{entry.name}: the source's file is not that of the catalogue (its SHA-256 differs)."
        )


def _fetched(entry: TestSet, file: SourceFile, fetch: Fetch) -> bytes:
    content = fetch(FOLDER, file.address)
    if content is None:
        raise BadInputError(
            f"{entry.name}: the source has no {file.address}; set NCO_BENCH_MIRROR to a folder that has the set."
        )
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise BadInputError(
            f"{entry.name}: {file.address} is not the file of the catalogue ({len(content)} bytes, SHA-256 {found[:12]}; "
            f"expected {file.size} and {file.sha256[:12]}); nothing was kept."
        )
    return content


def arrays_of(entry: TestSet, contents: Sequence[bytes]) -> dict[str, NDArray[Any]]:
    """Make the arrays of ``NAME.npz`` from the authors' files.

    Parameters
    ----------
    entry
        The set.
    contents
        What each of ``entry.files`` holds, in that order.

    Raises
    ------
    BadInputError
        When the files do not hold the instances or solutions of the catalogue.
    """
    instances: Sequence[Instance] = ()
    solutions: list[list[Solution]] = []
    with tempfile.TemporaryDirectory() as folder:
        for file, content in zip(entry.files, contents, strict=True):
            path = Path(folder) / f"{entry.name}{file.suffix}"
            path.write_bytes(_member(content, file) if file.member else content)
            if file.part == "labels":
                solutions.append(_labels(path, entry))
                continue
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore", formats.FileWarning
                )  # Fu's tours are placeholders; costs are checked
                read = formats.read_file(path, file.form)
            instances = read.instances[: entry.count]
            if file.part == "solved":
                found = [None if r is None else r.solution for r in read.references[: entry.count]]
                solutions.append([np.asarray(s, dtype=np.int64) for s in found if s is not None])
    arrays = _instance_arrays(instances)
    if solutions:
        best = _best(entry, instances, solutions)
        arrays["tour" if entry.problem == "tsp" else "routes"] = _stacked(best)
    return arrays


def _member(content: bytes, file: SourceFile) -> bytes:
    """Return one file of a .zip; its hash was checked, so only its size is bounded."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if archive.getinfo(file.member).file_size > MAX_TEXT_BYTES:
            raise BadInputError(f"{file.address}: {file.member} is larger than {MAX_TEXT_BYTES >> 20} MiB.")
        return archive.read(file.member)


def _labels(path: Path, entry: TestSet) -> list[Solution]:
    """Read published solutions: a list of (cost, nodes), for the CVRP with 0 between two routes."""
    from nco_bench.datasets.formats.safe_pickle import read_pickle

    rows = read_pickle(path)[: entry.count]
    nodes = [np.asarray(row[1], dtype=np.int64) for row in rows]
    return nodes if entry.problem == "tsp" else [np.concatenate(([0], row, [0])) for row in nodes]


def _best(entry: TestSet, instances: Sequence[Instance], solutions: list[list[Solution]]) -> list[Solution]:
    """Choose the best feasible solution of each instance; the first of equals."""
    referee = problem(entry.problem)
    out = []
    for index, instance in enumerate(instances):
        offered = [found[index] for found in solutions if index < len(found)]
        feasible = [solution for solution in offered if not referee.violations(instance, solution)]
        if not feasible:
            raise BadInputError(
                f"{entry.name}: no feasible solution for instance {index} in the published files."
            )
        out.append(min(feasible, key=lambda solution: referee.score(instance, solution)))
    return out


def _instance_arrays(instances: Sequence[Instance]) -> dict[str, NDArray[Any]]:
    if isinstance(instances[0], TSPInstance):
        return {
            "coords": np.stack(
                [i.coords for i in instances if isinstance(i, TSPInstance) and i.coords is not None]
            )
        }
    routed = [i for i in instances if isinstance(i, CVRPInstance)]
    return {
        "coords": np.stack([i.customers for i in routed if i.customers is not None]),
        "depot": np.stack([i.depot for i in routed if i.depot is not None]),
        "demand": np.stack([i.demand for i in routed]),
        "capacity": np.array([i.capacity for i in routed]),
    }


def _stacked(solutions: Sequence[Solution]) -> NDArray[np.int32]:
    out = np.zeros((len(solutions), max(map(len, solutions))), dtype=np.int32)
    for row, solution in zip(out, solutions, strict=True):
        row[: len(solution)] = solution
    return out


def _known_costs(name: str) -> list[float] | None:
    """Costs of the reference solutions of a set whose authors publish none."""
    arrays = read_npz(catalog.FOLDER / "testset_costs.npz")
    return arrays[name].tolist() if name in arrays else None


def _check_mean(entry: TestSet, references: Sequence[Reference | None], where: str) -> None:
    costs = [reference.cost for reference in references if reference is not None]
    mean = float(np.mean(costs)) if costs else float("nan")
    if len(costs) != entry.count or not abs(mean - entry.mean_cost) <= MEAN_TOLERANCE:
        raise BadInputError(
            f"{where}: its solutions cost {mean:.6f} on average, the catalogue says {entry.mean_cost:.6f}; fetch it again."
        )
