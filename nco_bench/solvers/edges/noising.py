"""The forward process of DIFUSCO (Section 3): tours as edges, edges with noise, and the loss of undoing it.

What the official code does and the paper does not say: an edge leads from a node to the next one of the tour, not back;
what the network sees is stretched by up to a twentieth, edge by edge; the sparse instances of a batch are one graph, over
which the normalisation before the output runs.

Letters in shapes: B graphs, N nodes, K edges per node (N in the complete graph), C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nco_bench.solvers.edges.difusco import Difusco, DifuscoConfig, EdgeGraph, kept

STRETCH = 0.05


def tour_edges(following: Tensor, neighbours: Tensor | None) -> Tensor:
    """Return which edges are in the tour.

    Parameters
    ----------
    following
        ``(B, N)`` int64, the node that comes after each node.
    neighbours
        ``(B, N, K)`` int64, see `EdgeGraph`; None for the complete graph.

    Returns
    -------
    Tensor
        ``(B, N, K)`` of 0 and 1; a node whose next one is no neighbour has no edge.
    """
    ends = torch.arange(following.shape[1], device=following.device) if neighbours is None else neighbours
    return (ends == following[:, :, None]).float()


def edge_probability(config: DifuscoConfig, edges: Tensor, time: Tensor) -> Tensor:
    """Return the probability that an edge is there at times ``(B,)``, ``(B, N, K)`` (categorical)."""
    return (1 + _share(config, edges, time) * (2 * edges - 1)) / 2


def noised(config: DifuscoConfig, edges: Tensor, time: Tensor, draws: Tensor, stretch: Tensor) -> Tensor:
    """Return what the network sees of a tour.

    Parameters
    ----------
    edges
        ``(B, N, K)``, see `tour_edges`.
    time
        ``(B,)`` int64, 1 to T.
    draws
        ``(B, N, K)``: uniform in [0, 1) for categorical diffusion, the normal noise for Gaussian.
    stretch
        ``(B, N, K)`` uniform in [0, 1).

    Returns
    -------
    Tensor
        ``(B, N, K)``, around -1 and 1; edges that are there at that time, or the tour under noise.
    """
    factor = 1 + STRETCH * stretch
    if config.kind == "gaussian":
        share = _share(config, edges, time)
        return share.sqrt() * (2 * edges - 1) * factor + (1 - share).sqrt() * draws
    there = (draws < edge_probability(config, edges, time)).to(edges.dtype)
    return (2 * there - 1) * factor


def _share(config: DifuscoConfig, edges: Tensor, time: Tensor) -> Tensor:
    """Return how much of the signal is left at times ``(B,)``, ``(B, 1, 1)``."""
    return torch.from_numpy(kept(config)).float().to(edges.device)[time][:, None, None]


def denoised(model: Difusco, graph: EdgeGraph, state: Tensor, time: Tensor) -> Tensor:
    """Run the network as in training: instances of sparse graphs are one graph, each node with the time of its instance.

    Parameters
    ----------
    state, time
        ``(B, N, K)`` and ``(B,)``.

    Returns
    -------
    Tensor
        ``(B, N, K, C)``.
    """
    if graph.neighbours is None:
        return model(graph, state, time.float())
    batch, nodes, degree = graph.shape
    ends = graph.neighbours + torch.arange(batch, device=state.device)[:, None, None] * nodes
    joined = EdgeGraph(graph.coords.reshape(1, -1, 2), ends.reshape(1, -1, degree))
    times = time.float()[:, None].expand(batch, nodes).reshape(1, -1)
    return model(joined, state.reshape(1, -1, degree), times).view(batch, nodes, degree, -1)


def denoising_loss(config: DifuscoConfig, output: Tensor, edges: Tensor, draws: Tensor) -> Tensor:
    """Return the mean over all edges: of the cross-entropy of the tour's edges, or of the squared error of the noise.

    Parameters
    ----------
    output
        ``(B, N, K, C)``.
    edges, draws
        As `noised` took them.
    """
    if config.kind == "gaussian":
        return F.mse_loss(output[..., 0].float(), draws)
    return F.cross_entropy(output.float().flatten(0, 2), edges.long().flatten())
