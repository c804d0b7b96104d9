"""POMO against github.com/yd-kwon/POMO (`NEW_py_ver`): greedy from all starts, of eight symmetries, and an update."""

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
    *(Case("pomo", problem, size, "multistart", 16 if size < 100 else 4)
      for problem in ("tsp", "cvrp") for size in (20, 50, 100)),
    Case("pomo", "tsp", 100, "multistart+x8", 1),
    Case("pomo", "cvrp", 100, "multistart+x8", 1),
    Case("pomo", "tsp", 50, "update", 4),
    Case("pomo", "cvrp", 50, "update", 4),
)  # fmt: skip
SIZES = {
    "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "encoder_layer_num": 6, "qkv_dim": 16, "head_num": 8,
    "logit_clipping": 10, "ff_hidden_dim": 512, "eval_type": "argmax",
}  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    name = case.problem.upper()
    folder = checkout / "NEW_py_ver" / name
    first_on_path([folder / "POMO", folder])
    environment, network = __import__(f"{name}Env"), __import__(f"{name}Model")
    theirs = separated(getattr(network, f"{name}Model")(**SIZES), 1.5)
    if case.decoding == "update":
        step = update(environment, theirs, case)
        return Pair([step], sampled_update(case, theirs.state_dict()), None)
    ours = build_path_policy("pomo", case.problem)
    load_official(ours, "pomo", theirs.state_dict())
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding(case.decoding)

    def solve() -> Any:
        return decode_encode_once(ours, *some.given, decoding=decoding)

    batches = sorted({1, case.batch})
    copies = decoding.augmentation
    return Pair([official(environment, theirs, some, copies, batch) for batch in batches], solve, same_rows)


def official(environment: Any, model: Any, some: Instances, copies: int, batch: int) -> Side:
    """Solve in the official environment, so many at a time."""

    def part(few: Instances) -> list[list[int]]:
        env, count = loaded(environment, few, copies), len(few.coords)
        model.pre_forward(env.reset()[0])
        state, reward, done = env.pre_step()
        while not done:
            selected, _ = model(state)
            state, reward, done = env.step(selected)
        best = reward.reshape(copies, count, -1).permute(1, 0, 2).flatten(1).argmax(1)
        moves = env.selected_node_list
        moves = moves.reshape(copies, count, *moves.shape[1:]).permute(1, 0, 2, 3).flatten(1, 2)
        found = moves[torch.arange(count), best]
        return found.tolist() if few.demand is None else routes(found)

    def solve() -> list[list[int]]:
        with torch.no_grad():
            return [
                row for first in range(0, len(some.coords), batch) for row in part(some.take(first, batch))
            ]

    return solve


def loaded(environment: Any, few: Instances, copies: int) -> Any:
    """Return the official environment with these instances."""
    if few.demand is None:
        size = few.coords.shape[1]
        env = environment.TSPEnv(problem_size=size, pomo_size=size)
        environment.get_random_problems = lambda *_: few.coords
    else:
        size = few.coords.shape[1] - 1
        env = environment.CVRPEnv(problem_size=size, pomo_size=size)
        given = few.coords[:, :1], few.coords[:, 1:], few.shares
        environment.get_random_problems = lambda *_: given
    env.load_problems(len(few.coords), copies)
    return env


def update(environment: Any, model: Any, case: Case) -> Side:
    """Do what the official `_train_one_batch` does."""
    some = drawn(case.problem, case.size, case.batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-6)

    def step() -> float:
        model.train()
        env = loaded(environment, some, 1)
        model.pre_forward(env.reset()[0])
        state, reward, done = env.pre_step()
        probs = []
        while not done:
            selected, prob = model(state)
            state, reward, done = env.step(selected)
            probs.append(prob)
        log_prob = torch.stack(probs, dim=2).log().sum(dim=2)
        advantage = reward - reward.float().mean(dim=1, keepdims=True)
        loss = (-advantage * log_prob).mean()
        model.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step
