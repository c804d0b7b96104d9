"""Recipes: every number of a training run, with a default per model that ``--config KEY=VALUE`` overrides.

Only what the paper states, and what a small budget asks for, is decided here; see each recipe's comment.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.training.options import parsed_text
from nco_bench.weights.manifest import SIT_DECISIONS

SCHEDULES = ("cosine", "exponential", "constant", "trapezoid")
PRECISIONS = ("fp32", "bf16")
OPTIMIZERS = ("adamw", "adam", "muon")
LENGTHS = ("uniform", "seconds")


@dataclass(frozen=True)
class LoopRecipe:
    """What the loop needs of a recipe; courses add their own numbers to it.

    Attributes
    ----------
    learner
        The way to learn, a key of `courses.COURSES`.
    batch
        Sub-problems (instances, sequences) per update.
    steps
        Updates in all; 0 trains until the time budget ends, and schedules then follow the clock.
    optimizer
        ``adamw``; ``adam`` with weight decay inside the gradient; ``muon`` for the matrices inside layers and AdamW for
        the rest.
    lr, scalar_lr
        Peak learning rate; that of single scalars (ReZero weights), 0 for the same.
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
        steps; ``constant``; ``trapezoid`` is constant but for a linear fall to ``lr * final_lr`` over the share `fall`
        at the end.
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
    steps: int = 60_000
    optimizer: str = "adamw"
    lr: float = 1.25e-4
    scalar_lr: float = 0.0
    weight_decay: float = 0.01
    beta2: float = 0.999
    decay_all: bool = False
    momentum: float = 0.95
    orthogonal_steps: int = 5
    clip: float = 1.0
    schedule: str = "exponential"
    decay: float = 0.997
    decay_every: int = 100
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
        Rows of a sub-path, ends included; N + 1 stands for the whole closed tour.
    lengths
        How the rows of a sub-path are drawn: ``uniform``; ``seconds`` in proportion to 1 / rows, so that every length gets
        the same time and short ones more samples.
    longest_start, grow
        The longest sub-path grows from `longest_start` to `longest` over this share of the run.
    opening
        Share of batches whose length is one of the six longest: the first moves of a tour, where origin and destination
        are close to each other, are otherwise rare in training and wrong in decoding.
    auxiliary
        Weight of the auxiliary loss: which two nodes are each node's neighbours (see `supervised`); 0 is off.
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
    auxiliary: float = 0.0
    symmetries: bool = True
    walk: bool = False


PAPER_DECODER = Recipe(clip=0.0, decay_all=True, warmup_start=0.1, symmetries=False)
"""Decoder scaling, section 3 and appendix C: AdamW, weight decay 0.01, batch 1024, 1.25e-4 x 0.997 every 100 steps."""

PAPER_WITHOUT_REZERO = dataclasses.replace(PAPER_DECODER, warmup=50)
"""Decoder scaling, appendix B.5, for ``model.rezero=false``: 50 steps of warm-up from a tenth of the learning rate."""
PAPER_SCARCE = dataclasses.replace(PAPER_DECODER, steps=60 * 98)
"""Decoder scaling, Table 3: 60 epochs of 0.1M instances, 98 batches each."""

SMALL_DECODER = Recipe(
    batch=32,
    steps=0,
    lr=1e-3,
    scalar_lr=3e-3,
    beta2=0.98,
    schedule="cosine",
    warmup=20,
    ema=0.999,
    longest_start=25,
    grow=0.5,
    auxiliary=0.2,
)
"""For hours of a CPU instead of days of GPUs: small batches, short sub-paths first, a dense auxiliary loss."""

FLAGSHIP = Recipe(
    batch=32,
    steps=0,
    optimizer="muon",
    lr=3e-3,
    scalar_lr=3e-3,
    beta2=0.99,
    schedule="constant",
    warmup=200,
    ema=0.999,
    lengths="seconds",
    auxiliary=0.2,
)
"""For weeks of a CPU: Muon at a constant rate without end; copies that fall are branched off (see docs/training.md)."""

PAPER_PENS = Recipe(
    batch=1024, steps=1_000_000, lr=1e-4, clip=0.0, decay_all=True, schedule="cosine", final_lr=0.1, shortest=3,
    symmetries=False,
)  # fmt: skip
"""PENS, section 5: AdamW, batch 1024, 1M steps, 1e-4 falling to 1e-5 by a cosine."""

PAPER_LEHD = Recipe(
    batch=1024, steps=7_330_000, optimizer="adam", lr=1e-4, weight_decay=0.0, clip=0.0, decay=0.97,
    decay_every=48_900, longest=100, longest_start=100, symmetries=False, walk=True,
)  # fmt: skip
"""LEHD, section 4: Adam at 1e-4, x0.97 per epoch, 150 epochs of 1M instances in batches of 1024, no augmentation.

It updates after each of the 50 decisions (on average) of a piece, so an epoch is 977 x 50 updates.
"""

