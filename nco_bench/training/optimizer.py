"""The optimiser of a recipe: which parameters go at which rate, and which of them decay."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from nco_bench.errors import BadInputError
from nco_bench.training.muon import Muon, inside_layer
from nco_bench.training.recipes import LoopRecipe


def optimizer_of(parameters: dict[str, nn.Parameter], recipe: LoopRecipe) -> torch.optim.Optimizer:
    """Return the optimiser: scalars at their own rate; what is no matrix is not decayed unless the recipe says so.

    Adam as papers before AdamW use it (decay inside the gradient) decays all parameters alike.
    """
    alike = recipe.decay_all or recipe.optimizer == "adam"
    inner = {k for k, p in parameters.items() if recipe.optimizer == "muon" and inside_layer(k, p)}
    matrices = [p for k, p in parameters.items() if p.dim() >= 2 and k not in inner]
    vectors = [p for p in parameters.values() if p.dim() == 1]
    scalars = [p for p in parameters.values() if p.dim() == 0]
    small = recipe.weight_decay if alike else 0.0
    outside = recipe.head_lr if recipe.optimizer == "muon" and recipe.head_lr else recipe.lr
    groups = [
        {"params": matrices, "peak": outside, "weight_decay": recipe.weight_decay},
        {"params": vectors, "peak": recipe.lr, "weight_decay": small},
        {"params": scalars, "peak": recipe.scalar_lr or recipe.lr, "weight_decay": small},
    ]
    groups = [g for g in groups if g["params"]]
    if recipe.optimizer == "muon":
        if not inner:
            raise BadInputError(
                "--config optimizer=muon: this model has no matrices inside layers; use adamw."
            )
        layers = {
            "params": [parameters[k] for k in parameters if k in inner],
            "peak": recipe.lr,
            "weight_decay": recipe.weight_decay,
        }
        return Muon(
            layers, groups, lr=recipe.lr, momentum=recipe.momentum, steps=recipe.orthogonal_steps,
            betas=(0.9, recipe.beta2),
        )  # fmt: skip
    kind = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=recipe.lr, betas=(0.9, recipe.beta2), fused=True)


def leave_undecayed(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> None:
    """Move parameters that a policy wants undecayed into groups of their own, alike but for the decay."""
    wanted = {id(p) for p in parameters}
    for settings in list(optimizer.param_groups):
        kept = [p for p in settings["params"] if id(p) not in wanted]
        moved = [p for p in settings["params"] if id(p) in wanted]
        if moved:
            settings["params"] = kept
            optimizer.add_param_group({**settings, "params": moved, "weight_decay": 0.0})
    optimizer.param_groups[:] = [g for g in optimizer.param_groups if g["params"]]
