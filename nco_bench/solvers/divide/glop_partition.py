"""GLOP's partition network for the CVRP (GLOP-G): a graph network whose edges say which customers share a route.

Every node looks at the k nodes whose direction from the depot is most similar. The network is that of DeepACO: gated
sums over edges, mean aggregation, and a head whose softmax runs over the k edges of a node. A layer updates nodes and
edges from the old values of both.

Letters in shapes: N nodes (the depot first), k edges of each, U units.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.nn.layers import works_in_place
from nco_bench.solvers.divide.glop_quick import ENTRIES_AT_A_TIME, compiled_for, quick_layer

EDGES_AT_A_TIME = 2**17
"""Edges that a layer updates together, where statistics are not taken over all of them, on a GPU."""

SMALLEST = 1e-5
"""Added to all entries of the heatmap, and to the smallest output before it divides the others."""


class GraphLayer(nn.Module):
    """x + SiLU(BN(A1 x_i + mean_j sigmoid(w_ij) A2 x_j)) and w + SiLU(BN(A0 w_ij + A3 x_i + A4 x_j))."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.own, self.other = nn.Linear(units, units), nn.Linear(units, units)
        self.edge, self.source, self.target = (nn.Linear(units, units) for _ in range(3))
        self.node_norm, self.edge_norm = nn.BatchNorm1d(units), nn.BatchNorm1d(units)

    def forward(
        self, x: Tensor, edges: list[Tensor], neighbours: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Update nodes ``(N, U)`` and edges, blocks of ``(n, k, U)``."""
        if compiled_for(x, self.edge_norm):
            return quick_layer(self, x, edges, neighbours), edges
        other, source, target = self.other(x), self.source(x), self.target(x)
        sums, updated, at = [], [], 0
        for w, to in zip(edges, neighbours, strict=True):
            sums.append((w.sigmoid() * other[to]).mean(dim=1))
            inner = self.edge(w) + source[at : at + len(w), None] + target[to]
            updated.append(w + F.silu(self.edge_norm(inner.flatten(0, 1)).view_as(w)))
            at += len(w)
        return x + F.silu(self.node_norm(self.own(x) + torch.cat(sums))), updated


class PartitionNetwork(nn.Module):
    """From features of nodes and edges to a distribution over the edges of each node."""

    def __init__(self, units: int, depth: int) -> None:
        super().__init__()
        self.node_embedding, self.edge_embedding = nn.Linear(3, units), nn.Linear(2, units)
        self.layers = nn.ModuleList(GraphLayer(units) for _ in range(depth))
        self.head = nn.ModuleList([nn.Linear(units, units), nn.Linear(units, units), nn.Linear(units, 1)])

    def forward(self, nodes: Tensor, edges: Tensor, neighbours: Tensor) -> Tensor:
        """Compute edge probabilities.

        Parameters
        ----------
        nodes, edges
            ``(N, 3)`` and ``(N, k, 2)`` features, see `nco_bench.solvers.divide.glop_routes`.
        neighbours
            ``(N, k)`` int64: where the edges of each node lead.

        Returns
        -------
        Tensor
            ``(N, k)``; rows sum to one.
        """
        count, k = neighbours.shape
        x = F.silu(self.node_embedding(nodes))
        rows = count if self.training else max(1, EDGES_AT_A_TIME // k)
        if not self.training and works_in_place(x):
            rows = max(1, ENTRIES_AT_A_TIME // (k * x.shape[1]))
        to = list(neighbours.split(rows))
        w = [F.silu(self.edge_embedding(part)) for part in edges.split(rows)]
        for layer in self.layers:
            x, w = layer(x, w, to)
        return torch.cat([self._scores(part) for part in w]).softmax(dim=1)

    def _scores(self, w: Tensor) -> Tensor:
        for layer in self.head[:-1]:
            w = F.silu(layer(w))
        return self.head[-1](w).squeeze(2)


def affinities(probabilities: Tensor) -> Tensor:
    """Scale edge probabilities ``(N, k)`` to entries of the heatmap, whose other entries are all `SMALLEST`."""
    return probabilities / (probabilities.min() + SMALLEST) + SMALLEST


OFFICIAL = {
    r"emb_net\.v_lin0\.": "node_embedding.",
    r"emb_net\.e_lin0\.": "edge_embedding.",
    r"emb_net\.v_lins1\.(\d+)\.": r"layers.\1.own.",
    r"emb_net\.v_lins2\.(\d+)\.": r"layers.\1.other.",
    r"emb_net\.v_lins3\.(\d+)\.": r"layers.\1.source.",
    r"emb_net\.v_lins4\.(\d+)\.": r"layers.\1.target.",
    r"emb_net\.e_lins0\.(\d+)\.": r"layers.\1.edge.",
    r"emb_net\.v_bns\.(\d+)\.module\.": r"layers.\1.node_norm.",
    r"emb_net\.e_bns\.(\d+)\.module\.": r"layers.\1.edge_norm.",
    r"par_net_heu\.lins\.(\d+)\.": r"head.\1.",
}


def partition_from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate a state dict of henry-yeh/GLOP's partition network; unknown keys stay as they are."""
    ours = {}
    for key, value in state.items():
        if key.endswith("._dummy"):
            continue
        for pattern, name in OFFICIAL.items():
            renamed, found = re.subn(pattern, name, key)
            if found:
                ours[renamed] = value
                break
        else:
            ours[key] = value
    return ours
