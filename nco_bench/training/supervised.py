"""Learning to continue random pieces of near-optimal solutions (BQ, LEHD, SIGD, SIT, decoder scaling, PENS).

A random piece of a label tour, in a random direction, is a path problem whose optimal solution is known: from its
first node, through the nodes between, to its last. The model sees the state that decoding would see there, and learns which
node comes next. One length is drawn per batch; the longest, N + 1 rows, is the whole closed tour with
which decoding begins, where both neighbours of the start are right.

For the CVRP a piece ends where a route ends, after whole solutions and single routes were reversed and rotated at random
(LEHD, SIT); its last row is the depot. The model learns the next customer and whether the way goes via the depot.

An auxiliary loss can be added: from the last layer's outputs, a small bilinear head guesses the neighbours of
*every* node of the piece. It gives a signal per node instead of one per piece for the same forward pass, and is thrown away
after training. It is not in the papers; on small budgets it speeds learning up considerably.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nco_bench.decoding.problem import shares
from nco_bench.decoding.segments import Routes, load_before, reverse_all, reverse_routes, rotate_routes
from nco_bench.errors import BadInputError
from nco_bench.models.bq import Bq
from nco_bench.models.decoder_only import DecoderOnly
from nco_bench.models.lehd import Lehd
from nco_bench.models.logit_scale import TRAINING_SIZE
from nco_bench.models.path import PathNodes, PathState, gather_rows, path_state
from nco_bench.models.pens import Pens
from nco_bench.models.sit import Sit
from nco_bench.training.data import LabelStream
from nco_bench.training.distributed import group
from nco_bench.training.learner import Loss
from nco_bench.training.recipes import Recipe, longest_now
from nco_bench.training.shards import unpack_routes

OPENING_LENGTHS = 6
"""How many of the longest lengths `Recipe.opening` asks for."""


@dataclass(frozen=True)
class SubPaths:
    """Pieces of label tours.

    Attributes
    ----------
    coords
        ``(B, L, 2)`` in the order of the tour: origin, the nodes between, destination.
    closed
        The piece is a whole tour; the last row repeats the first.
    instance_size
        Nodes of the instance that it was cut from.
    """

    coords: Tensor
    closed: bool
    instance_size: int


def draw_sub_paths(
    ordered: NDArray[np.float32], length: int, rng: np.random.Generator, symmetries: bool
) -> NDArray[np.float32]:
    """Cut one piece out of each tour.

    Parameters
    ----------
    ordered
        ``(B, N, 2)`` coordinates in tour order.
    length
        Rows of the piece, 3 to N + 1; N + 1 gives the closed tour.
    rng
        Draws starts, directions and symmetries.
    symmetries
        Apply one of the eight symmetries of the unit square to each piece.
    """
    batch, nodes, _ = ordered.shape
    start = np.asarray(rng.integers(nodes, size=batch))
    direction = rng.choice((-1, 1), size=batch)
    rows = (start[:, None] + direction[:, None] * np.arange(length)) % nodes
    pieces = np.take_along_axis(ordered, rows[:, :, None], axis=1)
    if symmetries:
        pieces = _transformed(pieces, np.asarray(rng.integers(8, size=batch)))
    return pieces


def _transformed(pieces: NDArray[np.float32], symmetry: NDArray[np.integer]) -> NDArray[np.float32]:
    """Apply symmetry 0..7 of the unit square: swap x and y, mirror x, mirror y."""
    swap, mirror_x, mirror_y = ((symmetry & bit) > 0 for bit in (1, 2, 4))
    pieces[swap] = pieces[swap][:, :, ::-1]
    pieces[mirror_x, :, 0] = 1 - pieces[mirror_x, :, 0]
    pieces[mirror_y, :, 1] = 1 - pieces[mirror_y, :, 1]
    return pieces


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


def draw_route_pieces(
    packed: NDArray[np.float32], customers: int, rng: np.random.Generator, symmetries: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Cut a piece that ends at the depot out of each CVRP solution.

    Parameters
    ----------
    packed
        ``(B, V + 1, 5)``, see `data.pack_routes`.
    customers
        Customers in the piece, the one where the vehicle stands included; 2 to V.
    rng
        Draws reversals, rotations and symmetries.

    Returns
    -------
    coords, demand, remaining, via, capacity
        ``(B, L + 1, 2)`` and ``(B, L + 1)``: the piece in order, then the depot; ``(B,)`` whole units left in the
        vehicle at the first customer; ``(B, L)`` flags; ``(B,)``.
    """
    if symmetries:
        points = _transformed(packed[..., :2].copy(), np.asarray(rng.integers(8, size=len(packed))))
        packed = np.concatenate([points, packed[..., 2:]], axis=2)
    coords, demand, capacity, via = unpack_routes(torch.from_numpy(np.ascontiguousarray(packed)))
    batch, count = via.shape
    routes: Routes = (torch.arange(1, count + 1).expand(batch, -1), via)
    coins = torch.from_numpy(rng.random((batch, count)) < 0.5)
    routes = reverse_routes(reverse_all(routes) if rng.random() < 0.5 else routes, coins)
    routes = rotate_routes(routes, torch.from_numpy(rng.integers(count, size=batch)))
    order, via = routes
    begin = count - customers
    served = load_before(routes, demand, torch.full((batch, 1), begin)).squeeze(1)
    first = order[:, begin]
    full = torch.where(via[:, begin], capacity, capacity - served)
    remaining = full - demand.gather(1, first[:, None]).squeeze(1)
    rows = torch.cat([order[:, begin:], torch.zeros(batch, 1, dtype=torch.int64)], dim=1)
    return gather_rows(coords, rows), demand.gather(1, rows), remaining, via[:, begin:], capacity


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


