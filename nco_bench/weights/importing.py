"""Official checkpoints become weights files of ours; nothing in a checkpoint is ever executed.

``.safetensors`` files are read as they are; ``torch.save`` files by a reader of our own that knows the containers and
rebuilds tensors, numbers, strings and collections only (`nco_bench.datasets.formats.torch_archive`).
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nco_bench import __version__
from nco_bench.cards import network_card, official_weights
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.build import build_path_policy, count_parameters, load_official, model_config
from nco_bench.weights.bundle import checkpoint_files
from nco_bench.weights.manifest import Manifest, TrainingData, manifest_path, read_manifest, sha256_of
from nco_bench.weights.shelf import export
from nco_bench.weights.store import SUFFIX, WeightsFile, cache_folder

if TYPE_CHECKING:
    from torch import Tensor

STATE_KEYS = (
    "model_state_dict", "best_model_weights", "model_weights", "net", "model", "state_dict", "model_baseline",
)  # fmt: skip
"""Where official checkpoints keep their state dict: LEHD and SIL, gumbeldore (best first), BQ, AM and others, INViT."""


def import_checkpoint(
    model: str,
    file: Path,
    problem: str = "tsp",
    name: str | None = None,
    *,
    note: str = "",
    trained_on: tuple[str, int] = ("", 0),
    official: bool = False,
) -> WeightsFile:
    """Convert an official checkpoint and keep it in the user's cache.

    Parameters
    ----------
    model, problem
        What the checkpoint is for.
    file
        The official file; a folder for models of several files, see `nco_bench.weights.bundle`.
    name
        What ``--weights`` shall take; the model's name (with ``-cvrp`` for the CVRP) if None.
    note
        Where the file came from, for the manifest.
    trained_on
        Distribution and size of the instances it was trained on, where known.
    official
        The file is the one that the list of official weights names so.

    Raises
    ------
    BadWeightsError
        When the file is damaged, holds anything but plain data, does not fit the model, has a manifest of
        ours or the names of our own tensors; when the name is that of official weights, or of others that are kept there.
    UnknownNameError
        For an unknown model or problem.
    """
    import dataclasses

    if name is not None and not official:
        _check_name(name)
    known = network_card(model)
    model = known.name
    config = model_config(model, problem)
    files = checkpoint_files(model, file, problem)
    if not official:
        _refuse_own(file)
    called = file.name or file.resolve().name  # a folder may be the one here
    state = {
        prefix + key: value for prefix, path in files.items() for key, value in official_state(path).items()
    }
    sizes_of = getattr(importlib.import_module(known.network), "config_of", None)
    if sizes_of is not None:
        config = sizes_of(state, problem)
    policy = build_path_policy(model, problem, **({} if sizes_of is None else dataclasses.asdict(config)))
    if not official:
        _refuse_our_names(file, state, policy.state_dict())
    load_official(policy, model, state, str(file))
    chosen = name or (model if problem == "tsp" else f"{model}-{problem}")
    imported = ",".join(map(sha256_of, files.values()))
    place = cache_folder() / f"{chosen}{SUFFIX}"
    _keep_others(place, imported)
    manifest = Manifest(
        name=chosen,
        model=model,
        config=dataclasses.asdict(config),
        problem=problem,
        parameters=count_parameters(policy),
        sha256="",
        steps=0,
        samples=0,
        data=TrainingData(*trained_on, instances=0, label_solver="as published"),
        recipe={"imported_from": called, "imported_sha256": imported},
        seed=0,
        hours=0.0,
        machine={"imported_on": platform.machine()},
        code_version=__version__,
        licence=f"as {known.repository or 'its authors'} states",
        notes=note or f"Official weights, imported from {called}; training was not ours.",
    )
    return export(policy.state_dict(), manifest, place)


def _refuse_own(file: Path) -> None:
    """Refuse weights that have a manifest of ours: as official ones they would lose what it says of their training."""
    if file.is_dir():  # ours are one file
        return
    try:
        model = read_manifest(manifest_path(file)).model
    except BadWeightsError:  # none is there, or a file of another kind is called so
        return
    raise BadWeightsError(
        f"{file}: has a manifest, {manifest_path(file).name}, and needs no import; "
        f"'run {model} --weights {file}' takes it."
    )


def _refuse_our_names(file: Path, state: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> None:
    """Refuse weights of ours without their manifest, which no import can make again: it would call them the authors'."""
    if file.suffix == SUFFIX and ours.keys() <= state.keys():
        raise BadWeightsError(
            f"{file}: these are weights of ours, by the names in it, and need no import but their manifest; put it beside "
            f"them as {manifest_path(file).name} ('nco-bench weights export' copies both)."
        )


def _check_name(name: str) -> None:
    if name != Path(name).name or not name or name.startswith("."):
        raise BadWeightsError(
            f"--name {name!r}: expected a plain name; the weights are kept in {cache_folder()}."
        )
    if name in official_weights():
        raise BadWeightsError(
            f"--name {name}: the authors' own weights are called so ('nco-bench weights pull {name}'); take another name."
        )


def _keep_others(place: Path, imported: str) -> None:
    """Refuse to write over weights that are not of the same checkpoint; an import that was killed left no manifest."""
    if not place.is_file() or not manifest_path(place).is_file():
        return
    try:
        same = read_manifest(manifest_path(place)).recipe.get("imported_sha256") == imported
    except BadWeightsError:
        same = False
    if not same:
        raise BadWeightsError(
            f"{place}: other weights have this name and would be lost; give another with --name, or move them away."
        )


def official_state(file: Path) -> dict[str, Tensor]:
    """Read the state dict of an official checkpoint.

    Raises
    ------
    BadWeightsError
        When the file is missing, damaged, refused, or holds no state dict.
    """
    import torch

    if not file.is_file():
        raise BadWeightsError(f"{file}: no such checkpoint.")
    if file.suffix == SUFFIX:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except SafetensorError as error:
            raise BadWeightsError(f"{file}: damaged weights file ({error}); get it again.") from error
    from nco_bench.datasets.formats.torch_archive import read_torch_archive

    if _begins_as_safetensors(file):
        raise BadWeightsError(
            f"{file}: is a safetensors file by its first bytes; name it {file.stem}{SUFFIX}."
        )
    if not file.stat().st_size:
        raise BadWeightsError(f"{file}: is empty; get it again.")
    try:
        content = read_torch_archive(file)
    except BadInputError as error:
        raise BadWeightsError(str(error)) from error
    arrays = _state_dict(content)
    if not arrays:
        raise BadWeightsError(
            f"{file}: holds no state dict (looked for tensors by name, at the top and under {', '.join(STATE_KEYS)})."
        )
    return {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in arrays.items()}


def _begins_as_safetensors(file: Path) -> bool:
    """Whether a file begins with the length of a header of JSON that fits into it, and that header's brace."""
    with file.open("rb") as opened:
        head = opened.read(9)
    return head[8:] == b"{" and int.from_bytes(head[:8], "little") <= file.stat().st_size - 8


def _state_dict(content: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Find the mapping of names to arrays, at the top or under a known key."""
    if not isinstance(content, Mapping):
        return {}
    arrays = {key: value for key, value in content.items() if isinstance(value, np.ndarray)}
    if arrays and len(arrays) == len(content):
        return arrays
    for key in STATE_KEYS:
        found = _state_dict(content.get(key))
        if found:
            return found
    return {}
