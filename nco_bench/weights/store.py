"""Where weights are: in the cache, shipped (here or in the data package), or at a path; how they are read.

A weights file is ``NAME.safetensors`` with its manifest ``NAME.json`` beside it. Nothing else is ever loaded, and nothing is
loaded whose hash is not the manifest's. Those that ship are packed without loss; their hash is that of the plain file.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.cards import first_name, weights_owner
from nco_bench.errors import BadWeightsError, MissingWeightsError
from nco_bench.files import read_together
from nco_bench.weights.manifest import Manifest, manifest_path, read_manifest

if TYPE_CHECKING:
    from torch import Tensor, nn

SHIPPED = Path(__file__).parent / "files"
"""All of them in a clone; in the wheel one file, and the manifests of the others, which are in `DATA_PACKAGE`."""
DATA_PACKAGE = "nco_bench_weights"
INSTALL = "pip install 'nco-bench[weights]'"
SUFFIX = ".safetensors"
TORCH_SUFFIXES = (".pt", ".pth", ".ckpt")
"""Of checkpoints as authors publish them: pickles, which may hold code."""


@dataclass(frozen=True)
class WeightsFile:
    """A weights file whose content is what its manifest says.

    Attributes
    ----------
    path
        The safetensors file.
    manifest
        What is known about it.
    """

    path: Path
    manifest: Manifest

    @property
    def sha256(self) -> str:
        """Hash of the file."""
        return self.manifest.sha256

    def facts(self) -> dict[str, Any]:
        """Return what a result record says about the weights."""
        manifest = self.manifest
        return {
            "name": manifest.name,
            "sha256": manifest.sha256,
            "steps": manifest.steps,
            "samples": manifest.samples,
            "share_of_paper": manifest.share_of_paper,
            "departures": manifest.departures,
            "imported": manifest.imported,
            "training_size": manifest.data.size or None,
            "training_distribution": manifest.data.distribution,
            "training_params": _drawn_with(manifest),
            "training_seeds": list(manifest.data.seeds),
            **({"trained_on": list(manifest.data.hashes)} if manifest.data.hashes else {}),
        }

    def summary(self) -> dict[str, Any]:
        """Return what a list of weights says about this file."""
        manifest = self.manifest
        gap = manifest.validation[0] if manifest.validation else None
        return {
            **self.facts(),
            "model": manifest.model,
            "problem": manifest.problem,
            "parameters": manifest.parameters,
            "gap_percent": None if gap is None else gap.gap_percent,
            "gap_on": "" if gap is None else gap.on,
            "licence": manifest.licence,
            "shipped": is_shipped(self.path),
            "found_in": place_of(self.path),
            "hides": hidden_by(self.path),
            "path": str(self.path),
        }


def _drawn_with(manifest: Manifest) -> dict[str, str]:
    """Return parameters of the training instances, as datasets name them, where they were drawn on the way."""
    sides = re.search(r"sides (\d+\.\.\d+) drawn", manifest.data.label_params)
    if manifest.problem == "bpp3d" and sides:
        return {"sides": sides[1]}
    recipe = manifest.recipe
    if manifest.problem == "cvrp" and {"capacity", "demand"} <= recipe.keys():
        return {"capacity": f"{recipe['capacity']:g}", "demand": str(recipe["demand"])}
    return {}


@cache
def data_folder() -> Path | None:
    """Return the folder of weights in the data package, or None where it is not installed."""
    found = find_spec(DATA_PACKAGE)
    return None if found is None or found.origin is None else Path(found.origin).parent / "files"


def shipped_folders() -> tuple[Path, ...]:
    """Return the folders of weights that came with an installation, in the order in which they are looked at."""
    data = data_folder()
    return (SHIPPED,) if data is None else (SHIPPED, data)


def weights_folders() -> tuple[Path, ...]:
    """Return all folders where a name is looked for, the first that has it counts.

    The user's own come first: what was trained for days, pulled or imported is not meant to lose against what ships.
    """
    return (cache_folder(), *shipped_folders())


def files_called(name: str) -> list[Path]:
    """Return all weights files of a name, the one that it means first."""
    found = (folder / f"{name}{SUFFIX}" for folder in weights_folders())
    return [path for path in found if path.is_file()]


def hidden_by(path: Path) -> str | None:
    """Say where other weights of the same name are that a file is used before; None where there are none."""
    called = files_called(path.stem)
    return place_of(called[1]) if len(called) > 1 and path == called[0] else None


def is_shipped(path: Path) -> bool:
    """Whether a weights file came with an installation: nothing of the user's is written beside it."""
    return path.parent in shipped_folders()


def place_of(path: Path) -> str:
    """Return where a file was found, in a word or two."""
    if path.parent == SHIPPED:
        return "nco-bench"
    return "nco-bench-weights" if is_shipped(path) else "cache" if path.parent == cache_folder() else "path"


def is_separate(name: str) -> bool:
    """Whether weights of this name are ours and in the data package, which is not installed."""
    described = manifest_path(SHIPPED / f"{name}{SUFFIX}").is_file()
    return described and not files_called(name)


def cache_folder() -> Path:
    """Return where pulled and imported weights are kept: ``NCO_BENCH_CACHE``, or the user's cache folder."""
    chosen = os.environ.get("NCO_BENCH_CACHE")
    if chosen:
        return Path(chosen) / "weights"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nco-bench" / "weights"


