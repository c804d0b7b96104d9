"""All weights that are here: listed, checked one and all, and put where they are found."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.errors import BadWeightsError
from nco_bench.files import write, writing_together
from nco_bench.weights import store
from nco_bench.weights.manifest import (
    Manifest,
    manifest_path,
    manifests_in,
    read_manifest,
    to_json,
)
from nco_bench.weights.store import SUFFIX, WeightsFile, files, is_separate, verify

if TYPE_CHECKING:
    from torch import Tensor


def list_weights(folders: Sequence[Path] | None = None) -> list[WeightsFile]:
    """Return all cached and shipped weights with a readable manifest, by name; hashes are not checked.

    Of several of one name the one that the name means; `folders` are looked at instead of all.
    """
    found: dict[str, WeightsFile] = {}
    for path in files(folders):
        try:
            found.setdefault(path.stem, WeightsFile(path, listed(manifest_path(path))))
        except BadWeightsError:
            continue  # `weights verify` names it
    return [found[name] for name in sorted(found)]


def listed(manifest: Path) -> Manifest:
    """Read a manifest; unless it changed, once in a process, which may ask for the list of all many times."""
    state = manifest.stat() if manifest.exists() else None
    return _read_once(manifest, None if state is None else (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=1024)
def _read_once(manifest: Path, _: tuple[int, int] | None) -> Manifest:
    return read_manifest(manifest)


def trained_now(weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a record says of weights, with the samples that the manifest of the same file that ships says now.

    A manifest may come to count what a run went on from after records were made with the file.
    """
    path = manifest_path(store.SHIPPED / f"{Path(str(weights.get('name'))).name}{SUFFIX}")
    if not path.is_file():
        return weights
    manifest = listed(path)
    if manifest.sha256 != weights.get("sha256"):
        return weights
    counts = {"steps": manifest.steps, "samples": manifest.samples, "share_of_paper": manifest.share_of_paper}
    return {**weights, **counts}


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


def keep(path: Path) -> Path | None:
    """Copy trained weights into the cache, where their name is looked for first.

    Parameters
    ----------
    path
        The safetensors file, its manifest beside it.

    Returns
    -------
    Path or None
        Where they are now; None where the cache has other weights of this name, which stay: they may be days of work, too.

    Raises
    ------
    NcoBenchError
        When a manifest is damaged, or the cache cannot be written.
    """
    target = store.cache_folder() / path.name
    if manifest_path(target).is_file():
        same = read_manifest(manifest_path(target)).sha256 == read_manifest(manifest_path(path)).sha256
        return target if same else None
    with writing_together(target.parent):
        write(target, path.read_bytes())
        write(manifest_path(target), manifest_path(path).read_bytes())
    return target


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
    complete = dataclasses.replace(manifest, sha256=hashlib.sha256(content).hexdigest())
    with writing_together(path.parent):
        write(path, content)
        write(manifest_path(path), to_json(complete))
    return WeightsFile(path, complete)
