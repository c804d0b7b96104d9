"""The file of a campaign: which networks are trained, how, and what that is expected to cost; checked without training.

Entries and their keys are described in `campaign`. One table stands for many networks where it has ``each``: a list of
values per name, all combinations of which are put where ``{name}`` stands in its texts. Networks that are trained in the
background are ``[[network]]`` tables with keys of their own, see `flagships`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nco_bench.errors import BadInputError, NcoBenchError, counted
from nco_bench.toml_file import read_toml
from nco_bench.training.options import checked_options, model_options, refuse_own_name
from nco_bench.training.recipes import LoopRecipe, Recipe, batch_now

KEYS = (
    "name", "model", "slice", "turns", "data", "problem", "config", "seed", "start", "hours", "tables", "each",
)  # fmt: skip
NETWORK_KEYS = {"name", "model", "seed", "labels", "validation", "start", "config", "processes"}
OPTIONAL = {"name", "start", "config", "processes"}
"""Of a ``[[network]]``."""

WITHOUT_END = 10**9
"""Updates of a network in the background: it goes on until it is stopped."""


@dataclass(frozen=True)
class Stage:
    """One network of a campaign.

    Attributes
    ----------
    name, model
        Of the weights; of the model.
    slice_s, turns
        Wall time of a turn in seconds, and turns in all; None trains to the recipe's last step.
    data, problem, config, start, validation
        As `run.train` takes them; `start` of a ``[[stage]]`` is the name of an earlier one.
    seed
        None is the campaign's.
    hours
        Expected on one H100; 0 where nothing is expected.
    tables
        Of the paper, for which the network is needed; once trained it is copied to the cache, where they look for it.
    processes
        That train it together, see `distributed`.
    """

    name: str
    model: str
    slice_s: float | None = None
    turns: int = 1
    data: tuple[str, ...] = ()
    problem: str | None = None
    config: dict[str, str] = field(default_factory=dict)
    seed: int | None = None
    start: str | None = None
    hours: float = 0.0
    tables: str = ""
    validation: tuple[str, ...] = ()
    processes: int = 1


def read_campaign(file: Path) -> list[Stage]:
    """Read and check a campaign file.

    Raises
    ------
    BadInputError
        For a missing or damaged file, unknown keys, and values that make no sense.
    """
    entries = _entries(file, "stage")
    stages = [
        _stage(one, f"{file}: stage {number}")
        for number, entry in enumerate(entries, 1)
        for one in _each(entry, f"{file}: stage {number}")
    ]
    names = [stage.name for stage in stages]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadInputError(f"{file}: two stages are called {twice[0]!r}; give each its own name.")
    return stages


def read_networks(file: Path) -> list[Stage]:
    """Read and check a file of networks that are trained in the background, as stages without end.

    Labels and validation are relative to the campaign's folder. Raises `BadInputError` as `read_campaign` does.
    """
    stages = []
    for number, entry in enumerate(_entries(file, "network"), 1):
        wrong = sorted((set(entry) | OPTIONAL) ^ NETWORK_KEYS)
        if wrong:
            raise BadInputError(f"{file}: network {number}: {wrong[0]} is missing or unknown.")
        processes = entry.get("processes", 1)
        if not isinstance(processes, int) or processes < 1:
            raise BadInputError(f"{file}: network {number}: processes = {processes}: expected 1 or more.")
        config = {"steps": str(WITHOUT_END), **_texts(entry.get("config", {}))}
        name = entry.get("name", entry["model"])
        stages.append(
            Stage(
                name, entry["model"], data=(entry["labels"],), config=config, seed=entry["seed"],
                start=entry.get("start"), validation=(entry["validation"],), processes=processes,
            )
        )  # fmt: skip
    return stages


def _entries(file: Path, table: str) -> list[dict[str, Any]]:
    """Return the tables of a file that holds nothing else."""
    content = read_toml(file)
    entries = content.get(table)
    if not isinstance(entries, list) or not entries or set(content) != {table}:
        raise BadInputError(f"{file}: expected a list of [[{table}]] tables and nothing else.")
    return entries


def _texts(config: dict[str, Any]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()
    }


def _each(entry: dict[str, Any], place: str) -> Iterator[dict[str, Any]]:
    """Put all combinations of the values of ``each`` into an entry."""
    choices = entry.get("each", {})
    if not isinstance(choices, dict) or not all(isinstance(v, list) and v for v in choices.values()):
        raise BadInputError(f"{place}: each is no table of lists.")
    rest = {key: value for key, value in entry.items() if key != "each"}
    for values in itertools.product(*choices.values()):
        try:
            yield _filled(rest, dict(zip(choices, values, strict=True)))
        except (KeyError, IndexError, ValueError) as error:
            raise BadInputError(f"{place}: each has no values for {error}.") from None


def _filled(value: Any, values: dict[str, Any]) -> Any:
    if isinstance(value, str) and values:
        return value.format(**values)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    return value


def _stage(entry: dict[str, Any], place: str) -> Stage:
    unknown = sorted(set(entry) - set(KEYS))
    if unknown:
        raise BadInputError(f"{place}: unknown key {unknown[0]!r}; known: {', '.join(KEYS)}.")
    if not isinstance(entry.get("model"), str):
        raise BadInputError(f'{place}: model is missing or no text, such as model = "pens-a".')
    turns, data, config = entry.get("turns", 1), entry.get("data", []), entry.get("config", {})
    name = entry.get("name", entry["model"])
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise BadInputError(f"{place}: name {name!r} is no file name.")
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        raise BadInputError(f"{place}: turns = {turns!r}, expected a whole number above 0.")
    if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
        raise BadInputError(f"{place}: data is no list of names.")
    if not isinstance(config, dict):
        raise BadInputError(f"{place}: config is no table of recipe values.")
    return Stage(
        name,
        entry["model"],
        None if "slice" not in entry else seconds(entry["slice"], f"{place}: slice = {entry['slice']!r}"),
        turns,
        tuple(data),
        entry.get("problem"),
        _texts(config),
        _number(entry, "seed", int, place),
        entry.get("start"),
        _number(entry, "hours", float, place) or 0.0,
        str(entry.get("tables", "")),
    )


def _number(entry: dict[str, Any], key: str, kind: type, place: str) -> Any:
    if key not in entry:
        return None
    try:
        return kind(str(entry[key]))
    except ValueError:
        raise BadInputError(f"{place}: {key} = {entry[key]!r} is no number.") from None


def seconds(text: Any, place: str) -> float:
    """Return a time such as ``90s``, ``9m`` or ``2h`` in seconds; raises `BadInputError`, naming the place."""
    try:
        value = float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise BadInputError(f"{place}, expected a time such as 90s, 9m or 2h.")
    return value


@dataclass(frozen=True)
class Planned:
    """A stage that was checked without being trained: its course, its recipe."""

    stage: Stage
    learner: str
    recipe: LoopRecipe

    @property
    def samples(self) -> int:
        """Sub-problems, instances or sequences in all; 0 where time decides."""
        if isinstance(self.recipe, Recipe) and self.recipe.batch_doubles:
            return sum(batch_now(self.recipe, step) for step in range(self.recipe.steps))
        return self.recipe.steps * self.recipe.batch

    def describe(self) -> str:
        """Say it in a line."""
        steps = f"{self.recipe.steps:,} x {self.recipe.batch}" if self.recipe.steps else "as time allows"
        data = f" on {', '.join(self.stage.data)}" if self.stage.data else ""
        chosen = self.stage.config.get("recipe", "its default")
        return (
            f"{self.stage.name}: {self.stage.model}{data}, {self.learner}, recipe {chosen}, {steps}, "
            f"{self.stage.hours:g} H100 h, tables {self.stage.tables or '-'}"
        )


def planned(stages: Sequence[Stage]) -> list[Planned]:
    """Check every stage as far as it can be without its data and without training.

    Raises
    ------
    NcoBenchError
        For unknown models, courses, recipes and options, and impossible values; the message names the stage.
    """
    earlier: set[str] = set()
    plans = []
    for stage in stages:
        try:
            plans.append(_plan(stage, earlier))
        except NcoBenchError as error:
            raise BadInputError(f"stage {stage.name!r}: {error}") from error
        earlier.add(stage.name)
    return plans


def _plan(stage: Stage, earlier: set[str]) -> Planned:
    from nco_bench.nn.build import model_config
    from nco_bench.training.courses import COURSES, course_for

    values, options = model_options(stage.config)
    name, course = course_for(stage.model, values, has_data=bool(stage.data))
    if COURSES[name].needs_data and not stage.data:
        raise BadInputError(f"{stage.model} learns from labelled instances: add data.")
    if options and not COURSES[name].model_options:
        raise BadInputError(f"its training ({name}) takes no options of the model.")
    if options:
        defaults = model_config(stage.model, stage.problem)
        model_config(stage.model, stage.problem, **checked_options(defaults, options))
        refuse_own_name(Path(stage.name), stage.model, options, "give the stage a name of its own")
    recipe = course.recipe(stage.model, {k: v for k, v in values.items() if k != "learner"}, stage.data)
    if not recipe.steps and stage.slice_s is None:
        raise BadInputError("the recipe trains for a given time: add slice, or steps to its config.")
    if stage.start is not None and stage.start not in earlier:
        raise BadInputError(f"start = {stage.start!r} is no earlier stage.")
    return Planned(stage, name, dataclasses.replace(recipe, learner=name))


def describe_plan(plans: Sequence[Planned]) -> str:
    """Say what a campaign would train, a line per network, and what it would cost in all."""
    hours = sum(plan.stage.hours for plan in plans)
    return "\n".join(
        [*(plan.describe() for plan in plans), f"{counted(len(plans), 'network')}, {hours:,.0f} H100 hours"]
    )
