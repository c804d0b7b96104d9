"""GLOP, "Learning Global Partition and Local Construction for Solving Large-scale Routing Problems" (AAAI 2024).

Ye, Wang, Liang, Cao, Li, Li; official code henry-yeh/GLOP. A reviser reorders the inner nodes of a path whose two ends
stay where they are. It is the network of AM with six encoder layers, one set of weights per path length, decoded from
both ends; the official code keeps it under AM's names. For the CVRP a partition network
(`nco_bench.solvers.divide.glop_partition`) proposes the routes, which revisers then improve.

What the code does and the paper does not say: the query holds the start of the path in both directions, also where
decoding runs from its end; the nodes have no positions, although the checkpoints carry a table of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.nn.logit_scale import LogitScale
from nco_bench.solvers.divide.glop_partition import PartitionNetwork, partition_from_official
from nco_bench.solvers.stepwise import am
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes

Choose = Callable[[Tensor, int], Tensor]
"""From logits ``(S, 2, n)`` and the number of the decision to chosen nodes ``(S, 2)``."""

POSITIONS = "embedder.pe.pe"
"""A table in the official checkpoints that their network never reads."""


@dataclass(frozen=True)
class GlopConfig:
    """Sizes of GLOP; the defaults are the published models.

    Attributes
    ----------
    problem
        ``tsp`` (revisers alone) or ``cvrp`` (revisers and the partition network).
    lengths
        Path lengths that there is a reviser for, joined by commas.
    width, heads, ffn, layers
        Embedding width, attention heads, hidden width of the feed-forward layers, encoder layers of every reviser.
    clip
        Half range of the logits.
    units, depth
        Width and layers of the partition network.
    """

    problem: str = "tsp"
    lengths: str = "100,50,20,10"
    width: int = 128
    heads: int = 8
    ffn: int = 512
    layers: int = 6
    clip: float = 10.0
    units: int = 48
    depth: int = 12


def config_for(name: str, problem: str) -> GlopConfig:
    """Return the configuration of the published models."""
    return GlopConfig("tsp") if problem == "tsp" else GlopConfig("cvrp", lengths="50,20")


class Glop(nn.Module):
    """Revisers by length, and for the CVRP the partition network."""

    def __init__(self, config: GlopConfig) -> None:
        super().__init__()
        self.config, self.problem = config, config.problem
        sizes = am.AmConfig("tsp", config.width, config.heads, config.ffn, config.layers, config.clip)
        self.revisers = nn.ModuleDict({str(n): am.Am(sizes) for n in lengths_of(config.lengths)})
        if config.problem == "cvrp":
            self.partition = PartitionNetwork(config.units, config.depth)

    @property
    def lengths(self) -> list[int]:
        """Path lengths that there is a reviser for, as configured."""
        return [int(key) for key in self.revisers]

    def reviser(self, length: int) -> am.Am:
        """Return the reviser of a length; raises `BadInputError` where there is none."""
        if str(length) not in self.revisers:
            raise BadInputError(f"glop: no reviser of length {length} among {self.config.lengths}.")
        return cast("am.Am", self.revisers[str(length)])


def lengths_of(text: str) -> list[int]:
    """Parse path lengths; raises `BadInputError` for anything but whole numbers of at least 4, each once."""
    parts = text.replace("-", ",").split(",")
    values = [int(part) for part in parts if part.isdecimal()]
    if len(values) != len(parts) or min(values) < 4 or len(set(values)) < len(values):
        raise BadInputError(
            f"glop: lengths={text!r}: expected different whole numbers >= 4, such as 100,50,20."
        )
    return values


def both_ways(reviser: am.Am, coords: Tensor, choose: Choose, logits: list[Tensor] | None = None) -> Tensor:
    """Reorder paths from their start and, independently, from their end.

    Parameters
    ----------
    reviser
        The network.
    coords
        ``(S, n, 2)`` in path order, n >= 2, as `nco_bench.solvers.divide.glop_revision.transformed` gives them.
    choose
        Picks the next node of each direction.
    logits
        The ``(S, 2, n)`` logits of each of the n - 2 decisions are appended here.

    Returns
    -------
    Tensor
        ``(S, 2, n)`` paths, both from node 0 to node n - 1.
    """
    batch, count, _ = coords.shape
    encoded = reviser.encode(RoutingNodes(coords))
    blocked = coords.new_zeros(batch, 2, count)
    blocked[:, :, [0, -1]] = -torch.inf
    first = torch.zeros(batch, 2, dtype=torch.int64, device=coords.device)
    ends = torch.tensor([0, count - 1], device=coords.device).expand(batch, 2)
    moves = [ends]
    for step in range(count - 2):
        scores = reviser.logits(encoded, RouteState(first, moves[-1], blocked))
        if logits is not None:
            logits.append(scores)
        chosen = choose(scores, step)
        blocked = blocked.scatter(2, chosen[..., None], -torch.inf)
        moves.append(chosen)
    moves.append(ends.flip(1))
    paths = torch.stack(moves, dim=2)
    return torch.stack([paths[:, 0], paths[:, 1].flip(1)], dim=1)


def build(config: GlopConfig, logit_scale: LogitScale | None = None) -> Glop:
    """Build the networks with fresh weights."""
    if config.problem not in ("tsp", "cvrp"):
        raise UnknownNameError("problem of glop", config.problem, ["tsp", "cvrp"])
    if logit_scale is not None:
        raise BadInputError("glop: --logit-scale has no effect on its revisers; leave it out.")
    return Glop(config)


def _parts(state: dict[str, Tensor]) -> tuple[dict[int, dict[str, Tensor]], dict[str, Tensor]]:
    """Split ``reviser100.KEY`` and so on from the keys of the partition network."""
    revisers: dict[int, dict[str, Tensor]] = {}
    rest: dict[str, Tensor] = {}
    for key, value in state.items():
        found = re.match(r"reviser(\d+)\.", key)
        if found is None:
            rest[key] = value
        elif not key.endswith(POSITIONS):
            revisers.setdefault(int(found[1]), {})[key.removeprefix(found[0])] = value
    return revisers, rest


def from_official(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Translate official revisers, each under ``reviser<length>.``, and the partition network of the CVRP."""
    revisers, rest = _parts(state)
    ours: dict[str, Tensor] = {}
    for length, part in revisers.items():
        ours |= {f"revisers.{length}.{key}": value for key, value in am.from_official(part).items()}
    return ours | {f"partition.{key}": value for key, value in partition_from_official(rest).items()}


