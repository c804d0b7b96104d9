"""The manifest of a weights file: what it is, what it was trained on, how far, by what code; stored as JSON beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from nco_bench.cards import find
from nco_bench.errors import BadWeightsError
from nco_bench.seals import seal_document, unseal_document

FORMAT = 1
STATED = "; the paper: "
"""Between our value and what the paper states in a line of `Manifest.ours`; choices that it leaves open lack it."""


@dataclass(frozen=True)
class TrainingData:
    """What was learned from.

    Attributes
    ----------
    distribution, size, instances
        Of the labelled instances: their distribution, nodes each, and how many there were.
    label_solver, label_params
        Who made the labels, and how.
    label_gap_percent
        Mean gap of the labels to better solutions, where it was measured, and how it was measured.
    seeds
        Seeds of the datasets that were learned from, such as ``20261 (20,000 tours)`` or ``2000..2015``; none where
        instances were drawn while training.
    fingerprint
        Hash of the names and sizes of the shards.
    hashes
        Content hashes of the datasets that were learned from, by which tables tell that a test set was among them.
    """

    distribution: str
    size: int
    instances: int
    label_solver: str = "unknown"
    label_params: str = ""
    label_gap_percent: float | None = None
    label_gap_measured: str = ""
    seeds: tuple[str, ...] = ()
    fingerprint: str = ""
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Validation:
    """Mean greedy gap in percent, half width of its 95 % interval, and on what it was measured."""

    gap_percent: float
    ci95_percent: float
    instances: int
    on: str


@dataclass(frozen=True)
class Manifest:
    """All that is known about a weights file.

    Attributes
    ----------
    name
        What ``--weights`` takes.
    model, config, problem, parameters
        Name and configuration of the model that the file belongs to, the problem, the number of values.
    sha256
        Of the safetensors file; of a packed one, unpacked.
    steps, samples
        Updates, and sub-problems seen in them.
    data
        What was learned from.
    recipe, seed
        All values of the recipe.
    hours, machine
        Wall hours of training and on what (processor, cores used, torch version).
    code_version
        Version and revision of nco-bench that trained.
    licence
        Of the weights.
    parent
        sha256 of the checkpoint or weights that training started from, or an empty string.
    validation
        Gaps, the first during training; None where nothing was measured.
    paper_samples, share_of_paper
        Sub-problems in the paper's own training, and which share of them was seen.
    ours
        Fields of the recipe, or other choices, that are not the paper's: what the paper has, or that it does not say.
    recipe_changes
        What was changed while it trained, and at which step.
    notes
        What a reader of a table should know.
    core_hours
        Processor hours of training, over all cores; None where they were not counted.
    rounded_from
        sha256 of the weights in full precision that these were rounded from, or an empty string.
    """

    name: str
    model: str
    config: dict[str, Any]
    problem: str
    parameters: int
    sha256: str
    steps: int
    samples: int
    data: TrainingData
    recipe: dict[str, Any]
    seed: int
    hours: float
    machine: dict[str, str]
    code_version: str
    licence: str = "MIT"
    parent: str = ""
    validation: tuple[Validation, ...] = ()
    paper_samples: int | None = None
    share_of_paper: float | None = None
    recipe_changes: tuple[dict[str, Any], ...] = ()
    ours: dict[str, str] = field(default_factory=dict)
    notes: str = ""
    core_hours: float | None = None
    rounded_from: str = ""
    format: int = field(default=FORMAT)

    @property
    def imported(self) -> bool:
        """Whether it came from its authors: nothing was trained here."""
        return "imported_from" in self.recipe

    @property
    def departures(self) -> list[str] | None:
        """What of the training is not as the paper states, such as ``batch 4; the paper: 1024``; None where nothing says."""
        if not self.ours:
            return None
        return [f"{key} {said}" for key, said in self.ours.items() if STATED in said]


def names_seed(text: str, seed: object) -> bool:
    """Say whether a manifest's line of seeds (``7``, ``7 (20,000 tours)``, ``2000..2015, 2100..2115``) names a seed."""
    for part in text.partition("(")[0].split(","):
        first, _, last = part.strip().partition("..")
        if first == str(seed):
            return True
        if (
            first.isdecimal()
            and last.isdecimal()
            and isinstance(seed, int)
            and int(first) <= seed <= int(last)
        ):
            return True
    return False


