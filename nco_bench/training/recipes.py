"""Recipes: every number of a training run. A model's card has its recipes; ``--config KEY=VALUE`` overrides them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from nco_bench.cards import Card, family_values, network_card
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.device import PRECISIONS
from nco_bench.training.options import parsed_text

SEE_RECIPES = (
    "'nco-bench show MODEL' prints those of its recipes; the network's own begin with model., as model.width."
)
SCHEDULES = ("cosine", "exponential", "constant", "trapezoid")
OPTIMIZERS = ("adamw", "adam", "muon")
LENGTHS = ("uniform", "seconds")
ABOUT = ("source", "ours", "also", "nodes")
"""Keys of a card's recipe that say where it is from and are no numbers of it, see `choices.Paper`."""
NETWORK = "network"
"""Key of a card's recipe with the options of the network that it goes with, as ``{ width = 256 }``."""


@dataclass(frozen=True)
class LoopRecipe:
    """What the loop needs of a recipe; courses add their own numbers to it.

    Attributes
    ----------
    learner
        The way to learn, a key of `courses.COURSES`.
    batch
        Sub-problems (instances, sequences) that are drawn at a time.
    accumulate
        Such batches whose mean gradient makes one update: what a device has no memory for at once, and for path models
        pieces of as many lengths. The way to learn counts each as an update (refilling a pool, growing batches).
    steps
        Updates in all; 0 trains until the time budget ends, and schedules then follow the clock.
    optimizer
        ``adamw``; ``adam`` with weight decay inside the gradient; ``muon`` for the matrices inside layers and AdamW for
        the rest.
    lr, scalar_lr, head_lr
        Peak learning rate; that of single scalars (ReZero weights), and with ``muon`` that of matrices outside layers
        (embeddings, a pointer's two), which AdamW moves; 0 for the same.
    weight_decay, beta2
        Of the optimiser.
    decay_all
        AdamW decays biases, norms and scalars too, as PyTorch's does by itself; otherwise matrices alone.
    momentum, orthogonal_steps
        Of Muon: momentum, and Newton-Schulz iterations.
    clip
        Largest gradient norm; 0 does not clip.
    schedule
        ``cosine`` falls to ``lr * final_lr`` at the end; ``exponential`` multiplies by `decay` every `decay_every`
        steps, the first time after `decay_first` of them (0 for `decay_every`); ``constant``; ``trapezoid`` is constant
        but for a linear fall to ``lr * final_lr`` over the share `fall` at the end.
    warmup, warmup_start
        Steps over which the learning rate rises, and the factor of the first one; 0 rises from 0.
    ema
        Decay of the moving average of the weights that is exported; 0 exports the weights themselves.
    precision, compile
        ``bf16`` autocast; ``torch.compile`` of the model's layers.
    checkpoint_every, validate_every
        Seconds between checkpoints and between validations.
    validation_instances
        Instances that are held out for validation.
    log_every
        Steps between lines of the log.
    spike
        A loss above this multiple of its running mean stops the run; 0 allows any.
    """

    learner: str = "supervised"
    batch: int = 1024
    accumulate: int = 1
    steps: int = 60_000
    optimizer: str = "adamw"
    lr: float = 1.25e-4
    scalar_lr: float = 0.0
    head_lr: float = 0.0
    weight_decay: float = 0.01
    beta2: float = 0.999
    decay_all: bool = False
    momentum: float = 0.95
    orthogonal_steps: int = 5
    clip: float = 1.0
    schedule: str = "exponential"
    decay: float = 0.997
    decay_every: int = 100
    decay_first: int = 0
    final_lr: float = 0.01
    fall: float = 0.2
    warmup: int = 0
    warmup_start: float = 0.0
    ema: float = 0.0
    precision: str = "fp32"
    compile: bool = False
    checkpoint_every: float = 180.0
    validate_every: float = 600.0
    validation_instances: int = 64
    log_every: int = 50
    spike: float = 20.0


R = TypeVar("R", bound=LoopRecipe)


