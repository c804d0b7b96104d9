"""A trained network whose probabilities are learned in place of single labels (Hinton, Vinyals and Dean 2015).

Where several moves are nearly as good, the optimal tour names one of them, and its gradient is mostly noise; that of a
better network's probabilities is less than half as noisy (`benchmarks/gradient_noise.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nco_bench.cards import network_card
from nco_bench.errors import BadInputError, BadWeightsError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import exact
from nco_bench.solvers.path.policy import PathNodes, PathState
from nco_bench.training.learners.pieces import SubPaths
from nco_bench.training.recipes import Recipe
from nco_bench.weights.store import find_any, load_into

PATHS = "path"
"""Family of the models whose probabilities are of the next node of a path."""


class Teacher:
    """A path model with its weights, which does not change.

    Parameters
    ----------
    name_or_path
        Shipped or cached weights, or a file, of any path model for the TSP.
    device
        Where the student is.

    Raises
    ------
    BadWeightsError
        When the weights are missing, damaged or changed.
    BadInputError
        For weights of another problem, or of a model that does not solve paths.
    """

    def __init__(self, name_or_path: str, device: torch.device) -> None:
        given = f"--config teacher={name_or_path}"
        try:
            file = find_any(name_or_path, "the teacher", imports="MODEL")
        except BadWeightsError as error:
            raise type(error)(f"{given}: {error}") from error
        manifest = file.manifest
        if network_card(manifest.model).family != PATHS:
            raise BadInputError(f"{given}: {manifest.model} is no path model; expected one, such as lehd.")
        if manifest.problem != "tsp":
            raise BadInputError(f"{given}: solves {manifest.problem}; expected the TSP.")
        self.policy: Any = build_path_policy(manifest.model, **manifest.config)
        load_into(self.policy, file)
        self.policy.to(device).eval().requires_grad_(False)
        self.name, self.sha256, self.device = manifest.name, manifest.sha256, device

    def describe(self, recipe: Recipe) -> str:
        """Say in a sentence for the manifest what was learned from it."""
        part = "" if recipe.teacher_weight == 1 else f"{recipe.teacher_weight:.0%} of the loss: "
        who = f"{self.name} (sha256 {self.sha256[:12]})"
        return f"{part}Next-node probabilities of {who} were learned in place of the labels' one node."

    def probabilities(self, paths: SubPaths) -> Tensor:
        """Return those of the next node, ``(B, M)`` for candidates in the order of the path."""
        with torch.no_grad(), exact(self.device):
            nodes = PathNodes(paths.coords, None, paths.instance_size)
            state = PathState(
                self.policy.embed(nodes), nodes.coords, None, None, paths.closed, paths.instance_size
            )
            found: Tensor = self.policy.scores(state).float().softmax(-1)
        return found


def imitation_loss(scores: Tensor, probabilities: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits ``(B, M)`` against a teacher's probabilities."""
    return -(probabilities * scores.float().log_softmax(-1)).sum(-1).mean()
