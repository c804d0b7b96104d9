"""One run of training: policy, learner, optimiser and moving average; its single update, its checkpoints.

How a model learns is an object that the run is given (`Learner`): it draws data and returns a loss. Supervised learning is
one; self-improved and policy-gradient learning are others. When to update, log and validate is the loop's business (`loop`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.cards import first_name
from nco_bench.errors import ResultsError
from nco_bench.nn.device import Later, generator_state, of_derivatives, on_cpu, precision, restore_generator
from nco_bench.training.checkpoint import (
    LAST,
    Checkpoint,
    load_checkpoint,
    pack_optimizer,
    save_checkpoint,
    unpack_optimizer,
)
from nco_bench.training.data import same_data
from nco_bench.training.distributed import group, sum_gradients, total
from nco_bench.training.learner import (
    ChoosesWeights,
    FollowsOptimizer,
    KeepsTensors,
    Learner,
    LeavesUndecayed,
    Measure,
    RollsOut,
)
from nco_bench.training.optimizer import leave_undecayed, optimizer_of
from nco_bench.training.recipes import LoopRecipe, rate


class TrainingStopped(ResultsError):
    """Training that cannot go on and is not the user's mistake: exit status 1, the last checkpoint is kept."""

    alone = False
    """Whether of several processes only this one knows of it, as where its GPU is full."""


@dataclass
class Progress:
    """How far a run is.

    Attributes
    ----------
    step, samples
        Updates and sub-problems so far.
    seconds
        Wall time of training over all sessions, validations and checkpoints included.
    core_seconds
        Processor time of the same, over all cores; what a machine that others share gave to the run.
    loss
        Running mean of the reported loss, None before the first update.
    history
        One dict per log line.
    gap, gap_ci95
        Last value of the validation (mean gap in percent, or what the course measures), and half width of its interval.
    validation
        The whole `Measure` as JSON values; None before the first, and in checkpoints of versions that did not keep it.
    """

    step: int = 0
    samples: int = 0
    seconds: float = 0.0
    core_seconds: float = 0.0
    loss: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    gap: float | None = None
    gap_ci95: float = 0.0
    validation: dict[str, Any] | None = None

    @property
    def measure(self) -> Measure | None:
        """What was last measured."""
        return None if self.validation is None else Measure.from_json(self.validation)


