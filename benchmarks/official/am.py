"""AM against github.com/wouterkool/attention-learn-to-route: greedy, sampling, and an update of the first epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.decode import decode_encode_once
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn, routes
from official.updates import sampled_update

CASES = (
    *(Case("am", problem, size, "greedy", 128) for problem in ("tsp", "cvrp") for size in (20, 50, 100)),
    Case("am", "tsp", 50, "sample:1280", 1),
    Case("am", "cvrp", 50, "sample:1280", 1),
    Case("am", "tsp", 50, "update", 64),
    Case("am", "cvrp", 50, "update", 64),
)


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    first_on_path([checkout])
    theirs = separated(network(case.problem), 1.5)
    if case.decoding == "update":
        return Pair([update(theirs, case)], sampled_update(case, theirs.state_dict()), None)
    ours = build_path_policy("am", case.problem)
    load_official(ours, "am", theirs.state_dict())
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding(case.decoding)

    def solve() -> Any:
        return decode_encode_once(ours, *some.given, decoding=decoding)

    if case.decoding != "greedy":
        return Pair([sampled(theirs, some, decoding.k)], solve, None)
    batches = {batch for batch in (64, 128) if batch <= case.batch}
    return Pair([greedy(theirs, some, batch) for batch in sorted(batches)], solve, same_rows)


def network(problem: str) -> Any:
    """Build the official network."""
    from nets.attention_model import AttentionModel
    from problems import CVRP, TSP
    from problems.tsp.state_tsp import StateTSP
    from problems.vrp.state_cvrp import StateCVRP

    for state in (StateTSP, StateCVRP):
        # Their byte masks index like booleans in the PyTorch of 2019; today's refuses, so the state hands out booleans.
        state.get_mask = lambda self, official=state.get_mask: official(self).bool()
    return AttentionModel(128, 128, TSP if problem == "tsp" else CVRP, n_encode_layers=3)


def as_official(some: Instances) -> Any:
    """Return instances as the official code takes them."""
    if some.demand is None:
        return some.coords
    return {"loc": some.coords[:, 1:], "depot": some.coords[:, 0], "demand": some.shares}


def greedy(model: Any, some: Instances, batch: int) -> Side:
    """Solve as the official evaluation does, so many at a time."""

    def solve() -> Any:
        model.set_decode_type("greedy")
        with torch.no_grad():
            parts = [
                model(as_official(some.take(first, batch)), return_pi=True)[2]
                for first in range(0, len(some.coords), batch)
            ]
        return [row for part in parts for row in (part.tolist() if some.demand is None else routes(part))]

    return solve


def sampled(model: Any, some: Instances, count: int) -> Side:
    """Draw solutions and keep the best, as the official evaluation does."""

    def solve() -> Any:
        model.set_decode_type("sampling")
        with torch.no_grad():
            return model.sample_many(as_official(some), batch_rep=count, iter_rep=1)

    return solve


def update(model: Any, case: Case) -> Side:
    """Do what the official `train_batch` does in its first epoch, whose baseline is a moving average of costs."""
    some = drawn(case.problem, case.size, case.batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    average: list[float] = []

    def step() -> float:
        model.train()
        model.set_decode_type("sampling")
        cost, log_likelihood = model(as_official(some))
        average[:] = [0.8 * average[0] + 0.2 * float(cost.mean()) if average else float(cost.mean())]
        loss = ((cost - average[0]) * log_likelihood).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step
