"""ELG, "Towards Generalizable Neural Solvers ... via Ensemble with Transferrable Local Policy" (Gao et al., IJCAI 2024).

POMO's network (see pomo.py) plus two terms per node inside the final score: a penalty that grows with the distance from the
current node, and the score of a small local policy that sees only the K nearest open nodes, in polar coordinates.
Logits are ``50 tanh(global + penalty + local)``. What the official code (gaocrr/ELG) does and the paper does not say: the
depot is the first token of the CVRP's local policy, but its features are zero; the 1e-6 in the penalty's denominator is
there for the TSP only. Logit scales act on the attentions over all nodes, not on the local one, whose size is fixed.

Letters in shapes: B instances, P trajectories, N nodes (depot first), K neighbours, T tokens (K, or K + 1 with the
depot), F features of a token, W local width, A local heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from nco_bench.errors import UnknownNameError
from nco_bench.nn.layers import works_in_place
from nco_bench.nn.logit_scale import LogitScale, none
from nco_bench.solvers.stepwise.elg_quick import add_nearby, surroundings
from nco_bench.solvers.stepwise.glimpse import Glimpse, attention_scales, clipped, pointer_scores
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes
from nco_bench.solvers.stepwise.pomo import Decoder, Encoder, PomoConfig
from nco_bench.solvers.stepwise.pomo import from_official as pomo_from_official

if TYPE_CHECKING:
    from nco_bench.solvers.stepwise.elg_kernels import Surroundings

EPSILON = 1e-6


@dataclass(frozen=True)
class ElgConfig(PomoConfig):
    """Sizes of ELG: POMO's, with another clip, and those of the local policy.

    Attributes
    ----------
    neighbours
        K; 30 for the TSP and 40 for the CVRP.
    far_penalty
        xi, what a node outside the neighbourhood gets in place of penalty and local score.
    local_width, local_heads
        Width and attention heads of the local policy.
    """

    clip: float = 50.0
    neighbours: int = 30
    far_penalty: float = -1.0
    local_width: int = 32
    local_heads: int = 4


def config_for(name: str, problem: str) -> ElgConfig:
    """Return the configuration of the published models."""
    return ElgConfig(problem, neighbours=40 if problem == "cvrp" else 30)


@dataclass(frozen=True)
class Neighbourhood:
    """The nearest open nodes (CVRP: customers) of each trajectory's current node, nearest first.

    Attributes
    ----------
    nodes
        ``(B, P, K)`` node indices; entries beyond the open ones are arbitrary blocked nodes.
    real
        ``(B, P, K)`` bool: whether the entry is an open node.
    distance
        ``(B, P, K)`` distance from the current node; 0 where not real.
    farthest
        ``(B, P, 1)`` largest of them.
    """

    nodes: Tensor
    real: Tensor
    distance: Tensor
    farthest: Tensor


@dataclass(frozen=True)
class Encoded:
    """What decoding needs of an instance: for the global policy, and the raw nodes for the local one.

    Attributes
    ----------
    around
        Tables of the local policy, see `nco_bench.solvers.stepwise.elg_quick`; None where the network itself is asked.
    """

    glimpse: Glimpse
    nodes: RoutingNodes
    around: Surroundings | None = None


class LocalPolicy(nn.Module):
    """One attention of a learned query over the tokens of a neighbourhood (section 4.2 of the paper).

    A token is x = W f + b + code(rank), so that q.k, the sum of values and z.x are all linear in the few features f:
    tokens of width W are never formed.
    """

    def __init__(self, features: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_token = nn.Parameter(torch.randn(width))
        self.embedding = nn.Linear(features, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(width, width)

    def forward(self, features: Tensor, visible: Tensor) -> Tensor:
        """Score tokens: ``(B, P, T, F)`` features and ``(B, P, T)`` bool (not padding, not forbidden) to ``(B, P, T)``."""
        width, asked, constant = len(self.query_token), self.asked(), self.constant(features.shape[2])
        weights = features @ (asked @ self.embedding.weight).T + constant @ asked.T  # (B, P, T, A)
        hidden = torch.zeros_like(features[..., 0]).masked_fill(~visible, -torch.inf)
        weights = (weights + hidden[..., None]).softmax(dim=2).transpose(2, 3)  # (B, P, A, T)
        mean = (
            weights @ features
        ) @ self.embedding.weight.T + weights @ constant  # (B, P, A, W): mean token per head
        mixed = torch.einsum("bpaw,akw->bpak", mean, self.value.weight.view(self.heads, -1, width)).flatten(2)
        z = self.combine(mixed) / math.sqrt(width)
        return (features @ (z @ self.embedding.weight)[..., None]).squeeze(-1) + z @ constant.T

    def asked(self) -> Tensor:
        """Return what each head multiplies tokens by, ``(A, W)``: q . (W_k x) = (W_k^T q) . x."""
        width = len(self.query_token)
        query = self.query(self.query_token).view(self.heads, 1, -1)
        return (query @ self.key.weight.view(self.heads, -1, width)).squeeze(1) / math.sqrt(
            width / self.heads
        )

    def constant(self, count: int) -> Tensor:
        """Return the part of tokens that is not of their features, ``(T, W)``."""
        return self.embedding.bias + rank_codes(count, len(self.query_token), self.embedding.bias)


def rank_codes(count: int, width: int, like: Tensor) -> Tensor:
    """Sinusoidal code of the ranks 0, 1, ..., ``(count, W)``: all sines, then all cosines."""
    half = width // 2
    frequency = torch.exp(torch.arange(half, device=like.device) * (-math.log(10000.0) / (half - 1)))
    angle = torch.arange(count, device=like.device)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).to(like.dtype)


class Elg(nn.Module):
    """The whole policy.

    Attributes
    ----------
    joint
        Whether the local policy takes part; the first stage of training goes without, but for the penalty.
    """

    needs_start = True
    joint = True

    def __init__(self, config: ElgConfig, logit_scale: LogitScale = none) -> None:
        super().__init__()
        self.config, self.problem, self.logit_scale = config, config.problem, logit_scale
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        features = 3 if config.problem == "cvrp" else 2
        self.local = LocalPolicy(features, config.local_width, config.local_heads)

    def encode(self, nodes: RoutingNodes) -> Encoded:
        """Run the encoder, and project its output to all that the decoder needs."""
        head_dim = self.config.head_dim
        scale, glimpse_scale = attention_scales(self.logit_scale, nodes, head_dim, self.config.training_size)
        x = self.encoder(nodes, scale * math.sqrt(head_dim))
        return Encoded(self.decoder.prepare(x, glimpse_scale), nodes, surroundings(self, nodes))

    def logits(self, encoded: Encoded, state: RouteState) -> Tensor:
        """Return ``C tanh(global + penalty + local)``, ``-inf`` where blocked, ``(B, P, N)``."""
        scores = pointer_scores(encoded.glimpse, state)
        if encoded.around is None or not self.joint or not works_in_place(scores):
            scores = scores + self.nearby(encoded, state)
        else:
            rows = add_nearby(encoded.around, state, scores)
            if len(rows):
                scores.flatten(0, 1).index_add_(0, rows, self._nearby_of(encoded, state, rows))
        return clipped(scores, state, self.config.clip)

    def nearby(self, encoded: Encoded, state: RouteState) -> Tensor:
        """Penalty plus local score of every node, ``(B, P, N)``."""
        around = self.neighbourhood(encoded, state)
        visible = self.visible(state, around)
        if self.joint:
            local = self.local(self.features(encoded, state, around), visible)
        else:
            local = torch.zeros_like(visible, dtype=around.distance.dtype)
        terms = torch.full_like(state.blocked, self.config.far_penalty)
        if self.problem == "tsp":
            penalty = around.distance / (around.farthest + EPSILON)
            return terms.scatter(2, around.nodes, local - penalty)
        # No distance is larger than the farthest, so where that is 0 there is nothing to divide.
        penalty = around.distance / torch.where(around.farthest > 0, around.farthest, 1.0)
        terms = terms.scatter(2, around.nodes, local[..., 1:] - penalty)
        return torch.cat([local[..., :1], terms[..., 1:]], dim=2)

    def _nearby_of(self, encoded: Encoded, state: RouteState, rows: Tensor) -> Tensor:
        """Return `nearby` of some trajectories, by their rows in ``(B P, N)``, each as an instance of its own."""
        assert state.current is not None
        instance, nodes = rows // state.current.shape[1], encoded.nodes
        demand = None if nodes.demand is None else nodes.demand[instance]
        room = None if state.room is None else state.room.reshape(-1, 1)[rows]
        blocked = state.blocked.flatten(0, 1)[rows, None]
        some = RouteState(None, state.current.reshape(-1, 1)[rows], blocked, room)
        alone = replace(encoded, nodes=RoutingNodes(nodes.coords[instance], demand))
        return self.nearby(alone, some).squeeze(1)

    def neighbourhood(self, encoded: Encoded, state: RouteState) -> Neighbourhood:
        """Find the K nearest open nodes; for the CVRP customers only."""
        assert state.current is not None
        coords, depots = encoded.nodes.coords, int(self.problem == "cvrp")
        here = coords.gather(1, state.current[..., None].expand(-1, -1, 2))
        distance = (coords[:, None, depots:] - here[:, :, None]).norm(dim=3)
        distance = distance - state.blocked[..., depots:]  # + inf where blocked
        nearest = distance.topk(min(self.config.neighbours, distance.shape[2]), dim=2, largest=False)
        real = nearest.values.isfinite()
        kept = nearest.values.masked_fill(~real, 0.0)
        return Neighbourhood(nearest.indices + depots, real, kept, kept.amax(dim=2, keepdim=True))

    def features(self, encoded: Encoded, state: RouteState, around: Neighbourhood) -> Tensor:
        """Features of the tokens, ``(B, P, T, F)``: relative distance, angle, and for the CVRP demand per capacity left."""
        assert state.current is not None
        offsets = []
        for axis in encoded.nodes.coords.unbind(2):
            there = axis[:, None].expand(-1, state.current.shape[1], -1).gather(2, around.nodes)
            offsets.append(there - axis.gather(1, state.current)[..., None])
        columns = [around.distance / (around.farthest + EPSILON), torch.atan2(offsets[1], offsets[0])]
        if encoded.nodes.demand is None or state.room is None:
            return torch.stack(columns, dim=3) * around.real[..., None]
        demand = encoded.nodes.demand[:, None].expand(-1, state.current.shape[1], -1).gather(2, around.nodes)
        # With an empty vehicle only customers without demand are open.
        columns.append(demand / torch.where(state.room > 0, state.room, 1.0)[..., None])
        customers = torch.stack(columns, dim=3) * around.real[..., None]
        return torch.cat([torch.zeros_like(customers[:, :, :1]), customers], dim=2)

    def visible(self, state: RouteState, around: Neighbourhood) -> Tensor:
        """Return which tokens the local policy may look at, ``(B, P, T)`` bool."""
        if self.problem == "tsp":
            return around.real
        return torch.cat([state.blocked[..., :1] == 0, around.real], dim=2)


def build(config: ElgConfig, logit_scale: LogitScale | None = None) -> Elg:
    """Build the policy with fresh weights (PyTorch's default initialisation, as the official code)."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of elg", config.problem, ["tsp", "cvrp"])
    return Elg(config, logit_scale or none)


OFFICIAL_LOCAL = ("decoder.local_policy_0.", "decoder.local_policies.0.")
OFFICIAL_LOCAL_NAMES = {
    "cur_token_emb": "query_token",
    "init_emb.weight": "embedding.weight",
    "init_emb.bias": "embedding.bias",
    "Wq.weight": "query.weight",
    "Wk.weight": "key.weight",
    "Wv.weight": "value.weight",
    "multi_head_combine.weight": "combine.weight",
    "multi_head_combine.bias": "combine.bias",
}


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of gaocrr/ELG; unknown keys stay as they are."""
    ours, left = {}, dict(state)
    for prefix in OFFICIAL_LOCAL:
        for official, mine in OFFICIAL_LOCAL_NAMES.items():
            if prefix + official in left:
                ours[f"local.{mine}"] = left.pop(prefix + official)
    return ours | pomo_from_official(left)