class Trainer:
    """State of a run: policy, moving average, optimiser, learner, progress.

    Parameters
    ----------
    policy
        The model, on its device.
    learner
        The way to learn.
    recipe
        All numbers.
    folder
        Where checkpoints go.
    identity
        What must be the same when a run is resumed, beside the recipe (model, seed).
    """

    def __init__(
        self, policy: nn.Module, learner: Learner, recipe: LoopRecipe, folder: Path, identity: dict[str, Any]
    ) -> None:
        self.policy, self.learner, self.recipe, self.folder = policy, learner, recipe, folder
        self.configuration = {**identity, **dataclasses.asdict(recipe)}
        self.parameters = dict(policy.named_parameters())
        self.parameters |= {f"extra.{k}": v for k, v in learner.extra.named_parameters()}
        self.average = {k: v.detach().clone() for k, v in policy.state_dict().items()} if recipe.ema else {}
        self.optimizer = optimizer_of(self.parameters, recipe)
        if isinstance(policy, LeavesUndecayed):
            leave_undecayed(self.optimizer, policy.undecayed)
        if isinstance(learner, FollowsOptimizer):
            learner.follow(self.optimizer)
        if isinstance(learner, RollsOut):
            learner.look_at(self.shipping)
        self.progress = Progress()
        self.group = group()
        self._unread: list[Later] = []

    def _gradients(self, fraction: float, device: torch.device) -> tuple[Tensor, int]:
        """Leave the mean gradient of all batches of an update, over all processes; return its loss and its samples."""
        recipe, reported, samples = self.recipe, [], 0
        for batch in range(recipe.accumulate):
            with precision(recipe.precision, device):
                loss = self.learner.loss(self.progress.step * recipe.accumulate + batch, fraction)
            share = self.group.share(loss.samples) / recipe.accumulate
            with precision(of_derivatives(recipe.precision), device):
                (loss.total if share == 1 else loss.total * share).backward()
            reported.append(loss.reported.detach().float().to(device) * share)
            samples += loss.samples
        mean = torch.stack(reported).sum()
        if self.group.size > 1:
            sum_gradients(self.parameters.values())
            mean = torch.tensor(total(float(mean), device), device=device)
        return mean.float(), samples

    def update(self, fraction: float, *, wait: bool = True) -> list[float]:
        """Do one update.

        Parameters
        ----------
        fraction
            Share of the run that is done.
        wait
            Until the device has done it; otherwise an accelerator is asked about the update before, and works on.

        Returns
        -------
        list
            Gradient norms before clipping that are known now and were not before: of this update, the one before, or both.

        Raises
        ------
        TrainingStopped
            When loss or gradient is no finite number, or the device is lost.
        """
        recipe, progress = self.recipe, self.progress
        factor = rate(recipe, progress.step, fraction)
        for settings in self.optimizer.param_groups:
            settings["lr"] = settings["peak"] * factor
        device = next(iter(self.parameters.values())).device
        try:
            value, samples = self._gradients(fraction, device)
            norm = nn.utils.clip_grad_norm_(self.parameters.values(), recipe.clip or math.inf)
            self._unread.append(Later(torch.stack([value, norm.float()])))
            norms = self._settle(0 if wait or on_cpu(device) else 1)
        except RuntimeError as error:
            raise self._lost_device(error) from error
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        progress.step += 1
        progress.samples += samples
        self._move_average()
        return norms

    def _settle(self, left: int = 0) -> list[float]:
        """Read losses and gradient norms of all updates but the `left` last, refuse what is broken; return the norms."""
        norms, progress = [], self.progress
        while len(self._unread) > left:
            value, norm = self._unread.pop(0).read()
            self._refuse_nonsense(value, norm)
            progress.loss = value if progress.loss is None else 0.99 * progress.loss + 0.01 * value
            norms.append(norm)
        return norms

    def _move_average(self) -> None:
        if not self.recipe.ema:
            return
        # A young average forgets faster, so that it does not remember the start.
        decay = min(self.recipe.ema, (1 + self.progress.step) / (10 + self.progress.step))
        values = self.policy.state_dict()
        smooth = [k for k, v in self.average.items() if v.is_floating_point()]
        torch._foreach_lerp_([self.average[k] for k in smooth], [values[k] for k in smooth], 1 - decay)
        for key, value in self.average.items():
            if not value.is_floating_point():  # counters of BatchNorm
                value.copy_(values[key])

    def _refuse_nonsense(self, loss: float, norm: float) -> None:
        recipe, mean = self.recipe, self.progress.loss
        watched = recipe.spike > 0 and mean is not None and self.progress.step > 200
        spike = watched and mean is not None and loss > recipe.spike * max(mean, 0.05)
        if math.isfinite(loss) and math.isfinite(norm) and not spike:
            return
        what = f"loss jumped from {mean:.3f} to {loss:.3f}" if spike else "loss or gradient is not finite"
        raise TrainingStopped(
            f"Training stopped at step {self.progress.step}: {what}; {self._kept()}. "
            "Start anew with a lower lr, or with more warmup."
        )

    def _kept(self) -> str:
        path = self.folder / LAST
        return (
            f"the last good checkpoint is {path}" if path.exists() else "no checkpoint had been written yet"
        )

    def _lost_device(self, error: RuntimeError) -> Exception:
        """Translate a GPU that is gone or full; anything else is a bug and stays what it is."""
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        if isinstance(error, torch.OutOfMemoryError):
            remedy = "continue with --resume on a larger device, or start anew with a smaller batch"
        elif "CUDA" in text or "cuDNN" in text or "CUBLAS" in text:
            remedy = "continue with --resume when the device is back"
        else:
            return error
        stopped = TrainingStopped(
            f"Training stopped at step {self.progress.step}: {text}; {self._kept()}; {remedy}."
        )
        stopped.alone = True
        return stopped

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to ship: what the learner chose, or the moving average where there is one."""
        batches = self.progress.step * self.recipe.accumulate
        chosen = self.learner.chosen(batches) if isinstance(self.learner, ChoosesWeights) else {}
        state = chosen or self.average or self.policy.state_dict()
        return {k: v.detach().cpu().float().contiguous().clone() for k, v in state.items()}

    @contextmanager
    def shipping(self) -> Iterator[Any]:
        """Put the weights to ship into the policy for a while, to measure them; yields the policy."""
        own = {name: value.detach().clone() for name, value in self.policy.state_dict().items()}
        self.policy.load_state_dict(self.weights())
        try:
            yield self.policy
        finally:
            self.policy.load_state_dict(own)

    def save(self) -> Path:
        """Write a checkpoint (the first process does); raises `ResultsError`."""
        self._settle()  # nothing that is broken is kept
        if not self.group.first:
            return self.folder / LAST
        names = {id(p): name for name, p in self.parameters.items()}
        tensors = {f"model/{k}": v for k, v in self.policy.state_dict().items()}
        tensors |= {f"extra/{k}": v for k, v in self.learner.extra.state_dict().items()}
        tensors |= {f"average/{k}": v for k, v in self.average.items()}
        tensors |= pack_optimizer(self.optimizer, names)
        tensors |= {f"learner/{k}": v for k, v in self._learner_tensors().items()}
        tensors["generator/torch"] = torch.get_rng_state()
        device = next(iter(self.parameters.values())).device
        drawn = generator_state(device)  # PENS draws its vectors there
        tensors |= {} if drawn is None else {f"generator/{device.type}": drawn}
        state = {
            "configuration": self.configuration,
            "progress": dataclasses.asdict(self.progress),
            "position": self.learner.position(),
        }
        return save_checkpoint(self.folder, Checkpoint(tensors, state))

    def _learner_tensors(self) -> dict[str, Tensor]:
        return self.learner.tensors() if isinstance(self.learner, KeepsTensors) else {}

    def resume(self, *, adopt: bool = False, folder: Path | None = None) -> None:
        """Continue from the checkpoint in the folder.

        Parameters
        ----------
        adopt
            Accept another configuration from here on; the change is written into the history.
        folder
            Of another run, which is left as it is; by default this run's own.

        Raises
        ------
        ResultsError
            When there is no checkpoint, it is damaged, or was made with another configuration.
        """
        path = (folder or self.folder) / LAST
        checkpoint = load_checkpoint(path)
        before, now = checkpoint.state["configuration"], self.configuration
        # A key that the checkpoint does not know yet is no change where it has its default value.
        before = {**_defaults(self.recipe), **before}
        if "model" in before:
            before["model"] = first_name(before["model"])
        if "problem" in now:
            before.setdefault("problem", "tsp")
        if "start" in before:  # it began there, whatever is named now
            now.setdefault("start", before["start"])
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if changed and not adopt:
            listing = ", ".join(f"{key} (was {before.get(key)!r}, is {now.get(key)!r})" for key in changed)
            raise ResultsError(
                f"{path} was made with another configuration: {listing}. "
                "Resume with the same values, or choose another --out."
            )
        self._restore(checkpoint, adopt)
        change = {key: now.get(key) for key in changed}
        position = self.learner.position()
        if not same_data(checkpoint.state["position"], position):
            change["data"] = position.get("shards")
        if change:
            was = {"was": {key: before.get(key) for key in changed}} if changed else {}
            self.progress.history.append({"step": self.progress.step, "changed": change, **was})

    def _restore(self, checkpoint: Checkpoint, adopt: bool) -> None:
        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)}

        self.policy.load_state_dict(part("model/"))
        self.learner.extra.load_state_dict(part("extra/"), strict=False)  # an adopted recipe may lack them
        for key, value in (part("average/") or part("model/")).items():
            if key in self.average:
                self.average[key].copy_(value)
        unpack_optimizer(self.optimizer, self.parameters, checkpoint.tensors)
        torch.set_rng_state(checkpoint.tensors["generator/torch"])
        device = next(iter(self.parameters.values())).device
        drawn = checkpoint.tensors.get(f"generator/{device.type}")
        if drawn is not None:
            restore_generator(device, drawn)
        if isinstance(self.learner, KeepsTensors):
            self.learner.restore(part("learner/"))
        self.progress = Progress(**checkpoint.state["progress"])
        self.learner.seek(checkpoint.state["position"], adopt=adopt)


def _defaults(recipe: LoopRecipe) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(recipe)}
