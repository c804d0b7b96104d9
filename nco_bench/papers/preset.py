r"""Presets: which printed number of a table comes from which solver, weights, decoding and instances.

A preset is a TOML file with a list of rules, read like a style sheet: every rule whose ``row`` and ``column`` (regular
expressions for the whole name) fit a cell applies, later ones win field by field. Named groups of the expressions can be
used in the values: row ``D=(?P<d>\d+), W=(?P<w>\d+) greedy`` with ``solver = "decoder-{d}x{w}"``. A value may differ by
scale: ``count = { smoke = 2, cpu = 100, full = 10000 }``. The fields are those of `CellPreset`::

    [[rule]]
    column = 'TSP(?P<n>\d+) \| Gap'
    metric = "gap"
    data = "tsp{n}"
    count = { smoke = 2, cpu = 100, full = 128 }

Where a paper can be read in more than one way, ``readings = { "NAME" = { FIELD = VALUE } }`` gives the others by what
they change; each has a row of its own beside the same printed number.

Each printed number must end with exactly one way to get it: a ``metric`` of a run, a ``compute`` function
(``module:function``, called with the published table and the scale, returning ``{(row, column): value}``), or a
``cannot`` with the reason.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nco_bench.datasets.sites import LIBRARIES
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.papers.measuring import Timing
from nco_bench.papers.published import PublishedCell, PublishedTable, load_table, paper_room

SCALES = ("smoke", "cpu", "full")
"""All tables in minutes; one table in a quarter of an hour of two idle cores; as published.

