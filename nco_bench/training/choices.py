"""What a paper says about its training, and what in our recipe of that name is our own choice.

A recipe of the name ``paper`` has the paper's numbers and nothing that the paper does not ask for (no symmetries, no
clipping where it names none). What it leaves open must still be decided: that is said here, field by field, shown by
``nco-bench show MODEL``, and written into the manifest of trained weights with whatever else differs from the paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nco_bench.cards import network_card
from nco_bench.training.recipes import NETWORK, LoopRecipe, recipe_of, recipes_of
from nco_bench.weights.manifest import STATED

RUN_CONTROL = frozenset(
    {
        "learner", "compile", "recompute", "checkpoint_every", "validate_every", "validation_instances",
        "validation_steps", "log_every", "spike",
    }
)  # fmt: skip
"""Fields that say how a run is watched or what memory it takes, and move no weight."""

ENDING = ("cosine", "trapezoid")
"""Schedules that land at the last step."""


@dataclass(frozen=True)
class Paper:
    """A recipe as a paper has it.

    Attributes
    ----------
    recipe
        All numbers.
    source
        Where the paper states them.
    ours
        Fields of the recipe, or other choices, that the paper leaves open or has otherwise: what was chosen, and why.
    also
        Other values that the paper has for a field, for other rows of its tables.
    nodes
        Of the labelled instances; 0 where the recipe says it.
    network
        Options of the network that it trains, where they are not the defaults.
    """

    recipe: LoopRecipe
    source: str
    ours: Mapping[str, str]
    also: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    nodes: int = 0
    network: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: the source, the network's options, what is ours, and the numbers."""
        return {
            "source": self.source,
            **({"network": dict(self.network)} if self.network else {}),
            "ours": dict(self.ours),
            **({"also": {key: list(values) for key, values in self.also.items()}} if self.also else {}),
            "recipe": {k: v for k, v in dataclasses.asdict(self.recipe).items() if k not in RUN_CONTROL},
        }


Papers = Mapping[str, Paper]
"""By the name of the recipe, the first where none is named."""


def papers_of(model: str, learner: str, kind: type[LoopRecipe]) -> Papers:
    """Return the papers' own recipes of a model: those of its card that name a source."""
    known = network_card(model)
    stated = {name: recipe_of(known, learner, name) for name in known.recipes.get(learner, {})}
    recipes, shared = recipes_of(model, learner, kind), known.budget.get(learner, {}).get("size", 0)
    return {
        name: Paper(
            recipes[name], values["source"], values.get("ours", {}), values.get("also", {}),
            values.get("nodes", shared), values.get(NETWORK, {}),
        )
        for name, values in stated.items()
        if "source" in values
    }  # fmt: skip


def paper_of(papers: Papers, recipe: str, problem: str) -> Paper | None:
    """Return the paper's recipe that a training is held against.

    Parameters
    ----------
    papers
        Those of the model.
    recipe
        Name of the recipe that was chosen, empty for the default: the longest name that it begins with counts.
    problem
        ``tsp``, ``cvrp`` or another, which may have a recipe NAME-PROBLEM of its own; that is the paper's there.
    """
    begins = [name for name in papers if recipe.startswith(name)]
    name = max(begins, key=len) if begins else next(iter(papers), None)
    return None if name is None else papers.get(f"{name}-{problem}", papers[name])


def departures(
    recipe: LoopRecipe, paper: Paper, size: int = 0, history: Sequence[Mapping[str, Any]] = ()
) -> dict[str, str]:
    """Return what in a training is not the paper's: field or choice -> what the paper has, or that it does not say.

    Parameters
    ----------
    recipe
        As it was at the end.
    paper
        What it is held against.
    size
        Of the labelled instances, 0 where it is not known.
    history
        Of the run: its lines say what was changed on the way, and what it was before.
    """
    published = dataclasses.asdict(paper.recipe)
    former = _former(recipe, history)
    changed = {}
    for key, value in dataclasses.asdict(recipe).items():
        if key in RUN_CONTROL or key not in published:
            continue
        allowed = (published[key], *paper.also.get(key, ()))
        if value in allowed and all(before in allowed for before, _ in former.get(key, ())):
            continue
        earlier = ", ".join(f"{_said(before)} until update {step}" for before, step in former.get(key, ()))
        said = f"{_said(value)} ({earlier})" if earlier else _said(value)
        stated = "; our choice for the paper: " if key in paper.ours else STATED
        changed[key] = f"{said}{stated}{_said(published[key])}"
    if size and paper.nodes and size != paper.nodes:
        changed["size"] = f"{size}{STATED}{paper.nodes}"
    return {**{k: why for k, why in paper.ours.items() if k not in changed}, **changed}


def _said(value: Any) -> str:
    """Say a value; an empty name is that of nothing."""
    return "none" if value == "" else str(value)


def _former(recipe: LoopRecipe, history: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[Any, int]]]:
    """Return the values that fields had before they were changed, and until which update; nothing that moved no weight."""
    found: dict[str, list[tuple[Any, int]]] = {}
    for line in history:
        for key, value in line.get("was", {}).items() if line["step"] else ():
            if (
                key != "steps" or recipe.schedule in ENDING
            ):  # elsewhere it says when the run ends, and no more
                found.setdefault(key, []).append((value, line["step"]))
    return found
