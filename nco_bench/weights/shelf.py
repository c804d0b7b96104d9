"""All weights that are here: listed, checked one and all, and put where they are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nco_bench.errors import BadWeightsError
from nco_bench.files import write
from nco_bench.weights import store
from nco_bench.weights.manifest import (
    Manifest,
    manifest_path,
    manifests_in,
    read_manifest,
    sha256_of,
    to_json,
)
from nco_bench.weights.store import SUFFIX, WeightsFile, files, is_separate, verify

if TYPE_CHECKING:
    from torch import Tensor


def list_weights() -> list[WeightsFile]:
    """Return all shipped and cached weights with a readable manifest, by name; hashes are not checked."""
    found: dict[str, WeightsFile] = {}
    for path in files():
        try:
            found.setdefault(path.stem, WeightsFile(path, _listed(manifest_path(path))))
        except BadWeightsError:
            continue  # `weights verify` names it
    return [found[name] for name in sorted(found)]


def _listed(manifest: Path) -> Manifest:
    """Read a manifest for a list; unless it changed, once in a process, which may ask for the list of all many times."""
    state = manifest.stat() if manifest.exists() else None
    return _read_once(manifest, None if state is None else (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1024)
def _read_once(manifest: Path, _: tuple[int, int] | None) -> Manifest:
    return read_manifest(manifest)


def separate_weights() -> list[WeightsFile]:
    """Return our weights that are in the data package where that is not installed, by name; their files are not here."""
    return [
        WeightsFile(path.with_suffix(SUFFIX), read_manifest(path))
        for path in manifests_in(store.SHIPPED)
        if not path.with_suffix(SUFFIX).is_file() and is_separate(path.stem)
    ]


def verify_all() -> list[tuple[Path, str | None]]:
    """Check every shipped and cached file; pairs of path and what is wrong with it, None where nothing is."""
    checked: list[tuple[Path, str | None]] = []
    for path in files():
        try:
            verify(path)
        except BadWeightsError as error:
            checked.append((path, str(error)))
        else:
            checked.append((path, None))
    return checked


def export(state: Mapping[str, Tensor], manifest: Manifest, path: Path) -> WeightsFile:
    """Write weights and their manifest; the manifest last, so that a half-written pair is never read as good.

    Parameters
    ----------
    state
        Tensors by name.
    manifest
        Its `sha256` is set here.
    path
        The safetensors file.

    Raises
    ------
    ResultsError
        When the place cannot be written; what stood there before stays.
    """
    from safetensors.torch import save

    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()})
    write(path, content)
    complete = dataclasses.replace(manifest, sha256=sha256_of(path))
    write(manifest_path(path), to_json(complete))
    return WeightsFile(path, complete)