def resolve(name_or_path: str, model: str, problem: str | None = None, *, remedy: str = "") -> WeightsFile:
    """Find the weights called so, and check that they are whole and belong to the model.

    Parameters
    ----------
    name_or_path
        Name of shipped or cached weights, or the path of a safetensors file. Usually the model's name.
    model
        The model that they are for.
    problem
        The problem that they are for; None takes any.
    remedy
        What to do where nothing is called so, for the message.

    Raises
    ------
    BadWeightsError
        When they are missing, damaged, changed, or for another model; the message says which and what to do.
    """
    file = verify(_find(name_or_path, model, remedy))
    if first_name(file.manifest.model) not in (first_name(model), weights_owner(model)):
        raise BadWeightsError(
            f"{file.path}: these are weights of {file.manifest.model}, not of {model}; choose others with --weights."
        )
    if problem is not None and file.manifest.problem != problem:
        raise BadWeightsError(
            f"{file.path}: these are weights of {model} for {file.manifest.problem}, not for {problem}."
        )
    return file


def find_any(name_or_path: str, model: str, *, imports: str = "") -> WeightsFile:
    """Find verified weights whatever model they are for; `model` is who asks, for the message.

    `imports` is what ``weights import`` would be told, where that is not `model`.

    Raises
    ------
    BadWeightsError
        When they are missing, damaged or changed.
    """
    return verify(_find(name_or_path, model, imports=imports))


def _find(name_or_path: str, model: str, remedy: str = "", *, imports: str = "") -> Path:
    path = Path(name_or_path).expanduser()
    if path.suffix in TORCH_SUFFIXES and path.is_file():
        raise BadWeightsError(
            f"{path}: torch checkpoints are not loaded, they can hold code; "
            f"'nco-bench weights import {imports or model} {path}' reads those of the authors without running any."
        )
    if path.suffix == SUFFIX or path.parent != Path("."):
        if path.is_file():
            return path
        what = "is a folder, not a weights file" if path.is_dir() else "no such weights file"
        raise BadWeightsError(f"{path}: {what}; 'nco-bench weights list' shows what there is.")
    called = files_called(name_or_path)
    if called:
        return called[0]
    if is_separate(name_or_path):
        raise MissingWeightsError(
            f"The weights {name_or_path!r} for {model} are in the package nco-bench-weights: {INSTALL}."
        )
    near = difflib.get_close_matches(name_or_path, [file.stem for file in files()], n=3)
    meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    get = f"; {remedy}" if remedy else ""
    raise MissingWeightsError(
        f"No weights called {name_or_path!r} for {model}.{meant} 'nco-bench weights list' shows what there is{get}."
    )


def verify(path: Path) -> WeightsFile:
    """Check a weights file against its manifest, and that it can be read.

    Raises
    ------
    BadWeightsError
        When the manifest is missing or damaged, or the file is not the one it describes.
    """
    return read_together(path.parent, lambda: _verified(path), BadWeightsError)


def _verified(path: Path) -> WeightsFile:
    if not manifest_path(path).is_file():
        _refuse_if_damaged(path)
    manifest = read_manifest(manifest_path(path))
    found = hashlib.sha256(_content(path)).hexdigest()
    if found != manifest.sha256:
        _refuse_if_damaged(path)
        raise BadWeightsError(
            f"{path}: changed since its manifest was written (sha256 {found[:12]}, manifest {manifest.sha256[:12]}); "
            "get the file again, or import it anew with 'nco-bench weights import'."
        )
    return WeightsFile(path, manifest)


def _content(path: Path) -> bytes:
    """Return a weights file's bytes, unpacked."""
    from nco_bench.weights.packed import read_plain  # numpy: listings do without

    try:
        return read_plain(path)
    except (OSError, ValueError) as error:
        raise BadWeightsError(f"{path}: damaged weights file ({error}); get it again.") from error


def _refuse_if_damaged(path: Path) -> None:
    """Raise `BadWeightsError` for a file that is no safetensors at all, a clearer message than a wrong hash."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):
            return
    except (SafetensorError, OSError) as error:
        raise BadWeightsError(f"{path}: damaged weights file ({error}); get it again.") from error


def load_state(file: WeightsFile) -> dict[str, Tensor]:
    """Return the tensors of a weights file by name.

    Raises
    ------
    BadWeightsError
        When the file is damaged, or others have taken its place since it was verified: records would name the former ones.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    from nco_bench.weights.packed import forget

    try:
        content = _content(file.path)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise BadWeightsError(f"{file.path}: was replaced while it was being read; start again.")
        return load(content)
    except SafetensorError as error:
        raise BadWeightsError(f"{file.path}: damaged weights file ({error}); get it again.") from error
    finally:
        forget()


def load_into(policy: nn.Module, file: WeightsFile) -> None:
    """Put weights into a model.

    Raises
    ------
    BadWeightsError
        When names or shapes do not fit the model, or a number is not finite.
    """
    state = load_state(file)
    own = policy.state_dict()
    missing, extra = sorted(set(own) - set(state)), sorted(set(state) - set(own))
    if missing or extra:
        raise BadWeightsError(
            f"{file.path}: does not fit {file.manifest.model}: {len(missing)} tensors missing "
            f"({', '.join(missing[:3])}), {len(extra)} unknown ({', '.join(extra[:3])})."
        )
    for name, tensor in own.items():
        if tensor.shape != state[name].shape:
            raise BadWeightsError(
                f"{file.path}: {name} has shape {tuple(state[name].shape)}, "
                f"{file.manifest.model} of this configuration needs {tuple(tensor.shape)}."
            )
    for name, _ in policy.named_parameters():
        if not bool(state[name].isfinite().all()):
            raise BadWeightsError(
                f"{file.path}: {name} holds numbers that are not finite, as after a training that diverged; "
                "take an earlier checkpoint."
            )
    policy.load_state_dict(state)


def files(folders: Sequence[Path] | None = None) -> list[Path]:
    """Return all weights files, by folder in the order in which a name is looked for."""
    looked_at = weights_folders() if folders is None else folders
    return [path for folder in looked_at for path in sorted(folder.glob(f"*{SUFFIX}"))]