def config_of(state: dict[str, Tensor], problem: str) -> GlopConfig:
    """Read sizes off an official state dict, revisers under ``reviser<length>.``.

    Raises
    ------
    BadWeightsError
        When it holds no reviser, or no partition network where one is needed.
    """
    revisers, rest = _parts(state)
    if not revisers:
        raise BadWeightsError(
            "glop: no revisers found; give a folder with a file or folder per length (reviser_100, reviser_50, ...)."
        )
    some = next(iter(revisers.values()))
    needed = [
        "init_embed.weight",
        "embedder.layers.0.0.module.W_query",
        "embedder.layers.0.2.module.0.weight",
    ]
    if problem == "cvrp":
        needed.append("v_lin0.weight")
    for key in needed:
        if not any(name == key or name == f"emb_net.{key}" for name in (*some, *rest)):
            raise BadWeightsError(f"glop: not official weights of glop for {problem}, {key} is missing.")
    partition = {}
    if problem == "cvrp":
        depth = sum(bool(re.fullmatch(r"emb_net\.v_lins1\.\d+\.weight", key)) for key in rest)
        partition = {"units": rest["emb_net.v_lin0.weight"].shape[0], "depth": depth}
    return GlopConfig(
        problem,
        ",".join(str(n) for n in sorted(revisers, reverse=True)),
        width=some["init_embed.weight"].shape[0],
        heads=some["embedder.layers.0.0.module.W_query"].shape[0],
        ffn=some["embedder.layers.0.2.module.0.weight"].shape[0],
        layers=sum(key.endswith(".0.module.W_query") for key in some),
        **partition,
    )