@dataclass(frozen=True)
class Recipe(LoopRecipe):
    """How a path model learns from pieces of solutions; see `LoopRecipe` for the rest.

    Attributes
    ----------
    shortest, longest
        Rows of a sub-path, ends included; N + 1 stands for the whole closed tour. CVRP: the depot at the end is a row, so
        that a piece has `shortest` - 1 customers or more, the one where the vehicle stands included.
    fewest_customers
        CVRP: fewest customers of a piece, where it is not that (0).
    lengths
        How the rows of a sub-path are drawn: ``uniform``; ``seconds`` in proportion to 1 / rows, so that every length gets
        the same time and short ones more samples.
    longest_start, grow
        The longest sub-path grows from `longest_start` to `longest` over this share of the run.
    opening
        Share of batches whose length is one of the six longest: the first moves of a tour, where origin and destination
        are close to each other, are otherwise rare in training and wrong in decoding.
    batch_doubles, largest_batch
        Updates after which the batch has doubled for the first time; each further doubling takes twice as many, so that
        batches grow as the loss flattens, up to `largest_batch`. 0 keeps the batch.
    auxiliary, auxiliary_half
        Weight of the auxiliary loss: which two nodes are each node's neighbours (see `supervised`); 0 is off. Updates over
        which the weight falls to half; 0 keeps it.
    teacher, teacher_weight
        TSP: weights of a path model whose probabilities are learned; their share of the loss, the rest is the labels'.
        Empty: labels alone.
    symmetries
        Turn and mirror instances at random (x8).
    walk
        Learn every decision of a piece, one update each, from its first to its last (LEHD; SIT, Algorithm 4), instead of
        the first one alone.
    """

    shortest: int = 4
    longest: int = 101
    lengths: str = "uniform"
    longest_start: int = 101
    grow: float = 0.0
    opening: float = 0.0
    batch_doubles: int = 0
    largest_batch: int = 1024
    auxiliary: float = 0.0
    auxiliary_half: int = 0
    teacher: str = ""
    teacher_weight: float = 1.0
    symmetries: bool = True
    walk: bool = False
    fewest_customers: int = 0


def recipes_of(model: str, learner: str, kind: type[R]) -> dict[str, R]:
    """Return the recipes that a model's card has for a way to learn, the default first.

    Raises
    ------
    UnknownNameError
        For a model without a card, or a field that the recipe lacks.
    """
    known = network_card(model)
    return {name: _built(known, learner, name, kind) for name in known.recipes.get(learner, {})}


def _built(known: Card, learner: str, name: str, kind: type[R]) -> R:
    values = {key: v for key, v in recipe_of(known, learner, name).items() if key not in (*ABOUT, NETWORK)}
    own = {f.name for f in dataclasses.fields(kind)}
    for key in values:
        if key not in own:
            raise UnknownNameError(f"field of {known.name}'s recipe {name}", key, own)
    return kind(**{**values, "learner": learner})


