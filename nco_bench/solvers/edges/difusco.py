"""DIFUSCO, "Graph-based Diffusion Solvers for Combinatorial Optimization" (Sun and Yang, NeurIPS 2023), for the TSP.

An anisotropic graph network sees the cities, a noisy set of edges and the time step; it predicts the edges of the tour
(categorical diffusion) or the noise (Gaussian diffusion). Run backwards in time from pure noise, it leaves a score for every
edge, the heat map that `nco_bench.solvers.edges.merge` turns into a tour (Section 3 for all of it).

What the official code (Edward-Sun/DIFUSCO) does and the paper does not say: at inference the categorical state enters as 0
and 1, though training shows the network values around -1 and 1; the official checkpoints are used this way. The
normalisation before the output runs over all edges of an instance. Difference here: several samples of one sparse instance
are normalised each on its own, where the official code joins them to one graph.

The complete graph and the graph of K nearest neighbours are one layout, the edges of node i being row i; edges are worked
on a few rows at a time, so that one tensor of all edges is all the memory there is. Letters in shapes: B graphs, N nodes,
K edges per node (N in the complete graph), W width, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.nn.device import PerDevice
from nco_bench.nn.layers import works_in_place
from nco_bench.solvers.edges.difusco_quick import compiled_for, quick_layer
from nco_bench.solvers.edges.difusco_training import compiled_training_for, trained_layer

KINDS = {"categorical": 2, "gaussian": 1}
"""Kinds of diffusion, and the number of outputs per edge."""
NOISES = ("linear", "cosine")
SCHEDULES = ("cosine", "linear")
GROUPS = 32
LONGEST_PERIOD = 10_000.0
ENTRIES_AT_A_TIME = PerDevice(cpu=2**17, gpu=2**26)
"""Floats of the edges worked on together: they fit the cache of a CPU."""


@dataclass(frozen=True)
class DifuscoConfig:
    """Sizes and process; the defaults are those of the published models.

    Attributes
    ----------
    layers, width
        Of the network; the width is a multiple of 32.
    kind
        ``categorical`` or ``gaussian``.
    noise, timesteps
        How the noise grows, ``linear`` or ``cosine``, over how many steps.
    """

    problem: str = "tsp"
    layers: int = 12
    width: int = 256
    kind: str = "categorical"
    noise: str = "linear"
    timesteps: int = 1000

    def __post_init__(self) -> None:
        for what, value, known in (("kind", self.kind, KINDS), ("noise", self.noise, NOISES)):
            if value not in known:
                raise UnknownNameError(f"{what} of difusco", value, known)
        if self.width < 1 or self.width % GROUPS or min(self.layers, self.timesteps) < 1:
            raise BadInputError(
                f"difusco: width {self.width}, {self.layers} layers, {self.timesteps} timesteps: the width must be a "
                f"multiple of {GROUPS}, the others at least 1."
            )


# The processes: how edges are noised, and which steps inference takes.


def kept(config: DifuscoConfig) -> NDArray[np.float64]:
    """Return how much of the signal is left after 0, 1, ... T steps, the product of 1 - beta; ``(T + 1,)``."""
    steps = config.timesteps
    if config.noise == "linear":
        beta = np.linspace(1e-4, 2e-2, steps)
    else:
        wave = np.cos(0.5 * np.pi * (np.arange(steps + 1) / steps + 0.008) / 1.008) ** 2
        beta = np.minimum(1 - wave[1:] / wave[:-1], 0.999)
    return np.cumprod(np.concatenate([[1.0], 1 - beta]))


def transition(share: float) -> NDArray[np.float64]:
    """Return the 2 x 2 probabilities to go from class to class when `share` of the signal is kept.

    Products of ``Q_t = (1 - beta) I + beta / 2`` have this form, the shares being multiplied, and so have quotients.
    """
    return np.array([[1 + share, 1 - share], [1 - share, 1 + share]]) / 2


# The network.


@dataclass(frozen=True)
class EdgeGraph:
    """Cities and the edges that are looked at.

    Attributes
    ----------
    coords
        ``(B, N, 2)`` in the unit square.
    neighbours
        ``(B, N, K)`` int64, the other end of every edge of a node, the node itself among them; None: all nodes.
    """

    coords: Tensor
    neighbours: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return B, N and K."""
        batch, nodes, _ = self.coords.shape
        return batch, nodes, nodes if self.neighbours is None else self.neighbours.shape[2]

    def at_ends(self, values: Tensor, rows: slice) -> Tensor:
        """Give the edges of some nodes the value of their other end, ``(B, N, W)`` to ``(B, 1 or R, K, W)``."""
        if self.neighbours is None:
            return values[:, None]
        batch, nodes, width = values.shape
        offset = torch.arange(batch, device=values.device)[:, None, None] * nodes
        ends = self.neighbours[:, rows] + offset
        return values.reshape(-1, width).index_select(0, ends.flatten()).view(*ends.shape, width)


