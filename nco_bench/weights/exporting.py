"""Weights for elsewhere: a copy with its manifest, and a page that says all that is known about them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from nco_bench.errors import ResultsError, UnknownNameError, counted
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.shelf import export, list_weights
from nco_bench.weights.store import SUFFIX, WeightsFile, hidden_by, load_state, verify

if TYPE_CHECKING:
    from torch import Tensor

HALVES = {"bf16": "bfloat16", "fp16": "float16"}
"""Half precisions: bf16 keeps 8 bits of each weight and every exponent, fp16 11 bits of what is below 65,504."""

DTYPES = {"fp32": "float32", **HALVES}


def find(name_or_path: str) -> WeightsFile:
    """Return weights by name or path, checked against their manifest.

    Raises
    ------
    UnknownNameError
        For a name that nothing answers to.
    BadWeightsError
        When the file is damaged or changed.
    """
    path = Path(name_or_path).expanduser()
    if path.suffix == SUFFIX and path.is_file():
        return verify(path)
    known = {file.path.stem: file for file in list_weights()}
    if name_or_path not in known:
        raise UnknownNameError("weights", name_or_path, known, "See 'nco-bench weights list'.")
    return verify(known[name_or_path].path)


def export_copy(name_or_path: str, out: Path, precision: str | None = None) -> WeightsFile:
    """Write weights and their manifest to another place; in another precision the manifest names the original as parent.

    Parameters
    ----------
    name_or_path
        What to copy.
    out
        The weights file.
    precision
        Of `DTYPES`; None keeps every value as it is stored.

    Raises
    ------
    NcoBenchError
        For weights that are not found, damaged or too large for fp16, an unknown precision, or a file that is already
        there.
    """
    if precision is not None and precision not in DTYPES:
        raise UnknownNameError("precision", precision, DTYPES)
    if out.name in ("", ".."):
        raise ResultsError(f"--out {out}: is a folder; name the weights file.")
    if out.suffix not in ("", SUFFIX):
        raise ResultsError(
            f"--out {out}: weights are written as {SUFFIX}; give the file this ending or none."
        )
    file = find(name_or_path)
    target = out.with_name(out.name.removesuffix(SUFFIX) + SUFFIX)
    for path in (target, manifest_path(target)):
        if path.exists():
            raise ResultsError(f"{path}: is there already; choose another --out.")
    state, manifest = load_state(file), dataclasses.replace(file.manifest, name=target.stem)
    converted = {key: _converted(value, precision, key) for key, value in state.items()}
    if any(converted[key].dtype != state[key].dtype for key in state):
        state, manifest = converted, dataclasses.replace(manifest, parent=file.sha256)
        if precision in HALVES:
            note = f"{manifest.notes} Rounded to {precision}.".strip()
            manifest = dataclasses.replace(manifest, rounded_from=file.sha256, notes=note)
    return export(state, manifest, target)


def _converted(value: Tensor, precision: str | None, key: str) -> Tensor:
    import torch

    if precision is None or not value.is_floating_point():
        return value
    rounded = value.to(getattr(torch, DTYPES[precision]))
    if rounded.isfinite().sum() < value.isfinite().sum():
        raise ResultsError(f"--precision {precision}: values of {key} are too large for it; choose bf16.")
    return rounded


def describe(file: WeightsFile) -> str:
    """Return a page of text: what a reader of a table should know about these weights."""
    manifest, data, hidden = file.manifest, file.manifest.data, hidden_by(file.path)
    share = (
        "" if manifest.share_of_paper is None else f", {100 * manifest.share_of_paper:.3g} % of the paper's"
    )
    rows = [
        ("model", f"{manifest.model}, {manifest.problem}, {manifest.parameters:,} parameters"),
        ("file", f"{file.path} ({file.path.stat().st_size / 2**20:.1f} MiB)"),
        ("used before", hidden and f"the weights of this name in {hidden}"),
        ("sha256", manifest.sha256),
        ("licence", manifest.licence),
        (
            "trained",
            f"{counted(manifest.steps, 'step')}, {counted(manifest.samples, 'sample')}{share}, {manifest.hours:g} h",
        ),
        ("data", f"{data.instances:,} x {data.distribution or 'unknown'} of size {data.size or 'unknown'}"),
        ("labels", " ".join(part for part in (data.label_solver, data.label_params) if part)),
        ("machine", ", ".join(f"{key} {value}" for key, value in manifest.machine.items())),
        ("code", manifest.code_version),
        ("seed", str(manifest.seed)),
        ("config", ", ".join(f"{key}={value}" for key, value in manifest.config.items())),
        ("recipe", ", ".join(f"{key}={value}" for key, value in manifest.recipe.items())),
    ]
    if data.label_gap_percent is not None:
        rows.append(("label gap", f"{data.label_gap_percent:.4f} % ({data.label_gap_measured})"))
    for gap in manifest.validation:
        unit = "" if gap.on.endswith("no gap") else " %"  # costs, where there is nothing to compare them with
        rows.append(
            (
                "validation",
                f"{gap.gap_percent:.3f} +- {gap.ci95_percent:.3f}{unit} on {gap.instances} {gap.on}",
            )
        )
    for change in manifest.recipe_changes:
        rows.append(("changed", f"at step {change.get('step')}: {change.get('changed')}"))
    rows += [("rounded", manifest.rounded_from), ("parent", manifest.parent), ("notes", manifest.notes)]
    lines = [f"{key:<11}  {value}" for key, value in rows if value]
    return "\n".join([manifest.name, *lines])
