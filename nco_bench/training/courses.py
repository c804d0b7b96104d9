"""Courses: the ways to learn. A lazy table, so that looking at it imports no torch.

A course prepares what a run needs: the model, the learner, how it is judged and what its manifest says. A model's card
names the courses that train it and its recipes. To add a course, write a module with a `Course` and add an entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.cards import find, network_card, trained_by
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.training.choices import Papers, papers_of
from nco_bench.training.recipes import LoopRecipe, chosen, overridden, recipes_of

if TYPE_CHECKING:
    from torch import nn

    from nco_bench.datasets.places import Places
    from nco_bench.training.learner import Learner, Measure
    from nco_bench.training.trainer import Trainer
    from nco_bench.weights.manifest import Manifest


@dataclass(frozen=True)
class Assignment:
    """What the user asked for.

    Attributes
    ----------
    model
        Name of the model.
    recipe
        All numbers, overrides included.
    data
        What ``--data`` names; may be empty where the course makes its own instances.
    problem
        ``tsp``, ``cvrp`` or another, None where data or model decide.
    seed, device
        Of all draws; ``cpu``, ``cuda`` or ``cuda:i``.
    validation
        Files of instances to validate on, one per size, the first the one to judge by, or None for the course's own.
    places
        Where datasets are found by name.
    options
        Fields of the model's configuration to override, as texts.
    """

    model: str
    recipe: Any
    data: tuple[str | Path, ...] = ()
    problem: str | None = None
    seed: int = 1234
    device: str = "cpu"
    validation: tuple[Path, ...] | None = None
    places: Places | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Prepared:
    """What a run needs.

    Attributes
    ----------
    policy, learner
        The model on its device, and its way to learn.
    validate
        Measures `Trainer.weights`; None where there is nothing to measure on.
    manifest
        Takes the trainer and the name of the weights; the hash is filled in later.
    identity
        What must be the same when a run is resumed, beside the recipe.
    """

    policy: nn.Module
    learner: Learner
    validate: Callable[[Trainer], Measure | None]
    manifest: Callable[[Trainer, str], Manifest]
    identity: dict[str, Any]


def as_it_is(model: str, recipe: Any) -> Any:
    """Return a recipe that needs no further checks."""
    return recipe


def for_any_data(recipe: Any, config: Mapping[str, str], data: Sequence[str | Path]) -> Any:
    """Return a recipe that is the same whatever it is trained on."""
    return recipe


@dataclass(frozen=True)
class Course:
    """A way to learn.

    Attributes
    ----------
    name
        A key of `COURSES`; cards name it.
    kind
        Class of its recipes.
    prepare
        Makes everything that a run needs.
    check
        Checks a recipe of a model, and completes it.
    fit
        Fits a recipe to the data that are named; what the overrides set is left as it is.
    imitates
        Another course whose published recipes and budgets it is held against, where papers have none for it.
    beyond
        What it does then that they do not: choice -> what was chosen.
    """

    name: str
    kind: type[LoopRecipe]
    prepare: Callable[[Assignment], Prepared]
    check: Callable[[str, Any], Any] = as_it_is
    fit: Callable[[Any, Mapping[str, str], Sequence[str | Path]], Any] = for_any_data
    imitates: str = ""
    beyond: Mapping[str, str] = field(default_factory=dict)

    def recipes(self, model: str) -> dict[str, Any]:
        """Return the recipes that a model's card has for it, the default first."""
        return recipes_of(model, self.name, self.kind)

    def recipe(self, model: str, config: Mapping[str, str], data: Sequence[str | Path] = ()) -> Any:
        """Return a model's recipe with overrides, for data: ``recipe(model, {"lr": "1e-3"})``; raises `NcoBenchError`."""
        recipe = overridden(chosen(self.recipes(model), config), config)
        return self.check(model, self.fit(recipe, config, data))

    def papers(self, model: str) -> Papers:
        """Return the papers' own recipes of a model, with what in them is ours."""
        if not self.imitates:
            return papers_of(model, self.name, self.kind)
        known = load_course(COURSES[self.imitates]).papers(model)
        return {name: replace(p, ours={**p.ours, **self.beyond}) for name, p in known.items()}


