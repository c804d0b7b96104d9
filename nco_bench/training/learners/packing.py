"""Learning to pack by policy gradient (attend2pack, section 7; EIE, section 5): REINFORCE on the load rate.

Each update draws fresh boxes, packs them with sampled actions, and raises the log-probability of both policies'
choices by one advantage. The cost is ``3 (1 - load rate)``. Two baselines:

- ``rollout``, the papers': greedy packings of the best weights so far, replaced after every `epoch_steps` updates when a
  one-sided paired test at level 0.05 finds the present weights better on `rollout_instances` fresh instances; where it
  finds them worse (p > 0.95) the learning rate shrinks (EIE, section 5);
- ``samples``: each instance is packed several times, and compared with the mean of its other packings. It needs no second
  policy and works from the first update, which is what a budget of minutes asks for.

Not here: the prioritised oversampling of attend2pack (off in EIE).
"""

from __future__ import annotations

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.cards import network_card
from nco_bench.datasets.generate import generate
from nco_bench.datasets.packing import BINS, parse_bin
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.nn.build import build_path_policy, model_config
from nco_bench.nn.logit_scale import resolved
from nco_bench.problems import bpp3d
from nco_bench.problems.bpp3d import BPP3DInstance
from nco_bench.solvers.decoding.search import sampling
from nco_bench.solvers.packing.decode import Choose, best_choice, decode_packing, roll_out
from nco_bench.solvers.packing.extreme_points import pack_at_extreme_points
from nco_bench.training.courses import Assignment, Course, Prepared
from nco_bench.training.learner import Loss, Measure
from nco_bench.training.manifest import last_validation, manifest_of
from nco_bench.training.options import checked_options, prefixed
from nco_bench.training.recipes import LoopRecipe
from nco_bench.training.trainer import Trainer
from nco_bench.weights.manifest import Manifest, TrainingData

BASELINES = ("samples", "rollout")
COST_FACTOR = 3.0
LEVEL = 0.05
SMALLEST_SIDE, LARGEST_SIDE = 10, 50
VALIDATION_SEED = 4321
PAPER_PACKINGS = 500 * 10 * 64
"""EIE: 500 epochs of 10 updates with 64 instances, of 100 boxes, or of 120 where heads are `WIDE_HEAD` wide (Table 6)."""

WIDE_HEAD = 32


@dataclass(frozen=True)
class PackingRecipe(LoopRecipe):
    """How attend2pack learns; see `LoopRecipe` for the rest.

    Attributes
    ----------
    boxes
        Boxes per training instance.
    bin
        Base of the bin, LENGTHxWIDTH.
    from_lowest
        Of the model: count heights from the lowest point.
    baseline
        ``samples`` or ``rollout``.
    samples
        Packings per instance with ``samples``; `batch` counts packings in both cases.
    epoch_steps, rollout_instances
        ``rollout``: updates between comparisons, and instances that they use.
    shrink
        ``rollout``: factor of the learning rate where the present weights are significantly worse; 1 leaves it.
    logit_scale
        Factor of attention logits while training, ``NAME`` or ``NAME:at=PLACE`` (EIE's rivals are trained with theirs); `run
        --logit-scale` has to name it again.
    """

    boxes: int = 20
    bin: str = BINS[0]
    from_lowest: bool = False
    baseline: str = "samples"
    samples: int = 8
    epoch_steps: int = 10
    rollout_instances: int = 2048
    shrink: float = 1.0
    logit_scale: str = "none"


