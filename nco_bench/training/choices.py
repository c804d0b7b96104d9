"""What a paper says about its training, and what in our recipe of that name is our own choice.

A recipe of the name ``paper`` has the paper's numbers and nothing that the paper does not ask for (no symmetries, no
clipping where it names none). What it leaves open must still be decided: that is said here, field by field, shown by
``nco-bench show MODEL``, and written into the manifest of trained weights with whatever else differs from the paper.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nco_bench.training.recipes import OWN_RECIPES, LoopRecipe

RUN_CONTROL = frozenset(
    {
        "learner", "compile", "checkpoint_every", "validate_every", "validation_instances", "log_every", "spike",
    }
)  # fmt: skip
"""Fields that say how a run is watched, and move no weight."""


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
    """

    recipe: LoopRecipe
    source: str
    ours: Mapping[str, str]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON values: the source, what is ours, and the numbers."""
        return {
            "source": self.source,
            "ours": dict(self.ours),
            "recipe": {k: v for k, v in dataclasses.asdict(self.recipe).items() if k not in RUN_CONTROL},
        }


Papers = Mapping[str, Paper]
"""By the name of the recipe, the first where none is named."""


def no_papers(model: str) -> Papers:
    """Return nothing: of these trainings no paper's recipe is kept."""
    return {}


def paper_of(papers: Papers, recipe: str, problem: str) -> Paper | None:
    """Return the paper's recipe that a training is held against.

    Parameters
    ----------
    papers
        Those of the model.
    recipe
        Name of the recipe that was chosen, empty for the default: the longest name that it begins with counts.
    problem
        ``tsp``, ``cvrp`` or another, which may have a recipe ``paper-PROBLEM`` of its own.
    """
    begins = [name for name in papers if recipe.startswith(name)]
    own = [name for name in papers if name == f"paper-{problem}"]
    name = max(begins, key=len) if begins else next(iter([*own, *papers]), None)
    return None if name is None else papers[name]


def departures(recipe: LoopRecipe, paper: Paper) -> dict[str, str]:
    """Return what in a recipe is not the paper's: field or choice -> what the paper has, or that it does not say."""
    published = dataclasses.asdict(paper.recipe)
    changed = {
        key: f"{value}; {'our choice for the paper' if key in paper.ours else 'the paper'}: {published[key]}"
        for key, value in dataclasses.asdict(recipe).items()
        if key not in RUN_CONTROL and key in published and value != published[key]
    }
    return {**{k: why for k, why in paper.ours.items() if k not in changed}, **changed}


_TORCH = "not stated; PyTorch's default"
_ADAMW = "not stated; PyTorch's AdamW decays biases, norms and scalars too"
_DECISIONS = "counted in updates, at the mean of 50 decisions per piece; LEHD decays per epoch"
_DIRECTION = "not stated; pieces run in either direction of the tour, at random"

DECODER = Paper(
    OWN_RECIPES["decoder"]["paper"],
    "decoder scaling, section 3 and Table 9",
    {
        "beta2": _TORCH,
        "decay_all": _ADAMW,
        "precision": "not stated; float32",
        "warmup": "none for the networks with ReZero, as B.5 implies",
        "shortest": "not stated which pieces are learned; 4 rows or more, as in LEHD, which the model derives from",
        "longest": "not stated; up to the whole closed tour, where both neighbours of the start are right",
        "length of pieces": "not stated; uniform, one for the whole batch",
        "direction of pieces": _DIRECTION,
        "walk": "not stated how much of a piece one step learns; its first decision: each instance is used once",
    },
)
WITHOUT_REZERO = Paper(
    OWN_RECIPES["decoder"]["paper-without-rezero"],
    "decoder scaling, section 3, Table 9 and appendix B.5 (model.rezero=false)",
    {key: why for key, why in DECODER.ours.items() if key != "warmup"},
)
SCARCE = Paper(
    OWN_RECIPES["decoder"]["paper-table-3"],
    "decoder scaling, section 5.2 and Table 3: 60 epochs of 0.1M instances",
    {**DECODER.ours, "steps": "60 epochs of one shard, whose last batch is smaller"},
)
PENS = Paper(
    OWN_RECIPES["pens"]["paper"],
    "PENS, section 5, training setup",
    {
        "weight_decay": _TORCH,
        "beta2": _TORCH,
        "decay_all": _ADAMW,
        "precision": "not stated; float32",
        "shortest": "pairs of neighbours leave nothing to predict and are not drawn",
        "length of pieces": "drawn per instance in the paper; here one for the whole batch, equally distributed (uniform)",
        "direction of pieces": _DIRECTION,
    },
)
LEHD = Paper(
    OWN_RECIPES["lehd"]["paper"],
    "LEHD, section 4, and its code",
    {"decay_every": _DECISIONS, "steps": "150 epochs, counted in updates as the decay is"},
)
LEHD_CVRP = Paper(
    OWN_RECIPES["lehd"]["paper-cvrp"],
    "LEHD, section 4, and its code",
    {"decay_every": _DECISIONS, "steps": "40 epochs, counted in updates as the decay is"},
)
BQ = Paper(
    OWN_RECIPES["bq"]["paper"],
    "BQ-NCO's code",
    {
        "pieces": "begin anywhere and run in either direction; those of its code are the ends of the stored tours"
    },
)
SIGD = Paper(
    OWN_RECIPES["sigd"]["paper"],
    "SIGD's code, supervised mode",
    {
        "symmetries": "the eight of the square; the official augmentation also rotates by any angle and shrinks"
    },
)
SIT_OURS = {
    "clip": "not in the paper; its code clips at 10",
    "beta2": _TORCH,
    "decay_every": "an epoch, counted in updates at the mean of 500 decisions per piece",
    "batches": "an epoch's last, smaller batch is learned too; Algorithm 4 leaves it out",
}
SIT = Paper(
    OWN_RECIPES["sit"]["paper"],
    "SIT, section 5, Algorithm 4 and Table 6",
    {
        **SIT_OURS,
        "steps": "as long as asked for; the paper's training on given labels is `paper-without-sit`",
    },
)
WITHOUT_SIT = Paper(
    OWN_RECIPES["sit"]["paper-without-sit"],
    "SIT, section 5.2: CVRP100, following LEHD",
    dict(LEHD_CVRP.ours),
)

SUPERVISED: dict[str, Papers] = {
    "decoder": {"paper": DECODER, "paper-without-rezero": WITHOUT_REZERO, "paper-table-3": SCARCE},
    "pens": {"paper": PENS},
    "coordns": {"paper": PENS},
    "lehd": {"paper": LEHD, "paper-cvrp": LEHD_CVRP},
    "bq": {"paper": BQ},
    "sigd": {"paper": SIGD},
    "sit": {"paper": SIT, "paper-without-sit": WITHOUT_SIT},
}
"""Of the supervised recipes, by the first word of a model's name."""


def supervised_papers(model: str) -> Papers:
    """Return the papers' recipes of a path model that learns from labels."""
    return SUPERVISED.get(model.partition("-")[0], {})
