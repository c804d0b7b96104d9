"""From a name to a dataset.

Looked up in this order:

1. a path to any supported file;
2. a generated name (``tsp100``, ``tsp10000:clustered:seed=7:count=16``, ``kool-tsp100``), which means the same instances
   whatever is stored. They are read from a stored set that begins with them, else generated on the spot, and have the
   references of all stored sets of their stream;
3. a library or test-set name (``tsplib``, ``tsplib/berlin52``, ``cvrplib:X``, ``fu_tsp500``). None of them is a generated
   name as well, so that what reads libraries is only loaded for theirs.

Whatever it is, the reference ledger's better solutions are laid over it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.generate import generate_spec
from nco_bench.datasets.names import TASKS, GenerationSpec, examples, generated_aliases, parse_generated
from nco_bench.datasets.places import Places, has_ledger
from nco_bench.errors import BadInputError, UnknownNameError

OWN_FORMAT = "nco-bench"


def load_dataset(name: str, places: Places) -> Dataset:
    """Find a dataset by name or path.

    Raises
    ------
    UnknownNameError
        When nothing answers to the name; the message suggests the nearest names.
    BadInputError
        When what answers is damaged or makes no sense.
    """
    dataset = _find(name, places)
    if not has_ledger(places.instances):
        return dataset
    from nco_bench.datasets import ledger

    return ledger.load(dataset, places.instances)


def _find(name: str, places: Places) -> Dataset:
    path = Path(name)
    if path.is_file():
        return load_path(path)
    if re.fullmatch(r"\.[A-Za-z]\w*", path.suffix) or name.startswith(
        (".", "/")
    ):  # :radius=0.2 has a suffix, too
        raise BadInputError(f"{name}: {'is a folder, not a file' if path.is_dir() else 'no such file'}.")
    if name.startswith("lra-"):
        from nco_bench.datasets import lra

        found = lra.resolve(name, places.instances, places.mirror)
        if found is not None:
            return found
    spec = parse_generated(name)
    return _generated(spec, places.instances) if spec is not None else _published(name, places)


def _published(name: str, places: Places) -> Dataset:
    from nco_bench.datasets.libraries import library_names, resolve_library

    found = resolve_library(name, places.instances, places.mirror)
    if found is None:
        known = [*examples(), *generated_aliases(), *library_names()]
        is_folder = name and Path(name).is_dir()
        hint = "It is a folder; name a file in it." if is_folder else "See 'nco-bench list datasets'."
        raise UnknownNameError("dataset", name, known, hint)
    return found


def load_path(path: Path) -> Dataset:
    """Read a file: our own npz (with its manifest beside it), or any format of `nco_bench.datasets.formats`."""
    from nco_bench.datasets import formats
    from nco_bench.datasets.storage import load_saved

    if path.suffix == ".npz" and (_has_manifest(path) or formats.detect(path) == OWN_FORMAT):
        return load_saved(path)
    return formats.read_file(path)


def _has_manifest(path: Path) -> bool:
    """Tell our manifest from the JSON that published test sets have beside them; a damaged npz cannot be asked."""
    manifest = path.with_suffix(".json")
    return manifest.is_file() and b'"content_sha256"' in manifest.read_bytes()


def stored_path(name: str, instances: Path) -> Path:
    """Return the file that a generated dataset is stored in; names become file names by ``:`` to ``_``."""
    return instances / f"{name.replace(':', '_')}.npz"


def _generated(spec: GenerationSpec, instances: Path) -> Dataset:
    """Read the set from the shortest stored one that begins with it, else generate it; with all stored references."""
    stored = sorted(
        (count, path) for path in instances.glob(_pattern(spec)) if (count := _count_of(path, spec))
    )
    covering = next((path for count, path in stored if count >= spec.count), None)
    others = [path for _, path in stored if path != covering and _has_references(path)]
    found = generate_spec(spec) if covering is None else _beginning(_load_stored(covering), spec)
    for path in others:
        found = _with_references_of(found, _load_stored(path))
    return found


def _load_stored(path: Path) -> Dataset:
    """Read a stored set; its name, version and content must be what the name of its file stands for."""
    from nco_bench.datasets.storage import load_saved

    dataset = load_saved(path)
    spec = parse_generated(_name_of(path))
    assert spec is not None
    first = generate_spec(replace(spec, count=1)).origin
    if dataset.name != spec.name or replace(dataset.origin, params={}) != replace(first, params={}):
        raise BadInputError(
            f"{path}: holds {dataset.name} ({dataset.origin.generator or 'of unknown origin'} "
            f"{dataset.origin.version}), not {spec.name} ({first.generator} {first.version}); move it to another folder, "
            "and name it with its path."
        )
    return dataset


def _beginning(dataset: Dataset, spec: GenerationSpec) -> Dataset:
    if len(dataset) == spec.count:
        return dataset
    return replace(
        dataset,
        name=spec.name,
        instances=dataset.instances[: spec.count],
        references=dataset.references[: spec.count],
    )


def _with_references_of(dataset: Dataset, other: Dataset) -> Dataset:
    """Lay the references of another set of the same stream over a set's own; the better one counts."""
    from nco_bench.datasets import ledger

    shared = min(len(dataset), len(other))
    merged = [
        mine if new is None else ledger.better(mine, new, dataset.problem)
        for mine, new in zip(dataset.references[:shared], other.references[:shared], strict=True)
    ]
    return dataset.with_references([*merged, *dataset.references[shared:]])


def _has_references(path: Path) -> bool:
    try:
        return bool(json.loads(path.with_suffix(".json").read_text())["references"]["count"])
    except (OSError, ValueError, KeyError, TypeError):
        return True  # damaged: reading it says how


def _pattern(spec: GenerationSpec) -> str:
    return f"{spec.problem}*.npz" if spec.family == TASKS else f"*{spec.problem}{spec.n}*.npz"


def _count_of(path: Path, spec: GenerationSpec) -> int:
    """Count of a stored set that differs from `spec` in nothing but the count, else 0."""
    try:
        other = parse_generated(_name_of(path))
    except (BadInputError, UnknownNameError):
        return 0
    return other.count if other is not None and other.stream == spec.stream else 0


def _name_of(path: Path) -> str:
    """The inverse of `stored_path`."""
    return path.stem.replace("_", ":")
