"""ELG against github.com/gaocrr/ELG: greedy from all starts, of eight symmetries, and an update."""

from __future__ import annotations

import importlib
import random
from pathlib import Path
from typing import Any

import torch
import yaml

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.decode import decode_encode_once
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn, routes
from official.updates import sampled_update

CASES = (
    *(Case("elg", problem, size, "multistart", batch)
      for problem in ("tsp", "cvrp") for size, batch in ((50, 4), (100, 1), (200, 1))),
    Case("elg", "tsp", 50, "multistart+x8", 1),
    Case("elg", "cvrp", 50, "multistart+x8", 1),
    Case("elg", "tsp", 50, "update", 4),
    Case("elg", "cvrp", 50, "update", 4),
)  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    name = case.problem.upper()
    first_on_path([checkout / name])
    sizes = yaml.safe_load((checkout / name / "config.yml").read_text())["model_params"]
    official = getattr(importlib.import_module(f"{name}Model"), f"{name}Model")(**sizes)
    official.decoder.add_local_policy("cpu")
    separated(official, 1.5)
    if case.decoding == "update":
        ours_too = sampled_update(case, official.state_dict(), "paper", local_from="0")
        return Pair([update(name, official, case)], ours_too, None)
    ours = build_path_policy("elg", case.problem)
    load_official(ours, "elg", official.state_dict())
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding(case.decoding)

    def solve() -> Any:
        return decode_encode_once(ours, *some.given, decoding=decoding)

    batches = sorted({1, case.batch})
    return Pair(
        [rollout(name, official, some, decoding.augmentation, batch) for batch in batches], solve, same_rows
    )


def rollout(name: str, model: Any, some: Instances, copies: int, batch: int) -> Side:
    """Solve as the official evaluation does, so many at a time; its starts are all nodes, here in their order."""
    environment = getattr(importlib.import_module(f"{name}Env"), f"{name}Env")
    decode = importlib.import_module("utils").rollout
    width = some.coords.shape[1] - (name == "CVRP")
    random.sample = lambda nodes, count: list(nodes)[:count]

    def part(few: Instances) -> list[list[int]]:
        env = environment(width, "cpu")
        env.load_random_problems(as_official(few), copies)
        reset, _, _ = env.reset()
        model.pre_forward(reset)
        moves, _, reward = decode(model=model, env=env, eval_type="greedy")
        count = len(few.coords)
        best = reward.reshape(copies, count, -1).permute(1, 0, 2).flatten(1).argmax(1)
        moves = moves.reshape(copies, count, *moves.shape[1:]).permute(1, 0, 2, 3).flatten(1, 2)
        found = moves[torch.arange(count), best]
        return found.tolist() if few.demand is None else routes(found)

    def solve() -> list[list[int]]:
        with torch.no_grad():
            return [
                row for first in range(0, len(some.coords), batch) for row in part(some.take(first, batch))
            ]

    return solve


def update(name: str, model: Any, case: Case) -> Side:
    """Do what the official `train` does with a batch, both policies taking part."""
    environment = getattr(importlib.import_module(f"{name}Env"), f"{name}Env")
    decode = importlib.import_module("utils").rollout
    some = drawn(case.problem, case.size, case.batch)
    env = environment(case.size, "cpu")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, weight_decay=1e-6)

    def step() -> float:
        model.train()
        env.load_random_problems(as_official(some))
        reset, _, _ = env.reset()
        model.pre_forward(reset)
        _, probs, rewards = decode(model=model, env=env, eval_type="sample")
        optimizer.zero_grad()
        advantage = rewards - rewards.mean(dim=1)[:, None]
        loss = (-advantage * probs.log().sum(dim=1) / advantage.max(dim=1)[0][:, None]).mean()
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def as_official(few: Instances) -> Any:
    """Return instances as the official environment takes them."""
    if few.demand is None:
        return few.coords
    return {"loc": few.coords[:, 1:], "depot": few.coords[:, 0], "demand": few.shares}
