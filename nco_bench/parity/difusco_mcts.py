"""Parity of DIFUSCO's tree search: heat map, random numbers, and every stage of a search with a counted clock."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nco_bench.parity.fixture import Checks, Fixture, ParityResult, result
from nco_bench.solvers.edges import mcts_kernels as kernels
from nco_bench.solvers.edges.mcts import Budget, Heat, Search, begin, prepare, stages, tour_of
from nco_bench.solvers.edges.merge import edge_map, lengths

WEIGHT_TOLERANCE = 1e-9


def check(fixture: Fixture) -> ParityResult:
    """Compare what the fixture holds."""
    checks = Checks()
    coords = fixture.input("points").numpy()
    edges = edge_map(coords, fixture.input("heatmap").numpy())
    heat = prepare(edges, fixture.option("expected_valid_prob"))
    checks.close("prepared_heatmap", _matrix(len(coords), heat), fixture.wanted("prepared_heatmap"))
    seed = fixture.option("random_seed")
    if fixture.has("input.rand"):
        random = kernels.seeded(seed)
        drawn = [kernels.random_number(random) for _ in fixture.input("rand")]
        checks.same("rand", torch.tensor(drawn), fixture.input("rand"))
    search = begin(coords, heat, seed)
    checks.same("candidate_num", torch.from_numpy(search.counts), fixture.wanted("candidate_num"))
    expected = fixture.wanted("candidates")
    if expected is not None:
        checks.same("candidates", torch.from_numpy(search.candidates)[:, : expected.shape[1]], expected)
    asked, rounds = _search(fixture, checks, search)
    best = tour_of(search.best)
    _compare(fixture, checks, search, "final", best, kernels.BEST)
    checks.same("restarts", torch.tensor([rounds - 1]), fixture.wanted("restarts"))
    # The official program also asks for the time when it begins.
    checks.same("clock_checks", torch.tensor([asked + 1]), fixture.wanted("clock_checks"))
    length = lengths(coords, best, np.roll(best, -1)).sum(keepdims=True)
    checks.close("final_length", torch.from_numpy(length), fixture.wanted("final_length"))
    return result(fixture, "difusco", "tsp", checks)


def _search(fixture: Fixture, checks: Checks, search: Search) -> tuple[int, int]:
    """Search until the counted clock stops it; return how often it was asked, and the number of rounds.

    The stages of the first round are called by their names, later rounds ``restartN`` where they end.
    """
    most, asked, rounds = fixture.option("time_checks"), 0, 0

    def early() -> bool:
        nonlocal asked
        asked += 1
        return asked <= most

    for stage in stages(search, Budget(early, early, lambda: False)):
        rounds += stage == "init"
        name = stage if rounds == 1 else f"restart{rounds - 1}" if stage == "mcts" else ""
        if not name:
            continue
        _compare(fixture, checks, search, name, tour_of(search.onward), kernels.LENGTH)
        if fixture.wants(f"weight_{name}", f"chosen_{name}"):
            _compare_knowledge(fixture, checks, search, name)
    return asked, rounds


def _compare(
    fixture: Fixture, checks: Checks, search: Search, name: str, tour: NDArray[np.int64], length: int
) -> None:
    """Compare a tour, its length and the counters."""
    checks.same(f"{name}_tour", torch.from_numpy(tour), fixture.wanted(f"{name}_tour"))
    found = {
        "int_length": search.counters[length],
        "rand_used": search.random[32],
        "total_simulations": search.counters[kernels.SIMULATIONS],
    }
    for key, value in found.items():
        checks.same(f"{name}_{key}", torch.tensor([int(value)]), fixture.wanted(f"{name}_{key}"))


def _compare_knowledge(fixture: Fixture, checks: Checks, search: Search, name: str) -> None:
    """Compare weights, the diagonal apart (never read), and the visits of candidates (others are never read)."""
    n = len(search.points)
    weights, visits = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.int64)
    candidate = torch.zeros(n, n, dtype=torch.bool)
    for city in range(n):
        others = torch.from_numpy(search.others[city, : search.filled[city]])
        weights[city, others] = torch.from_numpy(search.weights[city, : search.filled[city]])
        visits[city, others] = torch.from_numpy(search.visits[city, : search.filled[city]])
        candidate[city, torch.from_numpy(search.candidates[city, : search.counts[city]])] = True
    expected, chosen = fixture.wanted(f"weight_{name}"), fixture.wanted(f"chosen_{name}")
    if expected is not None:
        checks.close(f"weight_{name}", weights, expected.clone().fill_diagonal_(0), WEIGHT_TOLERANCE)
    if chosen is not None:
        checks.same(f"chosen_{name}", visits[candidate], chosen[candidate])


def _matrix(n: int, heat: Heat) -> Tensor:
    matrix = np.zeros((n, n))
    matrix[heat.first, heat.second] = heat.share
    return torch.from_numpy(matrix)