def auxiliary_layer(policy: nn.Module) -> nn.Module:
    """Return the layer whose output has a token per node, in order; the last one that a model runs as a whole.

    Raises
    ------
    BadInputError
        For a model without one.
    """
    if isinstance(policy, DecoderOnly | Pens):
        return policy.layers[-1]
    # These score from within their last layer.
    if isinstance(policy, Bq) and len(policy.layers) > 1:
        return policy.layers[-2]
    if isinstance(policy, Lehd) and len(policy.decoder) > 1:
        return policy.decoder[-2]
    if isinstance(policy, Sit) and len(policy.layers) > 1:
        return policy.layers[-2]
    raise BadInputError(f"{type(policy).__name__}: has no auxiliary loss; add --config auxiliary=0.")


def tokens_between(policy: nn.Module, tokens: Tensor, candidates: int) -> Tensor:
    """Return the tokens of the nodes between the ends, ``(B, M, W)``, of those that an `auxiliary_layer` returned.

    Models order the ends, or join them, as they like; SIT's representatives come first.
    """
    ends = tokens.shape[1] - candidates
    first = ends if isinstance(policy, Sit) else min(ends, 1)
    return tokens[:, first : first + candidates]


class Supervised:
    """Supervised learning on pieces of solutions, as one way to learn that the training loop takes.

    Parameters
    ----------
    policy
        A path policy; with the auxiliary loss one that `auxiliary_layer` knows.
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
        self._tokens: list[Tensor] = []
        if recipe.auxiliary > 0 and stream.problem == "tsp":
            self.extra["neighbours"] = Neighbours(policy.config.width).to(device)
            auxiliary_layer(policy).register_forward_hook(self._keep_tokens)

    def _keep_tokens(self, module: nn.Module, inputs: Any, output: Tensor | tuple[Tensor, Tensor]) -> None:
        if module.training:  # SIT's layers return representatives and tokens
            self._tokens = [output[1] if isinstance(output, tuple) else output]

    def loss(self, step: int, fraction: float) -> Loss:
        """Draw a batch and return its loss.

        Parameters
        ----------
        step
            Number of the update; with the seed it decides all draws, so that a resumed run draws the same.
        fraction
            Share of the run that is done, for the curriculum.
        """
        rng = np.random.default_rng([self.seed, step])
        batch = self.stream.take(self.recipe.batch)
        if self.stream.problem == "cvrp":
            return self._cvrp_loss(batch.ordered, rng, fraction)
        if not batch.tours:
            return self._loss(self._path_batch(batch.ordered, rng))
        ordered = batch.ordered
        nodes = ordered.shape[1]
        longest = min(longest_now(self.recipe, fraction), nodes + 1)
        shortest = min(self.recipe.shortest, longest)
        if self.recipe.opening and rng.random() < self.recipe.opening:
            shortest = max(shortest, longest - OPENING_LENGTHS + 1)
        length = int(rng.integers(shortest, longest + 1))
        pieces = draw_sub_paths(ordered, length, rng, self.recipe.symmetries)
        coords = torch.from_numpy(np.ascontiguousarray(pieces)).to(self.device, non_blocking=True)
        return self._loss(SubPaths(coords, length == nodes + 1, nodes))

    def _path_batch(self, paths: NDArray[np.float32], rng: np.random.Generator) -> SubPaths:
        """Cut solved paths down to a random length at the front: what is left of an optimal path is optimal."""
        rows = paths.shape[1]
        length = int(rng.integers(min(self.recipe.shortest, rows), rows + 1))
        pieces = paths[:, rows - length :].copy()
        if self.recipe.symmetries:
            pieces = _transformed(pieces, np.asarray(rng.integers(8, size=len(pieces))))
        return SubPaths(torch.from_numpy(pieces).to(self.device), False, TRAINING_SIZE)

    def _loss(self, paths: SubPaths) -> Loss:
        whole = len(paths.coords)
        if self.group.size > 1:
            mine = self.group.rows(whole, self.device)
            paths = dataclasses.replace(paths, coords=paths.coords[mine])
        batch, length, _ = paths.coords.shape
        nodes = PathNodes(paths.coords, None, paths.instance_size)
        rows = torch.arange(length, device=self.device).expand(batch, -1)
        state = path_state(nodes, self.policy.embed(nodes), rows, closed=paths.closed)
        next_node = next_node_loss(self.policy.scores(state), paths.closed)
        total = next_node
        if self.recipe.auxiliary > 0:
            total = next_node + self.recipe.auxiliary * self._neighbour_loss(length - 2, paths.closed)
        return Loss(total, next_node, whole)

    def _neighbour_loss(self, candidates: int, closed: bool) -> Tensor:
        last, head = self._tokens.pop(), self.extra["neighbours"]
        if isinstance(self.policy, DecoderOnly):
            # The model's own order is destination, between, origin.
            return head(torch.cat([last[:, -1:], last[:, 1:-1], last[:, :1]], dim=1), closed)
        return head(tokens_between(self.policy, last, candidates), False)

    def _cvrp_loss(self, packed: NDArray[np.float32], rng: np.random.Generator, fraction: float) -> Loss:
        """Draw one number of customers for the batch; the longest is the whole solution, from the depot."""
        batch, count = len(packed), packed.shape[1] - 1
        longest = min(longest_now(self.recipe, fraction), count + 1)
        customers = int(rng.integers(min(self.recipe.shortest - 1, longest - 1), longest + 1))
        closed = customers > count
        pieces = draw_route_pieces(packed, min(customers, count), rng, self.recipe.symmetries)
        mine = self.group.rows(batch)
        coords, demand, remaining, via, capacity = (tensor[mine].to(self.device) for tensor in pieces)
        flag = via[:, 0 if closed else 1]
        if closed:
            coords, demand = (torch.cat([t[:, -1:], t], dim=1) for t in (coords, demand))
            remaining = capacity
        state = self._cvrp_state(coords, shares(demand, capacity, coords.dtype), count, closed)
        state = dataclasses.replace(state, remaining=shares(remaining, capacity, coords.dtype))
        loss = next_visit_loss(self.policy.scores(state), flag, closed=closed)
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
        return path_state(nodes, self.policy.embed(nodes), rows, closed=closed)

    def position(self) -> dict[str, Any]:
        """Return where in the data this stands."""
        return self.stream.position()

    def seek(self, position: dict[str, Any], *, adopt: bool = False) -> None:
        """Go to a saved position; raises `BadInputError` for other data, unless it is to be adopted."""
        self.stream.seek(position, adopt=adopt)