def network_of(model: str, learner: str, config: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the network that the chosen recipe trains, as ``--config model.KEY=VALUE`` gives them."""
    known = network_card(model)
    recipes = known.recipes.get(learner, {})
    name = config.get("recipe", next(iter(recipes), ""))
    found = recipe_of(known, learner, name).get(NETWORK, {}) if name in recipes else {}
    return {key: str(value) for key, value in found.items()}


def recipe_for(model: str, config: Mapping[str, str]) -> Recipe:
    """Return the supervised recipe of a path model with overrides.

    Parameters
    ----------
    model
        Name of the model.
    config
        ``KEY=VALUE`` strings; the key ``recipe`` chooses a recipe (``small``, the default, or ``paper``).

    Raises
    ------
    UnknownNameError
        For an unknown key or recipe, with the nearest names.
    BadInputError
        For a value of the wrong type or out of range.
    """
    recipe = overridden(chosen(recipes_of(model, "supervised", Recipe), config), config)
    check_pieces(recipe)
    return recipe


def chosen(recipes: Mapping[str, R], config: Mapping[str, str]) -> R:
    """Return the recipe that the key ``recipe`` names, the first by default; raises `UnknownNameError`."""
    name = config.get("recipe", next(iter(recipes)))
    if name not in recipes:
        raise UnknownNameError("recipe", name, recipes)
    return recipes[name]


def overridden(recipe: R, config: Mapping[str, str]) -> R:
    """Replace fields of any recipe by ``KEY=VALUE`` strings (``recipe`` is ignored), and check what the loop needs.

    Raises
    ------
    UnknownNameError, BadInputError
        For an unknown key, a value of the wrong type or out of range.
    """
    defaults = dataclasses.asdict(recipe)
    parsed: dict[str, Any] = {}
    for key, text in config.items():
        if key == "recipe":
            continue
        if key not in defaults:
            raise UnknownNameError("training option", key, [*defaults, "recipe"], SEE_RECIPES)
        parsed[key] = parsed_text(key, text, type(defaults[key]))
    changed = dataclasses.replace(recipe, **parsed)
    _check(changed)
    return changed


def _check(recipe: LoopRecipe) -> None:
    for key in ("batch", "accumulate", "lr", "log_every", "decay_every"):
        if not getattr(recipe, key) > 0:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected more than 0.")
    for key, value in dataclasses.asdict(recipe).items():
        if isinstance(value, int | float) and value < 0:
            raise BadInputError(f"--config {key}={value:g}: expected 0 or more.")
    for key, allowed in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("optimizer", OPTIMIZERS)):
        if getattr(recipe, key) not in allowed:
            raise UnknownNameError(f"--config {key}", getattr(recipe, key), allowed)
    for key in ("final_lr", "warmup_start"):
        if getattr(recipe, key) > 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key):g}: expected 0 to 1.")
    for key in ("ema", "momentum", "beta2"):
        if getattr(recipe, key) >= 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key):g}: expected less than 1.")
    if recipe.schedule == "trapezoid" and not 0 < recipe.fall <= 1:
        raise BadInputError(f"--config fall={recipe.fall:g}: expected more than 0, up to 1.")


def check_pieces(recipe: Recipe) -> None:
    """Check the numbers that say which pieces of solutions are drawn; raises `BadInputError`."""
    if not 3 <= recipe.shortest <= recipe.longest_start <= recipe.longest:
        raise BadInputError(
            f"--config shortest={recipe.shortest} longest_start={recipe.longest_start} longest={recipe.longest}: "
            "expected 3 <= shortest <= longest_start <= longest."
        )
    if recipe.fewest_customers and not 2 <= recipe.fewest_customers <= recipe.longest_start:
        raise BadInputError(
            f"--config fewest_customers={recipe.fewest_customers} longest_start={recipe.longest_start}: "
            "expected 0, or 2 <= fewest_customers <= longest_start."
        )
    if recipe.lengths not in LENGTHS:
        raise UnknownNameError("--config lengths", recipe.lengths, LENGTHS)
    for key in ("grow", "opening", "teacher_weight"):
        if getattr(recipe, key) > 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key):g}: expected 0 to 1.")
    if recipe.teacher_weight != 1 and not recipe.teacher:
        raise BadInputError(
            f"--config teacher_weight={recipe.teacher_weight:g}: is a teacher's share of the loss; name one with "
            "--config teacher=WEIGHTS, or leave it out."
        )


def rate(recipe: LoopRecipe, step: int, fraction: float) -> float:
    """Return the factor on the peak learning rate.

    Parameters
    ----------
    step
        Updates done so far.
    fraction
        Share of the run that is done, 0 to 1.
    """
    rising = _risen(recipe, step)
    if recipe.schedule == "constant":
        return rising
    if recipe.schedule == "exponential":
        later = recipe.decay_every - (recipe.decay_first or recipe.decay_every)
        return rising * recipe.decay ** max(0, (step + later) // recipe.decay_every)
    if recipe.schedule == "trapezoid":
        left = min(1.0, (1.0 - min(1.0, fraction)) / recipe.fall)
        return rising * (recipe.final_lr + (1.0 - recipe.final_lr) * left)
    falling = 0.5 * (1.0 + math.cos(math.pi * min(1.0, fraction)))
    return rising * (recipe.final_lr + (1.0 - recipe.final_lr) * falling)


def _risen(recipe: LoopRecipe, step: int) -> float:
    """Return how far the warm-up has brought the learning rate."""
    if step >= recipe.warmup:
        return 1.0
    if recipe.warmup_start:
        return recipe.warmup_start + (1 - recipe.warmup_start) * step / recipe.warmup
    return (step + 1) / recipe.warmup


def batch_now(recipe: Recipe, step: int) -> int:
    """Return how many sub-paths update number `step` learns from: doubled after k, 3k, 7k, ... updates."""
    if not recipe.batch_doubles:
        return recipe.batch
    doublings = (step // recipe.batch_doubles + 1).bit_length() - 1
    return max(recipe.batch, min(recipe.batch << doublings, recipe.largest_batch))


def auxiliary_now(recipe: Recipe, step: int) -> float:
    """Return the weight of the auxiliary loss in update number `step`."""
    if not recipe.auxiliary_half:
        return recipe.auxiliary
    return float(recipe.auxiliary * 0.5 ** (step / recipe.auxiliary_half))


def longest_now(recipe: Recipe, fraction: float) -> int:
    """Return the length of the longest sub-path at this share of the run."""
    if recipe.grow <= 0 or fraction >= recipe.grow:
        return recipe.longest
    return recipe.longest_start + int((recipe.longest - recipe.longest_start) * fraction / recipe.grow)


def recipe_of(known: Card, learner: str, name: str) -> dict[str, Any]:
    """Return the fields of a recipe, those of the recipes that it is like included.

    Raises
    ------
    UnknownNameError
        For a recipe that the card lacks.
    BadInputError
        For recipes that are like each other in a circle.
    """
    own = known.recipes.get(learner, {})
    if name not in own:
        raise UnknownNameError("recipe", name, own)
    chain: list[Mapping[str, Any]] = []
    shared = family_values(known.family).get("recipes", {}).get(learner, {})
    here: Mapping[str, Any] | None = own[name]
    seen = [name]
    while here is not None:
        chain.append(here)
        above = here.get("like")
        if above is None:
            break
        here = shared.get(above) if above in seen else own.get(above, shared.get(above))
        if here is None or len(chain) > len(own) + len(shared):
            raise BadInputError(f"card of {known.name}: recipe {name} is like {above!r}, which is no recipe.")
        seen.append(above)
    merged = {key: value for layer in reversed(chain) for key, value in layer.items() if key != "like"}
    if "source" not in own[name]:
        for key in ABOUT:
            merged.pop(key, None)
    return merged