A ``cpu`` count of 0 stands where even a few instances would take longer; ``--scale full --limit K`` runs K of them.
"""

SETTING = "setting"
"""Unit of a printed setting that is a word, such as the name of an optimiser."""
DECLARED = ("not run", "weights missing", "not comparable", "no result", "no code")
"""Statuses that a ``cannot`` may have; ``no result``: a printed condition or definition; ``no code``: no public one."""


@dataclass(frozen=True)
class CellPreset:
    """How one printed number is to be got at one scale.

    Attributes
    ----------
    metric
        What to read of the records; see `nco_bench.papers.measuring.METRICS`.
    solver, decoding, logit_scale, coordinate_scale, params, batch_size, time_limit, repeats, seed, device
        As for ``nco-bench run``.
    weights
        Name, or several, of which the first that is at hand counts (the authors' own, else those that ship); empty for
        the solver's default.
    trained_on
        Size of the instances that the paper's weights were trained on, where ours may have seen others; 0 says nothing.
    trained_samples
        Samples that the paper's weights of this number had seen, where they are others than the network's; 0: they are not.
    data
        Name of a dataset, or several, of which the first that is at hand counts.
    mean_of
        Datasets that are each run, where the printed number is the mean over them; in place of `data`.
    count
        Instances to solve; 0: not at this scale.
    printed_count
        Instances that a printed total time is for; the measured time per instance is multiplied by it.
    reference
        Solver that provides the reference where the dataset has none.
    reference_mean
        Mean cost that a gap of means is to: the paper's own, where its gap is to solutions that are not published. Only
        the whole set has a gap to it.
    compute
        ``module:function`` for numbers that come from no run.
    cannot, status
        Why it cannot be had, and what to call that.
    note
        What a reader should know about the measured number.
    same_instances
        Whether the instances are those of the paper.
    paper_sets
        Sets of `data` that are the paper's own: what was measured on one of them is on its instances.
    paper_instances
        Instances that the printed mean is over; 0 stands for those of the full scale, and for none where it has none.
    full_limit
        The time limit of the full scale: what a shorter one ended is not held against the printed number.
    gap_unstated
        Whether the paper leaves open if its gap is a mean of gaps or a ratio of means; read from the published table.
    readings
        Other readings of the paper by name; each is complete, without readings of its own.
    """

    metric: str = ""
    solver: str = ""
    weights: tuple[str, ...] = ()
    decoding: str = ""
    logit_scale: str = ""
    coordinate_scale: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 0
    time_limit: float = 0.0
    repeats: int = 1
    seed: int = 1234
    device: str = "auto"
    trained_on: int = 0
    trained_samples: int = 0
    data: tuple[str, ...] = ()
    mean_of: tuple[str, ...] = ()
    count: int = 0
    printed_count: int = 0
    reference: str = ""
    reference_mean: float = 0.0
    compute: str = ""
    cannot: str = ""
    status: str = "not run"
    note: str = ""
    same_instances: bool = False
    paper_sets: tuple[str, ...] = ()
    paper_instances: int = 0
    full_limit: float = 0.0
    gap_unstated: bool = False
    readings: Mapping[str, CellPreset] = field(default_factory=dict)

    @property
    def timing(self) -> Timing:
        """How its time or memory must have been measured."""
        return Timing(self.batch_size, self.device)

    @property
    def needs_reference(self) -> bool:
        """Whether the number is a gap to solutions that a solver makes where the set has none."""
        return self.metric in ("gap", "gap-of-means") and bool(self.reference) and not self.reference_mean

    @property
    def unlike(self) -> bool:
        """Whether the instances are single ones of a library, of which a part says little of the whole."""
        return any(re.split("[:/]", name)[0] in LIBRARIES for name in (*self.data, *self.mean_of))

    @property
    def ways(self) -> list[str]:
        """The ways to get the number that the preset names; there should be one."""
        return [name for name in ("metric", "compute", "cannot") if getattr(self, name)]


@dataclass(frozen=True)
class Rule:
    """One rule of a preset: where it applies, and what it says there."""

    row: re.Pattern[str]
    column: re.Pattern[str]
    values: Mapping[str, Any]
    place: str


@dataclass(frozen=True)
class Preset:
    """The rules of one published table."""

    paper: str
    number: int | str
    rules: tuple[Rule, ...]
    notes: tuple[str, ...]
    path: Path

    def cell(self, cell: PublishedCell, scale: str) -> CellPreset:
        """Return how the number of a published cell is to be got.

        Raises
        ------
        BadInputError
            When no rule, or more than one way, holds for the cell.
        """
        values: dict[str, Any] = {}
        groups: dict[str, str] = {}
        for rule in self.rules:
            row, column = rule.row.fullmatch(cell.row), rule.column.fullmatch(cell.column)
            if row is None or column is None:
                continue
            groups |= {**row.groupdict(), **column.groupdict()}
            if set(rule.values) & {"metric", "compute", "cannot"}:
                for way in ("metric", "compute", "cannot"):  # a later way replaces an earlier one
                    values.pop(way, None)
            values |= rule.values
        place = f"{self.path.name}: row {cell.row!r}, column {cell.column!r}"
        readings = values.pop("readings", {})
        found = _build(values, groups, scale, place)
        others = {
            name: _build({**values, **_fields(changed, place)}, groups, scale, place)
            for name, changed in readings.items()
        }
        found = replace(found, readings=others)
        if len(found.ways) != 1:
            raise BadInputError(f"{place}: {_count_of_ways(found)}; add a rule for it.")
        return found


def _count_of_ways(found: CellPreset) -> str:
    return "no rule says how to get it" if not found.ways else f"rules name {' and '.join(found.ways)}"


def with_print(preset: Preset, table: PublishedTable, cell: PublishedCell, scale: str) -> CellPreset:
    """Return how a cell's number is to be got, with what the printed one carries: its instances, limit, what its gap is.

    Raises
    ------
    BadInputError
        As `Preset.cell`.
    """
    found, full = preset.cell(cell, scale), preset.cell(cell, "full")
    number = found.paper_instances or full.count
    unstated = "not stated" in table.conditions.get("gap", "")

    def carrying(one: CellPreset) -> CellPreset:
        return replace(one, paper_instances=number, full_limit=full.time_limit, gap_unstated=unstated)

    return replace(carrying(found), readings={name: carrying(one) for name, one in found.readings.items()})


def numeric_cells(table: PublishedTable) -> list[PublishedCell]:
    """The cells of a table that can be held against ours: numbers, where a method ran out of memory, settings in words."""
    return [c for c in table.cells if c.number is not None or c.value == "OOM" or c.unit == SETTING]


def preset_path(paper: str, number: int | str) -> Path:
    """Return where the preset of a published table is, whether it exists or not."""
    stem = f"table-{number}" if isinstance(number, int) or str(number).isdigit() else str(number)
    return paper_room(paper) / "presets" / f"{stem}.toml"


def has_preset(paper: str, number: int | str) -> bool:
    """Whether a published table has a preset."""
    return preset_path(paper, number).is_file()


def load_preset(paper: str, number: int | str) -> Preset:
    """Read the preset of a published table.

    Raises
    ------
    UnknownNameError, BadInputError
        For a table that does not exist or has no preset, or a damaged preset.
    """
    table = load_table(paper, number)
    path = preset_path(paper, table.number)
    if not path.is_file():
        raise BadInputError(f"{paper} {table.label}: no preset yet; see 'nco-bench list tables'.")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path}: not readable as TOML ({error}); restore the file.") from error
    rules = tuple(
        _rule(entry, f"{path}: rule {index}") for index, entry in enumerate(document.get("rule", []), start=1)
    )
    return Preset(paper, table.number, rules, tuple(document.get("notes", ())), path)


def _rule(entry: Mapping[str, Any], place: str) -> Rule:
    values = _fields({key: value for key, value in entry.items() if key not in ("row", "column")}, place)
    try:
        return Rule(re.compile(entry.get("row", ".*")), re.compile(entry.get("column", ".*")), values, place)
    except re.error as error:
        raise BadInputError(f"{place}: not a regular expression ({error}).") from error


def _fields(values: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return values whose keys are all fields of `CellPreset`; raises `UnknownNameError`."""
    known = {f.name for f in fields(CellPreset)}
    for key in values:
        if key not in known:
            raise UnknownNameError(f"field of {place}", key, known)
    return values


def _build(values: Mapping[str, Any], groups: Mapping[str, str], scale: str, place: str) -> CellPreset:
    """Choose the values of a scale, fill in the groups, and check types."""
    chosen: dict[str, Any] = {}
    kinds = {f.name: f for f in fields(CellPreset)}
    for key, value in values.items():
        if isinstance(value, Mapping) and value and set(value) <= set(SCALES):
            if scale not in value:
                continue
            value = value[scale]
        value = _filled(value, groups, place)
        if key in ("data", "weights", "mean_of", "paper_sets"):
            value = (value,) if isinstance(value, str) else tuple(value)
        elif isinstance(kinds[key].default, int | float) and not isinstance(kinds[key].default, bool):
            value = _number(value, type(kinds[key].default), f"{place}, {key}")
        chosen[key] = value
    found = CellPreset(**chosen)
    if found.status not in DECLARED:
        raise UnknownNameError(f"status of {place}", found.status, DECLARED)
    return found


def _filled(value: Any, groups: Mapping[str, str], place: str) -> Any:
    if isinstance(value, str):
        try:
            return value.format(**{key: text or "" for key, text in groups.items()})
        except (KeyError, IndexError) as error:
            raise BadInputError(f"{place}: {value!r} names a group {error} that no rule has.") from error
    if isinstance(value, list):
        return [_filled(item, groups, place) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, groups, place) for key, item in value.items()}
    return value


def _number(value: Any, kind: type, place: str) -> int | float:
    try:
        return kind(value)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{place}: {value!r} is no number.") from error
