"""Storage of datasets: ``NAME.npz`` with the arrays, ``NAME.json`` with the manifest.

The manifest carries name, problem, origin, content hash and the hash of the npz file. It is written last, both
files are written beside their place and renamed, so a set that can be read is complete. Reading checks the
content hash, so a damaged or edited file is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats.reading import read_npz
from nco_bench.errors import BadInputError, NcoBenchError
from nco_bench.files import READABLE, read_together, replacing, write, writing_together
from nco_bench.problems import PROBLEMS, problem
from nco_bench.seals import seal_document, unseal_document

FORMAT_VERSION = 1
Arrays = dict[str, NDArray[Any]]


def save_dataset(dataset: Dataset, path: Path) -> Path:
    """Write a dataset; nothing half-written is ever read back.

    Parameters
    ----------
    dataset
        What to write.
    path
        The ``.npz`` file; the manifest goes beside it as ``.json``.

    Raises
    ------
    BadInputError
        When the place cannot be written (no permission, disk full); what stood there before stays.
    """
    if (
        dataset.whole_sha256 is not None
    ):  # a slice is stored as the set that it is, with a name and a hash of its own
        first, last = dataset.first_index + 1, dataset.first_index + len(dataset)
        dataset = replace(dataset, name=f"{dataset.name} {first}-{last}", first_index=0, whole_sha256=None)
    arrays: Arrays = {"convention": np.array([i.convention for i in dataset.instances])}
    names = [i.name for i in dataset.instances]
    arrays["name"] = np.array(names)
    keys = sorted({key for instance in dataset.instances for key in instance.arrays()})
    per_instance = [instance.arrays() for instance in dataset.instances]
    for key in keys:
        arrays.update(_pack(f"x_{key}", [a.get(key) for a in per_instance]))
    arrays.update(_pack_references(dataset.references))
    manifest = {
        "format": FORMAT_VERSION,
        "name": dataset.name,
        "problem": dataset.problem,
        "count": len(dataset),
        "sizes": list(dataset.sizes),
        "convention": dataset.convention,
        "content_sha256": dataset.sha256,
        "origin": {
            "generator": dataset.origin.generator,
            "version": dataset.origin.version,
            "distribution": dataset.origin.distribution,
            "seed": dataset.origin.seed,
            "params": dataset.origin.params,
        },
        "references": reference_summary(dataset),
    }
    with writing_together(path.parent):
        manifest["npz_sha256"] = _write_npz(path, arrays)
        write(path.with_suffix(".json"), seal_document(manifest, indent=1), BadInputError, mode=READABLE)
    return path


def reference_summary(dataset: Dataset) -> dict[str, Any]:
    """Summarise who made the references: count, mean cost, solvers, proven optima."""
    known = [r for r in dataset.references if r is not None]
    if not known:
        return {"count": 0}
    return {
        "count": len(known),
        "mean_cost": float(np.mean([r.cost for r in known])),
        "solvers": sorted({r.solver for r in known}),
        "params": sorted({r.params for r in known if r.params}),
        "proven_optimal": sum(r.optimal for r in known),
    }


def load_saved(path: Path) -> Dataset:
    """Read a dataset that `save_dataset` wrote.

    Raises
    ------
    BadInputError
        For a missing or damaged file, or content that does not have the hash in its manifest.
    """
    return read_together(path.parent, lambda: _load(path), BadInputError)


def _load(path: Path) -> Dataset:
    manifest = _read_manifest(path.with_suffix(".json"))
    arrays = read_npz(path, remedy="; make the dataset anew")
    try:
        dataset = _build(manifest, arrays)
    except NcoBenchError as error:
        raise BadInputError(f"{path}: {error}") from error
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise BadInputError(
            f"{path}: damaged or not a dataset of nco-bench ({type(error).__name__}: {error}); make it anew."
        ) from error
    if dataset.sha256 != manifest["content_sha256"]:
        raise BadInputError(
            f"{path}: the content has hash {dataset.sha256[:16]}, its manifest says {manifest['content_sha256'][:16]}; "
            "the file was changed after it was made. Make it anew with 'nco-bench generate'."
        )
    _refuse_changed(path, manifest)
    return dataset


def _refuse_changed(path: Path, manifest: dict[str, Any]) -> None:
    """Refuse a file with other bytes than were written: the content's hash does not cover the references."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != manifest.get("npz_sha256", found):
        raise BadInputError(
            f"{path}: changed after it was made (SHA-256 {found[:16]}, its manifest says "
            f"{str(manifest['npz_sha256'])[:16]}). Make it anew with 'nco-bench generate'."
        )


def _build(manifest: dict[str, Any], arrays: Arrays) -> Dataset:
    conventions, names = arrays["convention"], arrays["name"]
    count = len(names)
    if len(conventions) != count or manifest["count"] != count:
        raise ValueError(f"{count} names, {len(conventions)} conventions, manifest says {manifest['count']}")
    columns = {
        key: _unpack(arrays, f"x_{key}", count)
        for key in sorted({k[2:].split(".")[0] for k in arrays if k.startswith("x_")})
    }
    if manifest["problem"] not in PROBLEMS:
        raise ValueError(f"unknown problem {manifest['problem']!r}")
    build = problem(manifest["problem"]).from_arrays
    instances = [
        build(
            str(names[i]),
            str(conventions[i]),
            {key: value for key, column in columns.items() if (value := column[i]) is not None},
        )
        for i in range(count)
    ]
    origin = manifest["origin"]
    return Dataset(
        name=manifest["name"],
        problem=manifest["problem"],
        instances=tuple(instances),
        references=_unpack_references(arrays, count),
        origin=Origin(
            origin["generator"], origin["version"], origin["distribution"], origin["seed"], origin["params"]
        ),
    )