@dataclass(frozen=True)
class CourseEntry:
    """What is known about a way to learn without loading it; the cards say which models it trains.

    Attributes
    ----------
    target
        ``module:object``.
    needs_data
        Whether it learns from labelled data.
    summary
        What it does, for users.
    model_options
        Whether ``--config model.KEY=VALUE`` reaches its models.
    """

    target: str
    needs_data: bool
    summary: str
    model_options: bool = True


_LEARNERS = "nco_bench.training.learners"
COURSES: dict[str, CourseEntry] = {
    "supervised": CourseEntry(
        f"{_LEARNERS}.supervised_course:COURSE", True, "imitate labelled solutions on random pieces of them"
    ),
    "on-policy": CourseEntry(
        f"{_LEARNERS}.on_policy_course:COURSE",
        True,
        "imitate labelled solutions, and what solves the states best that the policy itself comes to (DAgger)",
    ),
    "self-improved": CourseEntry(
        f"{_LEARNERS}.self_improved_course:COURSE",
        False,
        "improve pseudo-labels by re-construction (SIT) or sampling without replacement (SIGD), then imitate them",
    ),
    "policy-gradient": CourseEntry(
        f"{_LEARNERS}.policy_gradient_course:COURSE",
        False,
        "policy gradient on freshly drawn routing instances, with a rollout or a shared baseline",
    ),
    "diffusion": CourseEntry(
        f"{_LEARNERS}.diffusion:COURSE", True, "take noise off the edges of labelled tours"
    ),
    "turned-copies": CourseEntry(
        f"{_LEARNERS}.turned_copies:COURSE",
        False,
        "policy gradient on turned copies of freshly drawn routing instances, against a frozen copy of the policy",
    ),
    "packing": CourseEntry(
        f"{_LEARNERS}.packing:COURSE", False, "policy gradient on the load rate of freshly drawn boxes"
    ),
    "tasks": CourseEntry(
        f"{_LEARNERS}.task_course:COURSE",
        False,
        "answer freshly drawn instances of the algorithmic task that --data names",
        model_options=False,
    ),
    "lra": CourseEntry(
        f"{_LEARNERS}.lra:COURSE",
        False,
        "classify the sequences of the Long Range Arena task that --data names",
        model_options=False,
    ),
}
"""Ways to learn by the name that cards and ``--config learner=NAME`` take."""


def ways_to_learn(model: str) -> dict[str, CourseEntry]:
    """Return the ways in which a model can be trained, as its card lists them; none for unknown models."""
    known = find(model)
    names = (*known.learners, *known.learners_if_asked) if known else ()
    return {name: COURSES[name] for name in names}


def course_for(model: str, config: Mapping[str, str], *, has_data: bool) -> tuple[str, Course]:
    """Return the name and the course that a model is trained by.

    Parameters
    ----------
    model
        Name of the model.
    config
        Its key ``learner`` chooses a course; without it the first one that takes the model, and data if there are any.
    has_data
        Whether labelled data was given.

    Raises
    ------
    UnknownNameError
        For a model that is not known, or a course that does not take it.
    BadInputError
        For one that nothing trains.
    """
    fitting = ways_to_learn(model)
    if not fitting:
        if find(model) is not None:
            raise BadInputError(
                f"{model}: nothing here trains it; 'nco-bench show {model}' says what it needs."
            )
        known = {name for course in COURSES for name in trained_by(course)}
        raise UnknownNameError("model to train", model, known, "See 'nco-bench list models'.")
    chosen = config.get("learner")
    if chosen is not None and chosen not in fitting:
        raise UnknownNameError(f"way to train {model}", chosen, fitting)
    usual = {name: fitting[name] for name in network_card(model).learners}
    name = chosen or next((n for n, e in usual.items() if e.needs_data == has_data), next(iter(usual)))
    return name, load_course(fitting[name])


def load_course(entry: CourseEntry) -> Course:
    """Import a course."""
    module, _, name = entry.target.partition(":")
    course = getattr(importlib.import_module(module), name)
    assert isinstance(course, Course)
    return course
