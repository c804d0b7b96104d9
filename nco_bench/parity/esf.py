"""Parity of the official ESF code (xybFight/VRP-Generalization): the factor on POMO for TSP, and on Omni-VRP for CVRP.

Both networks are POMO's; as published, Omni-VRP normalises over batch and nodes together. Every softmax, the last one
too, is applied to log_50(n) times its logits, where the official attention reads n off its queries: nodes in the encoder,
starts in the decoder.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nco_bench.errors import BadInputError
from nco_bench.nn.build import load_official
from nco_bench.nn.logit_scale import ScaleContext, esf
from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.parity.pomo import official_rows
from nco_bench.parity.trajectories import lengths_of, replay
from nco_bench.solvers.stepwise.glimpse import Glimpse
from nco_bench.solvers.stepwise.policy import RouteState, RoutingNodes
from nco_bench.solvers.stepwise.pomo import InstanceNorm, Pomo, PomoConfig, build
from nco_bench.solvers.stepwise.problem import RoutingProblem, cvrp_demands

NORMS = ("instance", "batch_no_track")
"""POMO's normalisation of each instance, which stands where none is named; Omni-VRP's over batch and nodes together."""


class BatchNormNow(InstanceNorm):
    """Normalise each channel over all nodes of the batch at hand, without running statistics."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, ``(B, N, D)``."""
        return super().forward(x.reshape(1, -1, x.shape[2])).view_as(x)


class EsfPomo(nn.Module):
    """POMO with the factor where the official code has it.

    Parameters
    ----------
    pomo
        The network.
    base
        Base of the logarithm.
    starts
        Trajectories that are decoded together.
    """

    needs_start = True

    def __init__(self, pomo: Pomo, base: int, starts: int) -> None:
        super().__init__()
        self.pomo, self.base, self.starts, self.problem = pomo, base, starts, pomo.problem

    def factor(self, n: int) -> float:
        """Return log_base(n)."""
        return esf(ScaleContext(n, n, self.pomo.config.head_dim, self.base))

    def encode(self, nodes: RoutingNodes) -> Glimpse:
        """Run the encoder and prepare the decoder."""
        x = self.pomo.encoder(nodes, self.factor(nodes.coords.shape[1]))
        return self.pomo.decoder.prepare(x, self.factor(self.starts) / math.sqrt(self.pomo.config.head_dim))

    def logits(self, encoded: Glimpse, state: RouteState) -> Tensor:
        """Return the clipped and masked logits times the factor, ``(B, P, N)``."""
        return self.pomo.logits(encoded, state) * self.factor(state.blocked.shape[2])


def check(fixture: Fixture) -> ParityResult:
    """Compare what a fixture of the official ESF code holds: encoder, decoder steps, greedy trajectories."""
    cvrp, checks = fixture.has("input.depot_node_xy"), Checks()
    policy, problem = _policy(fixture, cvrp), _problem(fixture, cvrp)
    starts = torch.arange(fixture.option("pomo_size")) + int(cvrp)
    with torch.inference_mode():
        nodes = problem.nodes()
        x = policy.pomo.encoder(nodes, policy.factor(nodes.coords.shape[1]))
        checks.close("encoded_nodes", x, fixture.wanted("encoded_nodes"))
        for step in fixture.groups(r"step\d+"):
            current, blocked = fixture.input(f"{step}.current_node"), fixture.input(f"{step}.ninf_mask")
            room = fixture.input(f"{step}.load") if cvrp else None
            state = RouteState(None if cvrp else starts.expand_as(current), current, blocked, room)
            probabilities = policy.logits(policy.encode(nodes), state).softmax(dim=2)
            checks.close(f"{step}.probs", probabilities, fixture.wanted(f"{step}.probs"))
        done = replay(policy, problem, len(starts), starts=starts.expand(len(problem.coords), -1))
    lengths = lengths_of(problem, done.nodes)
    checks.same("tours", official_rows(problem, done.nodes), fixture.wanted("tours"))
    checks.close("costs", lengths, fixture.wanted("costs"))
    checks.close("best_costs", lengths.amin(dim=1), fixture.wanted("best_costs"))
    return result(fixture, "pomo + esf", "cvrp" if cvrp else "tsp", checks)


def _policy(fixture: Fixture, cvrp: bool) -> EsfPomo:
    config = PomoConfig(
        "cvrp" if cvrp else "tsp",
        fixture.size("embedding_dim"),
        fixture.size("head_num"),
        fixture.size("qkv_dim"),
        fixture.size("ff_hidden_dim"),
        fixture.size("encoder_layer_num"),
        fixture.size("logit_clipping"),
    )
    norm = fixture.sizes.get("norm") or "instance"
    if norm not in NORMS:
        raise BadInputError(
            f"{fixture.path.with_suffix('.json')}: norm {norm!r} is unknown; ours are {' and '.join(NORMS)}."
        )
    pomo = build(config)
    if norm == "batch_no_track":
        for layer in pomo.encoder.layers:
            layer.norm_attention = BatchNormNow(config.width)
            layer.norm_feed_forward = BatchNormNow(config.width)
    load_official(pomo, "pomo", fixture.state_dict, str(fixture.path))
    return EsfPomo(pomo, fixture.option("esf_baseline"), fixture.option("pomo_size")).eval()


def _problem(fixture: Fixture, cvrp: bool) -> RoutingProblem:
    if not cvrp:
        return RoutingProblem(fixture.input("coords"))
    # The official masks forgive rounding errors of 1e-5, which is to count in whole numbers.
    share, capacity = fixture.input("demand"), float(fixture.option("capacity"))
    demand = F.pad((share * capacity).round(), (1, 0))
    return RoutingProblem(
        fixture.input("depot_node_xy"), cvrp_demands(demand, torch.full((len(demand),), capacity))
    )