def waves(values: Tensor, features: int) -> Tensor:
    """Embed numbers as sines and cosines in turn, periods from 2 pi to 10,000 times that; ``(...)`` to ``(..., F)``."""
    exponent = torch.arange(features // 2, device=values.device, dtype=torch.float32) * 2 / features
    angle = values[..., None] / LONGEST_PERIOD**exponent
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def time_waves(time: Tensor, features: int) -> Tensor:
    """Embed time steps: first all cosines, then all sines; ``(...)`` to ``(..., F)``."""
    half = features // 2
    feature = torch.arange(half, device=time.device, dtype=torch.float32)
    angle = time[..., None].float() * torch.exp(-math.log(LONGEST_PERIOD) * feature / half)
    return torch.cat([angle.cos(), angle.sin()], dim=-1)


class AnisotropicLayer(nn.Module):
    """Edges gate what nodes hear from their neighbours (after Joshi et al. 2020)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.U, self.V, self.A, self.B, self.C = (nn.Linear(width, width) for _ in range(5))
        self.norm_h, self.norm_e = nn.LayerNorm(width), nn.LayerNorm(width)
        self.time = nn.Linear(width // 2, width)
        self.norm_out, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, h: Tensor, edges: list[Tensor], time: Tensor, graph: EdgeGraph) -> Tensor:
        """Return the new nodes ``(B, N, W)``; the blocks of `edges` are replaced by new ones.

        Parameters
        ----------
        h
            ``(B, N, W)`` nodes.
        edges
            Blocks of rows, ``(B, R, K, W)`` each.
        time
            ``(B, 1 or N, W / 2)``.
        """
        moment = self.time(F.relu(time))
        if compiled_for(h):
            return quick_layer(self, h, edges, moment, graph)
        if compiled_training_for(h):
            h, edges[0] = trained_layer(self, h, edges[0], moment, graph)
            return h
        sent, values, heard = self.A(h), self.V(h), self.B(h)
        moment = moment[:, :, None]
        # Filled row by row: small tensors kept between large ones that come and go would leave holes in the memory.
        gathered = torch.empty_like(h)
        for index, rows in enumerate(block_rows(edges)):
            then = moment if moment.shape[1] == 1 else moment[:, rows]
            pre = self.C(edges[index]) + heard[:, rows, None] + graph.at_ends(sent, rows)
            gathered[:, rows] = (pre.sigmoid() * graph.at_ends(values, rows)).sum(dim=2)
            change = self.out(F.silu(self.norm_out(F.relu(self.norm_e(pre)) + then)))
            edges[index] = edges[index] + change if torch.is_grad_enabled() else edges[index].add_(change)
        return h + F.relu(self.norm_h(self.U(h) + gathered))


class Difusco(nn.Module):
    """The denoiser.

    Attributes
    ----------
    recomputes
        Training keeps what goes from layer to layer alone, and computes the rest again where gradients need it; the
        official training does so from 1,000 nodes on.
    """

    recomputes = False

    def __init__(self, config: DifuscoConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.node_embed, self.edge_embed = nn.Linear(width, width), nn.Linear(width, width)
        self.time_embed = nn.Sequential(
            nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, width // 2)
        )
        self.layers = nn.ModuleList(AnisotropicLayer(width) for _ in range(config.layers))
        self.norm, self.out = nn.GroupNorm(GROUPS, width), nn.Linear(width, KINDS[config.kind])

    def forward(self, graph: EdgeGraph, state: Tensor, time: Tensor) -> Tensor:
        """Predict the edges of the tour, or the noise.

        Parameters
        ----------
        graph
            Cities and edges.
        state
            ``(B, N, K)`` noisy edges.
        time
            ``(B,)`` time steps, or ``(B, N)`` one per node (official training joins sparse graphs to one).

        Returns
        -------
        Tensor
            ``(B, N, K, C)``: logits of no edge and edge, or the noise.
        """
        width = self.config.width
        h = self.node_embed(waves(2 * math.pi * graph.coords, width // 2).flatten(-2))
        moment = self.time_embed(time_waves(time, width))
        moment = moment[:, None] if time.dim() == 1 else moment
        entries = ENTRIES_AT_A_TIME.on(state.device)
        rows = max(1, entries // (state.shape[0] * state.shape[2] * width))
        rows = state.shape[1] if compiled_training_for(h) else rows
        edges = self._embedded(state, rows)
        for layer in self.layers:
            if self.recomputes and torch.is_grad_enabled():
                h, *edges = checkpoint(_pure, layer, graph, h, moment, *edges, use_reentrant=False)
            else:
                h = layer(h, edges, moment, graph)
        return self._head(edges)

    def _embedded(self, state: Tensor, rows: int) -> list[Tensor]:
        """Embed noisy edges ``(B, N, K)``, in blocks of `rows`; where all are 0 or 1, there are two rows to compute."""
        parts, width = state.split(rows, dim=1), self.config.width
        if works_in_place(state) and bool(((state == 0) | (state == 1)).all()):
            table = self.edge_embed(waves(torch.tensor([0.0, 1.0], device=state.device), width))
            return [F.embedding(part.long(), table) for part in parts]
        return [self.edge_embed(waves(part, width)) for part in parts]

    def _head(self, edges: list[Tensor]) -> Tensor:
        """Normalise over all edges of a graph by groups of features, then map each edge to its output."""
        batch, _, _, width = edges[0].shape
        count = sum(e.shape[1] * e.shape[2] for e in edges) * (width // GROUPS)
        mean = _by_group(sum(e.sum(dim=(1, 2)).double() for e in edges), count)  # type: ignore[arg-type]
        centre = mean.to(edges[0].dtype)[:, None, None]
        spread = sum((e - centre).square().sum(dim=(1, 2)).double() for e in edges)
        variance = _by_group(spread, count)  # type: ignore[arg-type]
        scale = self.norm.weight * (variance + self.norm.eps).rsqrt().to(centre.dtype)
        scale = scale.view(batch, 1, 1, width)
        nodes = sum(e.shape[1] for e in edges)
        output = centre.new_empty(batch, nodes, edges[0].shape[2], self.out.out_features)
        for e, rows in zip(edges, block_rows(edges), strict=True):
            output[:, rows] = self.out(F.relu((e - centre) * scale + self.norm.bias))
        return output


def _pure(
    layer: nn.Module, graph: EdgeGraph, h: Tensor, moment: Tensor, *edges: Tensor
) -> tuple[Tensor, ...]:
    """Apply a layer without a change of what it is given."""
    blocks = list(edges)
    return layer(h, blocks, moment, graph), *blocks


def _by_group(sums: Tensor, count: int) -> Tensor:
    """Turn sums over the edges, ``(B, W)``, into the mean of each feature's group, ``(B, W)``."""
    grouped = sums.unflatten(1, (GROUPS, -1))
    return (grouped.sum(dim=2, keepdim=True) / count).expand_as(grouped).flatten(1)


def block_rows(edges: list[Tensor]) -> Iterator[slice]:
    """Yield the rows of each block."""
    first = 0
    for block in edges:
        yield slice(first, first + block.shape[1])
        first += block.shape[1]


def config_for(name: str, problem: str) -> DifuscoConfig:
    """Return the published configuration."""
    if name != "difusco" or problem != "tsp":
        raise UnknownNameError("DIFUSCO model", f"{name} for {problem}", ["difusco"])
    return DifuscoConfig()


def build(config: DifuscoConfig, logit_scale: object = None) -> Difusco:
    """Build the network with fresh weights.

    Raises
    ------
    BadInputError
        If a logit scale is given: there is no attention.
    """
    if logit_scale is not None:
        raise BadInputError(
            "difusco: the network has no attention, so --logit-scale has no meaning; leave it out."
        )
    return Difusco(config)


def config_of(state: dict[str, Tensor], problem: str = "tsp") -> DifuscoConfig:
    """Read sizes and kind off an official state dict; the noise grows linearly in all published commands.

    Raises
    ------
    BadWeightsError
        If it is no state dict of DIFUSCO for the TSP.
    """
    state = {key.removeprefix("model."): value for key, value in state.items()}
    head, edge = state.get("out.2.weight"), state.get("edge_embed.weight")
    kinds = {channels: kind for kind, channels in KINDS.items()}
    if head is None or edge is None or edge.dim() != 2 or len(head) not in kinds or edge.shape[0] % GROUPS:
        raise BadWeightsError(
            "not official weights of difusco: edge_embed or out.2 is missing, or of another shape"
        )
    layers = len({key.split(".")[1] for key in state if key.startswith("layers.")})
    return DifuscoConfig(problem, layers=max(1, layers), width=edge.shape[0], kind=kinds[len(head)])


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of an official state dict, of the network or of the Lightning module around it (``model.``)."""
    state = {key.removeprefix("model."): value for key, value in state.items()}
    names: dict[str, str] = {}
    for layer in range(1 + max((int(k.split(".")[1]) for k in state if k.startswith("layers.")), default=-1)):
        ours = f"layers.{layer}"
        names |= {
            f"time_embed_layers.{layer}.1": f"{ours}.time",
            f"per_layer_out.{layer}.0": f"{ours}.norm_out",
            f"per_layer_out.{layer}.2": f"{ours}.out",
        }
    names |= {"out.0": "norm", "out.2": "out"}
    renamed = {}
    for key, value in state.items():
        place, _, what = key.rpartition(".")
        # The official output is a convolution of 1 x 1.
        renamed[f"{names.get(place, place)}.{what}"] = value.flatten(1) if key == "out.2.weight" else value
    return renamed
