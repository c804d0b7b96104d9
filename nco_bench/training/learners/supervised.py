"""Learning to continue random pieces of near-optimal solutions (BQ, LEHD, SIGD, SIT, decoder scaling, PENS).

A random piece of a label tour, in a random direction, is a path problem whose optimal solution is known: from its
first node, through the nodes between, to its last. The model sees the state that decoding would see there, and learns which
node comes next. One length is drawn per batch; the longest, N + 1 rows, is the whole closed tour with
which decoding begins, where both neighbours of the start are right. A recipe that walks goes on, update by update, to
the piece's last decision; others learn its first decision, and draw anew.

For the CVRP a piece ends where a route ends, after whole solutions and single routes were reversed and rotated at random
(LEHD, SIT); its last row is the depot. The model learns the next customer and whether the way goes via the depot.

Instead of the label alone the probabilities of a better network can be learned (`teacher`).

An auxiliary loss can be added: from the last layer's outputs, a small bilinear head guesses the neighbours of
*every* node of the piece. It gives a signal per node instead of one per piece for the same forward pass, and is thrown away
after training. It is not in the papers; on small budgets it speeds learning up considerably.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.errors import BadInputError
from nco_bench.nn.device import exact
from nco_bench.nn.logit_scale import TRAINING_SIZE
from nco_bench.solvers.path.policy import AuxiliaryTokens, PathNodes, PathState, path_state
from nco_bench.solvers.path.problem import shares
from nco_bench.training.data import LabelStream, same_data
from nco_bench.training.distributed import group
from nco_bench.training.learner import Loss
from nco_bench.training.learners.pieces import (
    RoutePieces,
    SubPaths,
    draw_length,
    draw_route_pieces,
    draw_sub_paths,
    transformed,
)
from nco_bench.training.learners.teacher import Teacher, imitation_loss
from nco_bench.training.recipes import Recipe, auxiliary_now, batch_now, longest_now

OPENING_LENGTHS = 6
"""How many of the longest lengths `Recipe.opening` asks for."""


class Neighbours(nn.Module):
    """Bilinear head that scores every pair of tokens as neighbours in the tour."""

    def __init__(self, width: int, rank: int = 32) -> None:
        super().__init__()
        self.query = nn.Linear(width, rank)
        self.key = nn.Linear(width, rank)
        self.rank = rank

    def forward(self, tokens: Tensor, closed: bool) -> Tensor:
        """Return the mean cross-entropy of each token's neighbours.

        Parameters
        ----------
        tokens
            ``(B, L, W)`` in the order of the tour: origin, between, destination.
        closed
            Origin and destination are one node; then only the nodes between have both neighbours.
        """
        logits = self.query(tokens) @ self.key(tokens).transpose(1, 2) / math.sqrt(self.rank)
        itself = torch.eye(logits.shape[1], dtype=torch.bool, device=logits.device)
        log_p = logits.float().masked_fill(itself, -1e9).log_softmax(-1)
        after, before = log_p.diagonal(1, 1, 2), log_p.diagonal(-1, 1, 2)
        if closed:
            # The start stands twice, so the first and last node between have it on one side in either copy.
            return -(after[:, 1:-1].mean() + before[:, 1:-1].mean()) / 2
        return -(after[:, 1:].mean() + before[:, :-1].mean()) / 2


def next_node_loss(scores: Tensor, closed: bool) -> Tensor:
    """Return the mean cross-entropy of the next node, for candidates in the order of the tour.

    Parameters
    ----------
    scores
        ``(B, M)`` logits.
    closed
        For a whole tour the first and the last candidate are both right, half each.
    """
    log_p = scores.float().log_softmax(-1)
    right = 0.5 * (log_p[:, 0] + log_p[:, -1]) if closed else log_p[:, 0]
    return -right.mean()


def next_visit_loss(scores: Tensor, via: Tensor, *, closed: bool) -> Tensor:
    """Return the mean cross-entropy of the next customer and its flag, for candidates in the order of the solution.

    Parameters
    ----------
    scores
        ``(B, M, 2)`` logits: directly, via the depot.
    via
        ``(B,)`` the flag of the first candidate.
    closed
        Nothing is visited yet: both flags mean the same.
    """
    log_p = scores.float().flatten(1).log_softmax(-1)
    if closed:
        return -torch.logsumexp(log_p[:, :2], dim=1).mean()
    return -log_p.gather(1, via.long()[:, None]).mean()


class NodeTokens:
    """What a policy's `auxiliary_tokens` last put out in training, row by row in the order of the tour.

    Raises
    ------
    BadInputError
        For a model that has none.
    """

    def __init__(self, policy: Any) -> None:
        place: AuxiliaryTokens | None = policy.auxiliary_tokens()
        if place is None:
            raise BadInputError(f"{type(policy).__name__}: has no auxiliary loss; add --config auxiliary=0.")
        self.place = place
        self._last: Tensor | None = None
        place.layer.register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor | tuple[Tensor, Tensor]) -> None:
        if module.training:
            self._last = output[1] if isinstance(output, tuple) else output

    def take(self, candidates: int) -> Tensor:
        """Return the tokens ``(B, L, W)``, once: those between the ends, and the ends where the model always has both."""
        assert self._last is not None
        last, self._last = self._last, None
        first = self.place.first
        between = last[:, first : first + candidates]
        if not self.place.ends:
            return between
        return torch.cat([last[:, first + candidates :], between, last[:, :first]], dim=1)


class Supervised:
    """Supervised learning on pieces of solutions, as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A path policy; with the auxiliary loss one that has `PathPolicy.auxiliary_tokens`.
    stream
        Labelled instances.
    recipe, seed
        Sub-path lengths, symmetries, auxiliary weight; the seed of all draws.
    device
        Where the policy is.
    """

    shares_batches = True
    """Several processes may train together, see `distributed`."""

    def __init__(
        self, policy: Any, stream: LabelStream, recipe: Recipe, seed: int, device: torch.device
    ) -> None:
        self.policy, self.stream, self.recipe, self.seed, self.device = policy, stream, recipe, seed, device
        self.group = group()
        self.extra = nn.ModuleDict()
        self.teacher = Teacher(recipe.teacher, device) if recipe.teacher else None
        if self.teacher is not None and stream.problem != "tsp":
            raise BadInputError(f"--config teacher={recipe.teacher}: teaches the TSP, not {stream.problem}.")
        self._left: SubPaths | RoutePieces | None = None
        self._begun: dict[str, Any] = {}
        self._stood: dict[str, Any] = {}
        if recipe.auxiliary > 0 and stream.problem == "tsp":
            self.extra["neighbours"] = Neighbours(policy.config.width).to(device)
            self._tokens = NodeTokens(policy)

    def loss(self, step: int, fraction: float) -> Loss:
        """Return the loss of the next batch of decisions.

        Parameters
        ----------
        step
            Number of the update; with the seed it decides all draws, so that a resumed run draws the same.
        fraction
            Share of the run that is done, for the curriculum.
        """
        if self._left is None:
            self._begun = {"step": step, "fraction": fraction, "moves": 0}
            self._stood = self.stream.position() if self.recipe.walk else {}
            self._left = self._draw(step, fraction)
        pieces = self._left
        self._left = pieces.following() if self.recipe.walk and pieces.decisions > 1 else None
        self._begun["moves"] += 1
        return (
            self.paths_loss(pieces, self._begun["step"])
            if isinstance(pieces, SubPaths)
            else self._cvrp_loss(pieces)
        )

    def rest(self) -> None:
        """Leave the pieces at hand: the next update draws others."""
        self._left = None

    def _draw(self, step: int, fraction: float) -> SubPaths | RoutePieces:
        rng = np.random.default_rng([self.seed, step])
        batch = self.stream.take(batch_now(self.recipe, step))
        if self.stream.problem == "cvrp":
            return self._route_pieces(batch.ordered, rng, fraction)
        if not batch.tours:
            return self._path_batch(batch.ordered, rng)
        ordered = batch.ordered
        nodes = ordered.shape[1]
        longest = min(longest_now(self.recipe, fraction), nodes + 1)
        shortest = min(self.recipe.shortest, longest)
        if self.recipe.opening and rng.random() < self.recipe.opening:
            shortest = max(shortest, longest - OPENING_LENGTHS + 1)
        length = draw_length(shortest, longest, self.recipe.lengths, rng)
        tours = torch.from_numpy(ordered).to(self.device, non_blocking=True)
        pieces = draw_sub_paths(tours, length, rng, self.recipe.symmetries)
        return SubPaths(pieces, length == nodes + 1, nodes)

    def _path_batch(self, paths: NDArray[np.float32], rng: np.random.Generator) -> SubPaths:
        """Cut solved paths down to a random length at the front: what is left of an optimal path is optimal."""
        rows = paths.shape[1]
        length = draw_length(min(self.recipe.shortest, rows), rows, self.recipe.lengths, rng)
        pieces = torch.from_numpy(paths[:, rows - length :].copy()).to(self.device)
        if self.recipe.symmetries:
            pieces = transformed(pieces, rng.integers(8, size=len(pieces)))
        return SubPaths(pieces, False, TRAINING_SIZE)

    def paths_loss(self, paths: SubPaths, step: int) -> Loss:
        """Return the loss of the first decisions of solved paths, in update number `step`."""
        whole = len(paths.coords)
        if self.group.size > 1:
            mine = self.group.rows(whole, self.device)
            paths = dataclasses.replace(paths, coords=paths.coords[mine])
        nodes = PathNodes(paths.coords, None, paths.instance_size)
        # Rows are in the order of the path already: nothing to gather, as `path_state` does.
        state = PathState(self._embedded(nodes), nodes.coords, None, None, paths.closed, paths.instance_size)
        scores = self.policy.scores(state)
        next_node = total = next_node_loss(scores, paths.closed)
        if self.teacher is not None:
            imitation = imitation_loss(scores, self.teacher.probabilities(paths))
            total = torch.lerp(next_node, imitation, self.recipe.teacher_weight)
        if self.recipe.auxiliary > 0:
            tokens, ends = self._tokens.take(paths.coords.shape[1] - 2), self._tokens.place.ends
            neighbours = self.extra["neighbours"](tokens, paths.closed and ends)
            total = total + auxiliary_now(self.recipe, step) * neighbours
        penalty = self.policy.penalty()
        return Loss(total if penalty is None else total + penalty, next_node, whole)

    def _embedded(self, nodes: PathNodes) -> Tensor:
        """Embed in float32 whatever the recipe's precision is, as decoding does (see `solvers.path.precision`)."""
        with exact(self.device):
            return self.policy.embed(nodes)

    def _route_pieces(
        self, packed: NDArray[np.float32], rng: np.random.Generator, fraction: float
    ) -> RoutePieces:
        """Draw one number of customers for the batch; the longest is the whole solution, from the depot."""
        count = packed.shape[1] - 1
        longest = min(longest_now(self.recipe, fraction), count + 1)
        fewest = min(self.recipe.fewest_customers or self.recipe.shortest - 1, longest - 1)
        customers = draw_length(fewest, longest, self.recipe.lengths, rng)
        closed = customers > count
        coords, demand, remaining, via, capacity = draw_route_pieces(
            packed, min(customers, count), rng, self.recipe.symmetries
        )
        if closed:
            coords, demand = (torch.cat([t[:, -1:], t], dim=1) for t in (coords, demand))
            remaining = capacity
        else:
            via = via[:, 1:]
        return RoutePieces(coords, demand, remaining, via, capacity, closed, count)

    def _cvrp_loss(self, pieces: RoutePieces) -> Loss:
        batch = len(pieces.coords)
        pieces = pieces.rows(self.group.rows(batch)).to(self.device)
        coords, capacity = pieces.coords, pieces.capacity
        demand = shares(pieces.demand, capacity, coords.dtype)
        state = self._cvrp_state(coords, demand, pieces.instance_size, pieces.closed)
        state = dataclasses.replace(state, remaining=shares(pieces.remaining, capacity, coords.dtype))
        loss = next_visit_loss(self.policy.scores(state), pieces.via[:, 0], closed=pieces.closed)
        return Loss(loss, loss, batch)

    def _cvrp_state(self, coords: Tensor, demand: Tensor, size: int, closed: bool) -> PathState:
        """Embed the depot and the customers of a piece (node 0 is the depot), and lay the rows out in its order."""
        batch = len(coords)
        first = 1 if closed else 0  # where the customers begin
        order = torch.cat([coords[:, -1:], coords[:, first:-1]], dim=1)
        needs = torch.cat([demand[:, -1:], demand[:, first:-1]], dim=1)
        nodes = PathNodes(order, needs, size)
        rows = torch.arange(order.shape[1] + 1, device=self.device).remainder(order.shape[1])
        rows = (rows if closed else rows[1:]).expand(batch, -1)
        return path_state(nodes, self._embedded(nodes), rows, closed=closed)

    def position(self) -> dict[str, Any]:
        """Return where in the data this stands; within pieces, where it stood before they were drawn, and their progress."""
        return self.stream.position() if self._left is None else {**self._stood, "walk": dict(self._begun)}

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other data, unless it is to be adopted."""
        self.stream.seek(position, adopt=adopt)
        self._left = None
        begun = position.get("walk")
        if begun is None or not same_data(position, self.stream.position()):
            return
        self._begun, self._stood = dict(begun), self.stream.position()
        self._left = self._draw(begun["step"], begun["fraction"])
        for _ in range(min(begun["moves"], self._left.decisions - 1)):
            self._left = self._left.following()
