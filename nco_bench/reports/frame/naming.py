"""What a method is called in tables, reports and plots: solver, decoding, and every setting that was chosen."""

from __future__ import annotations

from pathlib import Path

from nco_bench.runs.records import Cell


def method_name(cell: Cell) -> str:
    """Return label and decoding, and in brackets the settings that the label does not say: a name hides nothing that ran."""
    settings = chosen_settings(cell)
    return f"{plain_name(cell)} ({', '.join(settings)})" if settings else plain_name(cell)


def plain_name(cell: Cell) -> str:
    """Return label and decoding."""
    return f"{cell.label} {cell.decoding}" if cell.decoding else cell.label


def chosen_settings(cell: Cell) -> tuple[str, ...]:
    """Return what was set otherwise than the solver's default, in words, without what stands in the label.

    Weights of the solver's own name are its default. Cells of older versions say what they stored.
    """
    in_label = set(cell.label.split(":")[1:])
    weights = cell.options.get("weights") if cell.weights else None
    said = []
    if weights and weights != cell.solver and ":weights=" not in cell.label:
        said.append(f"weights {Path(weights).name}")
    for key, value in cell.options.items():
        if key in ("decoding", "weights") or value is None:
            continue
        if isinstance(value, dict):
            settings = (f"{k}={v}" for k, v in sorted(value.items()))
            said += [text for text in settings if text not in in_label]
        elif key == "time_limit":
            said.append(f"time limit {value:g} s")
        else:
            said.append(f"{key.replace('_', ' ')} {value}")
    return tuple(said)