class PackingLearner:
    """REINFORCE on freshly drawn boxes; a `Learner` for the training loop."""

    def __init__(self, policy: nn.Module, recipe: PackingRecipe, seed: int) -> None:
        self.policy, self.recipe, self.seed = policy, recipe, seed
        self.extra = nn.ModuleDict()
        self.best: nn.Module | None = None
        self.rate = 1.0
        self.optimizer: torch.optim.Optimizer | None = None
        if recipe.baseline == "rollout":
            self.best = copy.deepcopy(policy).requires_grad_(False).eval()

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """Let the learner shrink the learning rate of this optimiser, as `PackingRecipe.shrink` says."""
        self.optimizer = optimizer

    def _shrink(self, factor: float) -> None:
        self.rate *= factor
        for group in self.optimizer.param_groups if self.optimizer is not None else ():
            group["peak"] *= factor

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the baseline policy."""
        return {} if self.best is None else dict(self.best.state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        if self.best is not None:
            self.best.load_state_dict(tensors)

    def position(self) -> dict[str, Any]:
        """Return the seed, which with the number of an update decides its boxes, and by what the learning rate shrank."""
        return {"seed": self.seed, "rate": self.rate}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Refuse to go on with other data; raises `BadInputError`."""
        if position.get("seed") != self.seed and not adopt:
            raise BadInputError(f"The run drew its boxes with seed {position.get('seed')}, not {self.seed}.")
        self._shrink(position.get("rate", 1.0) / self.rate)

    def loss(self, step: int, fraction: float) -> Loss:
        """Pack one batch with sampled actions and return the policy-gradient loss; reports the mean cost."""
        recipe = self.recipe
        if recipe.baseline == "rollout" and step and step % recipe.epoch_steps == 0:
            self._compare(step)
        samples = recipe.samples if recipe.baseline == "samples" else 1
        sides = self.draw(step, recipe.batch // samples)
        encoded = self.policy.encode(sides)  # type: ignore[operator]
        lanes = sides
        if samples > 1:
            encoded, lanes = encoded.repeated(samples), sides.repeat_interleave(samples, dim=0)
        seeds = torch.arange(len(sides), device=sides.device) + (self.seed * 2**20 + step) * 2**16
        choose = _without_gradient(sampling(seeds, 0, samples))
        packed = roll_out(self.policy, encoded, lanes, choose, samples, log_prob=True)
        cost = self.costs(lanes, packed.height)
        advantage = cost - self._baseline(sides, cost, samples)
        assert packed.log_prob is not None
        total = COST_FACTOR * (advantage.detach() * packed.log_prob).mean()
        return Loss(total, cost.mean(), len(lanes))

    def draw(self, step: int, count: int, stream: int = 0) -> Tensor:
        """Return ``(count, N, 3)`` sides in ascending order, the same for the same step."""
        rng = np.random.default_rng((self.seed, stream, step))
        sides = rng.integers(SMALLEST_SIDE, LARGEST_SIDE + 1, (count, self.recipe.boxes, 3))
        return torch.from_numpy(np.sort(sides, axis=2)).to(next(self.policy.parameters()).device)

    def costs(self, sides: Tensor, height: Tensor) -> Tensor:
        """Return 1 - utility, ``(R,)``."""
        length, width = (int(side) for side in self.recipe.bin.split("x"))
        return 1 - sides.double().prod(2).sum(1).div(height.double() * length * width).float()

    def _baseline(self, sides: Tensor, cost: Tensor, samples: int) -> Tensor:
        if self.recipe.baseline == "samples":
            groups = cost.view(-1, samples)
            return ((groups.sum(1, keepdim=True) - groups) / (samples - 1)).flatten()
        return self._greedy(self.best, sides)

    @torch.no_grad()
    def _greedy(self, policy: Any, sides: Tensor) -> Tensor:
        costs = []
        for part in sides.split(self.recipe.batch):
            costs.append(self.costs(part, roll_out(policy, policy.encode(part), part, best_choice).height))
        return torch.cat(costs)

    def _compare(self, step: int) -> None:
        """Make the present weights the baseline if they are significantly better, and learn slower if they are worse."""
        sides = self.draw(step, self.recipe.rollout_instances, stream=1)
        better = self._greedy(self.best, sides) - self._greedy(self.policy, sides)
        p = p_value(better.cpu().numpy())
        if p < LEVEL and self.best is not None:
            self.best.load_state_dict(self.policy.state_dict())
        elif p > 1 - LEVEL:
            self._shrink(self.recipe.shrink)


def _without_gradient(choose: Choose) -> Choose:
    return lambda logits, step: choose(logits.detach(), step)


def p_value(differences: NDArray[np.floating]) -> float:
    """Return the one-sided p-value of a paired t-test that the mean difference is above zero; 0.5 where all are zero."""
    from scipy import stats

    if not differences.any():
        return 0.5
    return float(stats.ttest_1samp(differences, 0.0, alternative="greater").pvalue)


def checked(model: str, recipe: PackingRecipe) -> PackingRecipe:
    """Check a recipe and complete it; raises `UnknownNameError` and `BadInputError` for what makes no sense."""
    scale = resolved(recipe.logit_scale, glimpse=network_card(model).glimpse, model=model)
    recipe = dataclasses.replace(recipe, bin=parse_bin(recipe.bin), logit_scale=scale)
    if recipe.baseline not in BASELINES:
        raise UnknownNameError("--config baseline", recipe.baseline, BASELINES)
    if recipe.baseline == "samples" and (recipe.samples < 2 or recipe.batch % recipe.samples):
        raise BadInputError(
            f"--config samples={recipe.samples} batch={recipe.batch}: expected 2 samples or more that divide the batch."
        )
    for key in ("boxes", "epoch_steps", "rollout_instances", "validation_instances"):
        if getattr(recipe, key) < 1:
            raise BadInputError(f"--config {key}={getattr(recipe, key)}: expected 1 or more.")
    if not 0 < recipe.shrink <= 1:
        raise BadInputError(f"--config shrink={recipe.shrink:g}: expected above 0, to 1.")
    return recipe


@dataclass(frozen=True)
class HeldOut:
    """Validation instances with the load rates of the extreme-point heuristic."""

    instances: tuple[BPP3DInstance, ...]
    reference: NDArray[np.float64]
    sides: Tensor

    @staticmethod
    def of(recipe: PackingRecipe) -> HeldOut:
        """Generate them; their seed is not used in training."""
        made = generate("bpp3d", recipe.boxes, recipe.validation_instances, recipe.bin, VALIDATION_SEED)
        instances = tuple(i for i in made if isinstance(i, BPP3DInstance))
        rates = []
        for instance in instances:
            order = np.argsort(-instance.boxes.prod(1), kind="stable")
            rows = pack_at_extreme_points(instance.boxes, instance.base, order)
            rates.append(bpp3d.score(instance, rows.ravel()))
        sides = torch.from_numpy(np.sort(np.stack([i.boxes for i in instances]), axis=2))
        return HeldOut(instances, np.array(rates), sides)

    def rates(self, policy: nn.Module) -> NDArray[np.float64]:
        """Return the greedy load rates of a policy in percent."""
        packed = decode_packing(policy, self.sides, torch.arange(len(self.sides)))
        volume = self.sides.double().prod(2).sum(1).numpy()
        area = float(np.prod(self.instances[0].base))
        return 100 * volume / (area * packed.height.cpu().double().numpy())

    def measure(self, trainer: Trainer) -> Measure:
        """Return by how many percent the load rates of the run's weights are below those of the heuristic."""
        with trainer.shipping() as policy:
            return Measure.of(100 * (self.reference - self.rates(policy)) / self.reference)


def prepare(assignment: Assignment) -> Prepared:
    """Build the policy, the learner and the instances it is judged on."""
    recipe, seed = assignment.recipe, assignment.seed
    if assignment.data or assignment.validation is not None:
        raise BadInputError(f"{assignment.model} learns from boxes that it draws itself; leave --data out.")
    if assignment.problem not in (None, "bpp3d"):
        raise BadInputError(f"{assignment.model} packs boxes (bpp3d), --problem says {assignment.problem}.")
    length, width = (int(side) for side in recipe.bin.split("x"))
    fixed = {
        "bin_length": length, "bin_width": width, "training_size": recipe.boxes, "from_lowest": recipe.from_lowest,
    }  # fmt: skip
    decided = {
        "problem": "--problem", "bin_length": "bin=LxW", "bin_width": "bin=LxW", "training_size": "boxes=N",
        "from_lowest": "from_lowest=true",
    }  # fmt: skip
    options = checked_options(model_config(assignment.model, "bpp3d"), assignment.options, decided)
    policy = build_path_policy(
        assignment.model, "bpp3d", logit_scale=recipe.logit_scale, **fixed, **options
    ).to(assignment.device)
    held_out = HeldOut.of(recipe)

    def make_manifest(trainer: Trainer, name: str) -> Manifest:
        return packing_manifest(trainer, name, recipe, held_out)

    identity = {"model": assignment.model, "problem": "bpp3d", "seed": seed, **prefixed(options)}
    return Prepared(policy, PackingLearner(policy, recipe, seed), held_out.measure, make_manifest, identity)


def packing_manifest(trainer: Trainer, name: str, recipe: PackingRecipe, held_out: HeldOut) -> Manifest:
    """Say what the weights are."""
    progress, config = trainer.progress, cast("Any", trainer.policy.config)
    data = TrainingData(
        distribution=recipe.bin,
        size=recipe.boxes,
        instances=progress.samples // (recipe.samples if recipe.baseline == "samples" else 1),
        label_solver="none",
        label_params=f"policy gradient, baseline {recipe.baseline}; sides {SMALLEST_SIDE}..{LARGEST_SIDE} drawn as needed",
    )
    wide = config.width // config.heads == WIDE_HEAD
    published = COURSE.recipes("attend2pack")["paper-d32" if wide else "paper"].boxes
    on = f"bpp3d{recipe.boxes}:{recipe.bin}:seed={VALIDATION_SEED}, greedy, against extreme-point by volume"
    made = manifest_of(
        trainer,
        name,
        data,
        PAPER_PACKINGS,
        validation=last_validation(progress, len(held_out.instances), on),
        notes=f"Trained on {recipe.boxes} boxes; the paper trains on {published}. Its share counts boxes placed.",
    )
    share = progress.samples * recipe.boxes / (PAPER_PACKINGS * published)
    return dataclasses.replace(made, share_of_paper=round(share, 5))


COURSE = Course("packing", PackingRecipe, prepare, checked)
