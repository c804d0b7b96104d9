"""Training of EIE's lambda network: keep the expected entropy of attention where it was in training (EIE, Algorithm 2).

Not a learner of the training loop: there are no instances, no policy and no validation gap, the whole run takes a minute on
one CPU core. Two recipes. ``paper`` is Algorithm 2 as printed; it does not say how many queries estimate H, here four for
the longest length and more for shorter ones. Its loss squares a noisy estimate, whose variance falls with lambda's error in
one direction only, and its lengths are uniform, so that few are near N: the curve bends away there, as the published one
does. ``ours`` multiplies two independent estimates instead of squaring one (no bias), draws ln n uniformly, and takes more
steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.eie import EieConfig, LambdaNetwork, build, sampled_entropy, weights_name
from nco_bench.nn.entropy import exact_scale
from nco_bench.training.manifest import manifest_of
from nco_bench.training.trainer import Progress
from nco_bench.weights.manifest import TrainingData, Validation
from nco_bench.weights.shelf import export
from nco_bench.weights.store import SUFFIX, WeightsFile

PAPER_STEPS, PAPER_BATCH = 500, 256
LENGTHS = ("uniform", "log-uniform")


@dataclass(frozen=True)
class EieRecipe:
    """All numbers of a training.

    Attributes
    ----------
    steps, batch, lr
        Updates, lengths per update, first learning rate of Adam.
    final_lr
        Share of the learning rate at the end, reached exponentially; the paper's 0.99 per step over 500 steps is 0.0066.
    rows
        Monte-Carlo rows per estimate at the longest length; two independent estimates are made.
    unbiased
        Multiply their errors instead of squaring their mean's.
    lengths
        ``uniform`` or ``log-uniform`` between N + 1 and N_max.
    goal_rows
        Rows of the estimate of H(N, 1 / sqrt(d)).
    """

    steps: int = 2000
    batch: int = 64
    lr: float = 3e-3
    final_lr: float = 0.01
    rows: int = 1
    unbiased: bool = True
    lengths: str = "log-uniform"
    goal_rows: int = 200_000


RECIPES = {
    "ours": EieRecipe(),
    "paper": EieRecipe(PAPER_STEPS, PAPER_BATCH, 1e-3, 0.99**PAPER_STEPS, 2, False, "uniform"),
}


def train_curve(
    config: EieConfig,
    recipe: EieRecipe | None = None,
    seed: int = 1234,
    device: str = "cpu",
    report: Callable[[int, float], None] | None = None,
) -> LambdaNetwork:
    """Train the network for one (d, N).

    Parameters
    ----------
    config
        Head width, lengths and sizes of the network.
    recipe
        All numbers; ``RECIPES["ours"]`` if None.
    seed
        Of the first weights and all draws.
    device
        ``cpu``, ``cuda`` or ``cuda:i``.
    report
        Called with the step and the mean of |H - goal| over the batch every hundred steps.

    Raises
    ------
    NcoBenchError
        For impossible values.
    """
    recipe = recipe or RECIPES["ours"]
    _check(config, recipe)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(config).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    goal = _goal(config, recipe.goal_rows, generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.lr)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, recipe.final_lr ** (1 / recipe.steps))
    for step in range(recipe.steps):
        lengths = _draw_lengths(config, recipe, generator)
        entropy = sampled_entropy(lengths, network(lengths.float()), config.head_dim, recipe.rows, generator)
        error = entropy - goal
        loss = error.prod(dim=1).mean() if recipe.unbiased else error.mean(dim=1).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if report is not None and (step + 1) % 100 == 0:
            report(step + 1, float(error.detach().mean(dim=1).abs().mean()))
    return network.cpu().eval()


def _check(config: EieConfig, recipe: EieRecipe) -> None:
    if not 1 <= config.training_size < config.largest_size:
        raise BadInputError(
            f"eie: N={config.training_size}, N_max={config.largest_size}: expected 1 <= N < N_max."
        )
    if min(recipe.steps, recipe.batch, recipe.rows, recipe.goal_rows, config.head_dim) < 1 or recipe.lr <= 0:
        raise BadInputError("eie: steps, batch, rows, goal_rows, head_dim and lr must be above 0.")
    if recipe.lengths not in LENGTHS:
        raise UnknownNameError("distribution of lengths", recipe.lengths, LENGTHS)


def _goal(config: EieConfig, rows: int, generator: torch.Generator) -> float:
    """Estimate H(N, 1 / sqrt(d)) once, in parts that fit into memory."""
    part = max(1, 1_000_000 // config.training_size)
    lengths = torch.tensor([config.training_size], device=generator.device)
    scale = torch.full((1,), 1 / math.sqrt(config.head_dim), device=generator.device)
    total, done = 0.0, 0
    while done < rows:
        estimate = sampled_entropy(lengths, scale, config.head_dim, part, generator)
        total += 2 * part * float(estimate.double().mean())
        done += 2 * part
    return total / done


def _draw_lengths(config: EieConfig, recipe: EieRecipe, generator: torch.Generator) -> Tensor:
    """Draw whole lengths above N and up to N_max, ``(B,)``."""
    low, high, device = config.training_size, config.largest_size, generator.device
    if recipe.lengths == "uniform":
        return torch.randint(low + 1, high + 1, (recipe.batch,), generator=generator, device=device)
    draw = torch.rand(recipe.batch, generator=generator, device=device)
    return (low * (high / low) ** draw).long().clamp(low + 1, high)


def departures(network: LambdaNetwork, count: int = 200) -> Tensor:
    """Return lambda / exact lambda - 1 at `count` lengths from N to N_max, evenly spaced in ln n."""
    config = network.config
    lengths = torch.logspace(
        0, math.log10(config.largest_size / config.training_size), count, dtype=torch.float64
    )
    lengths = (lengths * config.training_size).round()
    exact = [exact_scale(n, config.head_dim, config.training_size) for n in lengths.tolist()]
    with torch.inference_mode():
        return network.double()(lengths) / torch.tensor(exact) - 1


@dataclass
class _Run:
    """What a manifest is made of, in place of a `Trainer`."""

    policy: LambdaNetwork
    recipe: EieRecipe
    progress: Progress
    configuration: dict[str, Any]


def train_and_export(
    config: EieConfig, folder: Path, recipe: EieRecipe | None = None, seed: int = 1234
) -> WeightsFile:
    """Train a curve and write its weights with a manifest, under the name by which ``--logit-scale eie`` finds it."""
    recipe, started = recipe or RECIPES["ours"], time.monotonic()
    network = train_curve(config, recipe, seed)
    name, samples = weights_name(config.head_dim, config.training_size), recipe.steps * recipe.batch
    run = _Run(
        network,
        recipe,
        Progress(recipe.steps, samples, seconds=time.monotonic() - started),
        {"model": "eie", "problem": "any", "seed": seed},
    )
    manifest = manifest_of(
        run,
        name,
        TrainingData("standard normal queries and keys", config.training_size, 0, label_solver="none"),
        PAPER_STEPS * PAPER_BATCH,
        validation=(_measured(network),),
        notes="lambda(n) of EIE for --logit-scale eie. Not the paper's recipe: the loss multiplies two independent "
        "estimates, ln n is drawn uniformly, epsilon is below the exact slope, and there is a Gauss rule per doubling of n.",
        digits=4,
    )
    return export(network.float().state_dict(), manifest, folder / f"{name}{SUFFIX}")


def _measured(network: LambdaNetwork) -> Validation:
    departure = 100 * departures(network).abs()
    on = "largest |lambda / exact lambda - 1| from N to N_max (mean as the interval); no gap of tours"
    return Validation(round(float(departure.max()), 3), round(float(departure.mean()), 3), len(departure), on)