def manifest_path(weights: Path) -> Path:
    """Return where the manifest of a weights file is."""
    return weights.with_suffix(".json")


def manifests_in(folder: Path) -> list[Path]:
    """Return the manifests of a folder by name; what else stands beside weights (``NAME.calibration.json``) is none."""
    return [path for path in sorted(folder.glob("*.json")) if "." not in path.stem]


def sha256_of(path: Path) -> str:
    """Hash a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def as_dict(manifest: Manifest) -> dict[str, Any]:
    """Return the manifest as JSON values."""
    return dataclasses.asdict(manifest)


def to_json(manifest: Manifest) -> str:
    """Return the manifest as indented JSON, sealed."""
    return seal_document(dataclasses.asdict(manifest), indent=2).decode()


def read_manifest(path: Path) -> Manifest:
    """Read and check a manifest.

    Raises
    ------
    BadWeightsError
        When it is missing, no JSON, of another format, or lacks or misspells a field.
    """
    try:
        values = unseal_document(path.read_bytes())
    except FileNotFoundError:
        raise BadWeightsError(
            f"{path}: the manifest of these weights is missing; copy it from where they came, or, if they are the authors', "
            "let 'nco-bench weights import' make one."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadWeightsError(f"{path}: cannot read the manifest ({error}).") from error
    except json.JSONDecodeError as error:
        raise BadWeightsError(
            f"{path}:{error.lineno}: the manifest is no valid JSON ({error.msg})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise BadWeightsError(
            f'{path}: the manifest is damaged ({error}); get it again, or leave out its lines "sealed" and "seal" '
            "if you mean what it says."
        ) from error
    if not isinstance(values, dict):
        raise BadWeightsError(f"{path}: the manifest is no JSON object.")
    if values.get("format") != FORMAT:
        raise BadWeightsError(f"{path}: manifest format {values.get('format')!r}, expected {FORMAT}.")
    checked = _build(Manifest, values, str(path))
    assert isinstance(checked, Manifest)
    known = find(checked.model)
    before = known.config_before if known else {}
    return dataclasses.replace(checked, config={**before, **checked.config})


_hints = cache(get_type_hints)
"""Types of the fields of a class; working them out takes longer than reading a manifest."""


def _build(kind: type, values: Any, place: str) -> Any:
    """Build a dataclass from JSON values, checking names and types."""
    if not isinstance(values, dict):
        raise BadWeightsError(f"{place}: expected an object, found {values!r}.")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = sorted(set(values) - set(fields))
    required = [f.name for f in fields.values() if f.default is f.default_factory is dataclasses.MISSING]
    missing = [name for name in required if name not in values]
    if unknown or missing:
        raise BadWeightsError(
            f"{place}: manifest fields missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}."
        )
    hints = _hints(kind)
    return kind(**{key: _value(hints[key], value, f"{place}: {key}") for key, value in values.items()})


def _value(hint: Any, value: Any, place: str) -> Any:
    """Convert one JSON value to its field's type."""
    if dataclasses.is_dataclass(hint):
        return _build(hint, value, place)  # type: ignore[arg-type]
    origin = get_origin(hint)
    if origin is types.UnionType:
        if value is None:
            return None
        return _value(get_args(hint)[0], value, place)
    if origin is tuple:
        if not isinstance(value, list):
            raise BadWeightsError(f"{place}: expected a list, found {value!r}.")
        return tuple(_value(get_args(hint)[0], item, place) for item in value)
    expected = origin or hint
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise BadWeightsError(f"{place}: expected {expected.__name__}, found {value!r}.")
    return value
