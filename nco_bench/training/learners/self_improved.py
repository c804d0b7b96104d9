"""Self-improved learning: the policy improves a set of pseudo-labels, then learns from them, again and again.

SIT (Algorithms 1-4): labels begin with insertion; each round goes back to the best weights of the round before, improves
all labels by parallel local re-construction with them, in segments of at most l_max nodes, and trains on random pieces of
the labels for a number of updates.
SIGD: each round draws distinct solutions without replacement from the best policy so far and keeps the shortest of each.
Here it goes on being compared with the label it has, so that in either way a label never gets longer.

The best weights are those with the shortest greedy solutions on instances of their own, as no optimal ones are known. They
are looked for within a round, every `judged_updates` and at its end (SIT, Appendix E), and they are what is exported.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from nco_bench.solvers.path.construct import greedy
from nco_bench.training.learner import Loss
from nco_bench.training.learners.pseudo_labels import (
    Instances,
    PseudoLabels,
    SelfRecipe,
    lengths_of,
    on_device,
    solutions_of,
)
from nco_bench.training.learners.supervised import Supervised


@torch.inference_mode()
def greedy_lengths(policy: Any, instances: Instances, knn: int | None = None) -> Tensor:
    """Return the lengths of greedy solutions, ``(B,)`` float64; `knn` as in `greedy`."""
    device = next(policy.parameters()).device
    instances = on_device(instances, device)
    path = greedy(policy, instances.problem(), knn=knn)
    return lengths_of(instances, solutions_of(path, cvrp=instances.demand is not None))


class SelfImproved:
    """Self-improved learning as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A path policy.
    labels
        The pseudo-labels.
    held_out
        Instances that choose the best weights.
    recipe, seed, device
        As `Supervised` takes them.
    """

    shares_batches = True
    """Several processes may train together; each improves all labels, in the same way."""

    def __init__(
        self, policy: Any, labels: PseudoLabels, held_out: Instances, recipe: SelfRecipe, seed: int,
        device: torch.device,
    ) -> None:  # fmt: skip
        self.policy, self.labels, self.held_out, self.recipe = policy, labels, held_out, recipe
        self.supervised = Supervised(policy, labels, recipe, seed, device)  # type: ignore[arg-type]
        self.extra: nn.ModuleDict = self.supervised.extra
        self.teacher = self.supervised.teacher
        self.rounds = 0
        self.best_length = float("inf")
        self.best: dict[str, Tensor] = {}
        self._judged = 0

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw a batch of pieces; at the beginning of a round, improve the labels first."""
        self._judge(step)
        if step == 0 and self.recipe.improve_first:
            self.labels.improve(self.policy, 0)
        while self.rounds < step // self.recipe.rounds_updates:
            self._improve()
        return self.supervised.loss(step, fraction)

    def _improve(self) -> None:
        """Go back to the best weights, and improve the labels with them."""
        self.policy.load_state_dict(self.best)
        self.rounds += 1
        self.labels.improve(self.policy, self.rounds)
        self.supervised.rest()
        if self.recipe.method == "prc":  # SIGD's best weights are those of all rounds
            self.best_length = float("inf")

    def _judge(self, step: int) -> None:
        """Keep the weights of this step, if it is one to look at, where their greedy solutions are the shortest."""
        recipe = self.recipe
        if step in (0, self._judged) or (step % recipe.judged_updates and step % recipe.rounds_updates):
            return
        was_training, self._judged = self.policy.training, step
        length = float(greedy_lengths(self.policy.eval(), self.held_out, recipe.judged_knn or None).mean())
        self.policy.train(was_training)
        if length < self.best_length:
            self.best_length = length
            self.best = copy.deepcopy(self.policy.state_dict())

    def chosen(self, step: int) -> dict[str, Tensor]:
        """Return the weights to export: the best that were judged, of this round or else of the last; none at first."""
        self._judge(step)
        return self.best

    def position(self) -> dict[str, Any]:
        """Return the round and the position among the labels."""
        labels = self.supervised.position()
        return {"rounds": self.rounds, "best_length": self.best_length, "labels": labels}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other instances."""
        self.supervised.seek(position["labels"], adopt=adopt)
        self.rounds, self.best_length = position["rounds"], position["best_length"]

    def tensors(self) -> dict[str, Tensor]:
        """Return the labels and the best weights."""
        kept = {"order": self.labels.order} | {f"best/{k}": v for k, v in self.best.items()}
        return kept if self.labels.via is None else kept | {"via": self.labels.via}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` returned."""
        self.labels.order = tensors["order"]
        self.labels.via = tensors.get("via")
        device = next(self.policy.parameters()).device
        self.best = {
            k.removeprefix("best/"): v.to(device) for k, v in tensors.items() if k.startswith("best/")
        }
