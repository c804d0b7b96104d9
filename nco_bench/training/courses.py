"""Courses: which models learn how. A lazy table, so that looking at it imports no torch.

A course knows the default recipe of a model, and prepares what a run needs: the model, the learner, how it is judged
and what its manifest says. To add one, write a module with a `Course` and add an entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.errors import UnknownNameError
from nco_bench.solvers.models import PATH_MODELS
from nco_bench.solvers.sequences.lra_models import LRA_NETWORKS
from nco_bench.solvers.sequences.task_models import TASK_NETWORKS
from nco_bench.training.choices import Papers, no_papers

if TYPE_CHECKING:
    from torch import nn

    from nco_bench.datasets.load import Places
    from nco_bench.training.learner import Learner, Measure
    from nco_bench.training.recipes import LoopRecipe
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


@dataclass(frozen=True)
class Course:
    """How a family of models is trained.

    Attributes
    ----------
    recipe
        Default recipe of a model with overrides: ``recipe(model, {"lr": "1e-3"})``.
    prepare
        Makes everything that a run needs.
    papers
        The papers' own recipes of a model, with what in them is ours.
    """

    recipe: Callable[[str, Mapping[str, str]], LoopRecipe]
    prepare: Callable[[Assignment], Prepared]
    papers: Callable[[str], Papers] = no_papers


@dataclass(frozen=True)
class CourseEntry:
    """What is known about a course without loading it.

    Attributes
    ----------
    target
        ``module:object``.
    models
        What it trains.
    needs_data
        Whether it learns from labelled data.
    summary
        What it does, for users.
    without_asking
        Models that get it without naming it where their data fit; None for all.
    model_options
        Whether ``--config model.KEY=VALUE`` reaches its models.
    """

    target: str
    models: tuple[str, ...]
    needs_data: bool
    summary: str
    without_asking: tuple[str, ...] | None = None
    model_options: bool = False


COURSES: dict[str, CourseEntry] = {
    "supervised": CourseEntry(
        "nco_bench.training.learners.supervised_course:COURSE",
        tuple(PATH_MODELS),
        needs_data=True,
        summary="imitate labelled solutions on random pieces of them",
        model_options=True,
    ),
    "self-improved": CourseEntry(
        "nco_bench.training.learners.self_improved_course:COURSE",
        tuple(PATH_MODELS),
        needs_data=False,
        summary="improve pseudo-labels by re-construction (SIT) or sampling without replacement (SIGD), then imitate them",
        without_asking=("sit", "sigd", "sigd-lehd"),
        model_options=True,
    ),
    "policy-gradient": CourseEntry(
        "nco_bench.training.learners.policy_gradient_course:COURSE",
        ("am", "pomo", "elg"),
        needs_data=False,
        summary="policy gradient on freshly drawn routing instances, with a rollout or a shared baseline",
        model_options=True,
    ),
    "packing": CourseEntry(
        "nco_bench.training.learners.packing:COURSE",
        ("attend2pack",),
        needs_data=False,
        summary="policy gradient on the load rate of freshly drawn boxes",
        model_options=True,
    ),
    "tasks": CourseEntry(
        "nco_bench.training.learners.task_course:COURSE",
        tuple(TASK_NETWORKS),
        needs_data=False,
        summary="answer freshly drawn instances of the algorithmic task that --data names",
    ),
    "lra": CourseEntry(
        "nco_bench.training.learners.lra:COURSE",
        tuple(LRA_NETWORKS),
        needs_data=False,
        summary="classify the sequences of the Long Range Arena task that --data names",
    ),
}
"""Ways to learn by the name that ``--config learner=NAME`` takes. For a model with several the first that its data fit."""


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
        For a model that nothing trains, or a course that does not take it.
    """
    fitting = {name: entry for name, entry in COURSES.items() if model in entry.models}
    if not fitting:
        known = {m for entry in COURSES.values() for m in entry.models}
        raise UnknownNameError("model to train", model, known, "See `nco-bench list models`.")
    chosen = config.get("learner")
    if chosen is not None and chosen not in fitting:
        raise UnknownNameError(f"way to train {model}", chosen, fitting)
    usual = {n: e for n, e in fitting.items() if e.without_asking is None or model in e.without_asking}
    name = chosen or next((n for n, e in usual.items() if e.needs_data == has_data), next(iter(usual)))
    return name, load_course(fitting[name])


def load_course(entry: CourseEntry) -> Course:
    """Import a course."""
    module, _, name = entry.target.partition(":")
    course = getattr(importlib.import_module(module), name)
    assert isinstance(course, Course)
    return course