PAPER_LEHD_CVRP = dataclasses.replace(PAPER_LEHD, steps=1_955_000, decay=0.9)
"""LEHD for the CVRP: x0.9 per epoch, 40 epochs."""

PAPER_BQ = Recipe(
    batch=512, steps=1_953_000, optimizer="adam", lr=2.5e-4, weight_decay=0.0, clip=0.0, decay=0.99,
    decay_every=97_700, shortest=3, longest=100, longest_start=100, symmetries=False,
)  # fmt: skip
"""BQ-NCO's code: Adam at 2.5e-4, x0.99 every 50 epochs, 1000 epochs of 1M instances in batches of 512, 3..N rows."""

PAPER_SIGD = Recipe(
    batch=1024, steps=100_000, optimizer="adam", lr=2e-4, weight_decay=0.0, clip=0.0, schedule="constant"
)
"""SIGD's supervised mode: Adam at 2e-4 without decay, 100 epochs of 1000 batches of 1024, x8 symmetries.

The official augmentation also rotates by a random angle and shrinks; that is left out.
"""

PAPER_SIT = Recipe(
    batch=256, steps=0, optimizer="adam", lr=1e-4, weight_decay=0.0, clip=10.0, decay=0.97,
    decay_every=79 * SIT_DECISIONS, longest=1000, longest_start=1000, symmetries=False, walk=True,
)  # fmt: skip
"""SIT's Algorithm 4 on labels at hand: Adam at 1e-4, x0.97 per epoch of 20,000 instances in batches of 256.

The paper's own supervised training, "w/o SIT" in its Table 3, is LEHD's: ``paper-without-sit``.
"""

SMALL_STEADY = dataclasses.replace(SMALL_DECODER, lr=4e-4, auxiliary=0.0, warmup=100)
"""Small budgets for networks that start with attention switched on, and bear smaller steps only."""

RECIPES: dict[str, Recipe] = {
    "small": SMALL_DECODER,
    "paper": PAPER_DECODER,
    "flagship": FLAGSHIP,
}
"""Recipes of decoder-only models, which others have where they have none of their own."""

OWN_RECIPES: dict[str, dict[str, Recipe]] = {
    "decoder": {
        "small": SMALL_DECODER,
        "paper": PAPER_DECODER,
        "paper-without-rezero": PAPER_WITHOUT_REZERO,
        "paper-table-3": PAPER_SCARCE,
    },
    "pens": {"small": SMALL_DECODER, "paper": PAPER_PENS},
    "coordns": {"small": SMALL_DECODER, "paper": PAPER_PENS},
    "lehd": {
        "small": dataclasses.replace(SMALL_STEADY, auxiliary=0.2),
        "paper": PAPER_LEHD,
        "paper-cvrp": PAPER_LEHD_CVRP,
    },
    "bq": {"small": SMALL_DECODER, "paper": PAPER_BQ},
    "sigd": {"small": dataclasses.replace(SMALL_DECODER, auxiliary=0.0), "paper": PAPER_SIGD},
    "sit": {
        "small": dataclasses.replace(SMALL_STEADY, auxiliary=0.2),
        "paper": PAPER_SIT,
        "paper-without-sit": PAPER_LEHD_CVRP,
    },
}
"""Recipes by the first word of a model's name; the first of each is the default."""


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
    recipe = overridden(chosen(RECIPES | OWN_RECIPES.get(model.partition("-")[0], {}), config), config)
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
            raise UnknownNameError("training option", key, [*defaults, "recipe"])
        parsed[key] = parsed_text(key, text, type(defaults[key]))
    changed = dataclasses.replace(recipe, **parsed)
    _check(changed)
    return changed


def _check(recipe: LoopRecipe) -> None:
    for key, value in dataclasses.asdict(recipe).items():
        if isinstance(value, int | float) and value < 0:
            raise BadInputError(f"--config {key}={value:g}: expected 0 or more.")
    for key in ("batch", "lr", "log_every", "decay_every"):
        if not getattr(recipe, key) > 0:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected more than 0.")
    for key, allowed in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("optimizer", OPTIMIZERS)):
        if getattr(recipe, key) not in allowed:
            raise UnknownNameError(f"--config {key}", getattr(recipe, key), allowed)
    for key in ("final_lr", "warmup_start"):
        if getattr(recipe, key) > 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key):g}: expected 0 to 1.")
    for key in ("ema", "momentum"):
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
    if recipe.lengths not in LENGTHS:
        raise UnknownNameError("--config lengths", recipe.lengths, LENGTHS)
    for key in ("grow", "opening"):
        if getattr(recipe, key) > 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key):g}: expected 0 to 1.")


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
        return rising * recipe.decay ** (step // recipe.decay_every)
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


def longest_now(recipe: Recipe, fraction: float) -> int:
    """Return the length of the longest sub-path at this share of the run."""
    if recipe.grow <= 0 or fraction >= recipe.grow:
        return recipe.longest
    return recipe.longest_start + int((recipe.longest - recipe.longest_start) * fraction / recipe.grow)