def _pack(key: str, values: Sequence[NDArray[Any] | None]) -> Arrays:
    """Stack equal shapes; otherwise store them flat with their shapes (a missing one has shape (-1,)).

    Whole and real demands in one set, say, are stored as bytes with their types: brought to one, they would be another set.
    """
    present = [v for v in values if v is not None]
    kinds = {v.dtype for v in present}
    if len(kinds) == 1 and len(present) == len(values) and len({v.shape for v in present}) == 1:
        return {key: np.stack(present)}
    shapes = [(-1,) if v is None else v.shape for v in values]
    width = max(len(s) for s in shapes)
    table = np.full((len(values), width), -2, dtype=np.int64)
    for row, shape in enumerate(shapes):
        table[row, : len(shape)] = shape
    if len(kinds) == 1:
        return {f"{key}.shapes": table, f"{key}.flat": np.concatenate([v.ravel() for v in present])}
    return {
        f"{key}.shapes": table,
        f"{key}.flat": np.frombuffer(b"".join(v.tobytes() for v in present), dtype=np.uint8),
        f"{key}.kinds": np.array(["" if v is None else v.dtype.str for v in values]),
    }


def _unpack(arrays: Arrays, key: str, count: int) -> list[NDArray[Any] | None]:
    if key in arrays:
        if len(arrays[key]) != count:
            raise ValueError(f"{key} has {len(arrays[key])} rows for {count} instances")
        return list(arrays[key])
    out: list[NDArray[Any] | None] = []
    flat, shapes, offset = arrays[f"{key}.flat"], arrays[f"{key}.shapes"], 0
    kinds = arrays.get(f"{key}.kinds")
    for index, row in enumerate(shapes):
        shape = tuple(int(x) for x in row if x != -2)
        if shape == (-1,):
            out.append(None)
            continue
        kind = flat.dtype if kinds is None else np.dtype(str(kinds[index]))
        size = int(np.prod(shape)) * kind.itemsize // flat.dtype.itemsize
        part = flat[offset : offset + size]
        out.append((part if kinds is None else part.copy().view(kind)).reshape(shape))
        offset += size
    return out


def _pack_references(references: Sequence[Reference | None]) -> Arrays:
    if not any(references):
        return {}
    arrays: Arrays = {
        "reference_cost": np.array([np.nan if r is None else r.cost for r in references]),
        "reference_optimal": np.array([r is not None and r.optimal for r in references]),
        "reference_seconds": np.array(
            [np.nan if r is None or r.seconds is None else r.seconds for r in references]
        ),
        "reference_solver": np.array(["" if r is None else r.solver for r in references]),
        "reference_params": np.array(["" if r is None else r.params for r in references]),
    }
    solutions = [None if r is None or r.solution is None else r.solution.astype(np.int32) for r in references]
    if any(s is not None for s in solutions):
        arrays.update(_pack("reference_solution", solutions))
    return arrays


def _unpack_references(arrays: Arrays, count: int) -> tuple[Reference | None, ...]:
    if "reference_cost" not in arrays:
        return (None,) * count
    has_solutions = "reference_solution" in arrays or "reference_solution.flat" in arrays
    solutions = _unpack(arrays, "reference_solution", count) if has_solutions else [None] * count
    seconds = arrays["reference_seconds"]
    return tuple(
        None
        if np.isnan(cost)
        else Reference(
            cost=float(cost),
            solver=str(arrays["reference_solver"][i]),
            solution=solutions[i],
            optimal=bool(arrays["reference_optimal"][i]),
            seconds=None if np.isnan(seconds[i]) else float(seconds[i]),
            params=str(arrays["reference_params"][i]),
        )
        for i, cost in enumerate(arrays["reference_cost"])
    )


def _write_npz(path: Path, arrays: Arrays) -> str:
    """Write a dataset's arrays, and return the SHA-256 of the file."""
    with replacing(path, BadInputError, mode=READABLE) as temporary:
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        with temporary.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = unseal_document(path.read_bytes())
    except FileNotFoundError:
        raise BadInputError(
            f"{path}: the manifest is missing; a dataset is an .npz with its .json. Make it anew with 'nco-bench generate'."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadInputError(f"{path}: damaged manifest ({error}).") from error
    needed = {"format", "name", "problem", "count", "content_sha256", "origin"}
    if not isinstance(manifest, dict) or not needed <= manifest.keys():
        lacking = sorted(needed - manifest.keys()) if isinstance(manifest, dict) else ["an object"]
        raise BadInputError(f"{path}: damaged manifest (lacks {', '.join(lacking)}).")
    if manifest["format"] != FORMAT_VERSION:
        raise BadInputError(
            f"{path}: dataset format {manifest['format']}, this version reads {FORMAT_VERSION}; make the dataset anew."
        )
    return manifest
