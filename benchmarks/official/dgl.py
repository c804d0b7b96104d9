"""DGL against github.com/xybFight/DGL: greedy from one start, without turned copies."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import torch

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.local_steps import decode_local_views
from official.checkouts import first_on_path
from official.ciam import arrays
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn
from official.stubs import torch_cluster, without

CASES = (
    *(Case("dgl", "tsp", size, "greedy", batch) for size, batch in ((100, 2), (1000, 1))),
    # One at a time: in a batch the official code finds other routes than alone, and ours those that it finds alone.
    *(Case("dgl", "cvrp", size, "greedy", 1) for size in (100, 1000)),
)
FEATURES = [True, True, True, False, True, True, *[False] * 5]
"""Which the official tests switch on; the CVRP has two more."""
SIZES = {
    "mode": "test", "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "decoder_layer_num": 3, "qkv_dim": 16,
    "head_num": 8, "ff_hidden_dim": 512,
}  # fmt: skip
NEIGHBOURS = {"tsp": 30, "cvrp": 15}
ENVIRONMENT = {
    "data_path": "", "baseline_path": "", "mode": "test", "aggregation_nums": 50, "test_mode": "aug_test", "aug_size": 1,
}  # fmt: skip


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    torch_cluster()
    for name in (
        "pytz",
        "sklearn",
        "sklearn.preprocessing",
        "sklearn.decomposition",
        "sklearn.manifold",
        "tqdm",
    ):
        without(name, preprocessing=None, PCA=None, TSNE=None, tqdm=None, timezone=lambda name: None)
    package = types.ModuleType("utils")
    package.__path__ = [str(checkout / "utils")]  # type: ignore[attr-defined]
    sys.modules["utils"] = package
    first_on_path([checkout / case.problem.upper(), checkout])
    name, features = case.problem.upper(), FEATURES + [False] * 2 * (case.problem == "cvrp")
    network = getattr(importlib.import_module(f"{name}Model"), f"{name}Model")
    official = separated(network(**SIZES, append_information=features), 1.3)
    ours = build_path_policy("dgl", case.problem)
    load_official(ours, "dgl", official.state_dict())
    some, decoding = drawn(case.problem, case.size, case.batch), parse_decoding("greedy")
    environment = getattr(importlib.import_module(f"{name}Env"), f"{name}Env")(
        **ENVIRONMENT, append_information=features
    )

    def solve() -> Any:
        return decode_local_views(ours, *some.given, decoding=decoding)

    theirs = greedy_tours if case.problem == "tsp" else greedy_routes
    return Pair([theirs(official, environment, some)], solve, same_rows)


def greedy_tours(model: Any, env: Any, some: Instances) -> Side:
    """Solve in the official environment with beams of one, as the official test does, starting at node 0."""
    beams = importlib.import_module("utils.beamsearch").Beamsearch
    importlib.import_module("TSPEnv").run_aug = lambda kind, points: points
    batch, size, _ = some.coords.shape

    def solve() -> list[list[int]]:
        with torch.no_grad():
            env.raw_data_nodes = some.coords.clone()
            env.load_problems(0, batch, size, 1)
            env.start_idx, env.step_size = 0, batch
            search = beams(1, batch, size, torch.FloatTensor, torch.LongTensor, "logits", False)
            env.reset("test")
            state, _, done = env.pre_step()
            model.pre_forward(env.dis_matrix, env.batch_size)
            step = 0
            while not done:
                selected = torch.zeros(batch, dtype=torch.int64)
                if step:
                    _, probs, _ = model(state, env.selected_node_list, None, NEIGHBOURS["tsp"], step)
                    env.selected_node_list = search.advance(
                        torch.log(probs.view(batch, 1, -1)), env, NEIGHBOURS["tsp"], step
                    )
                    selected = search.next_nodes[-1].view(-1)
                step += 1
                state, _, done = env.step(selected)
            return env.selected_node_list.tolist()

    return solve


def greedy_routes(model: Any, env: Any, some: Instances) -> Side:
    """The same for the CVRP; the official test draws the first customer, here it is customer 1, as ours is."""
    assert some.demand is not None
    assert some.capacity is not None
    beams, knn = importlib.import_module("utils.beamsearch").Beamsearch, NEIGHBOURS["cvrp"]
    batch, nodes, _ = some.coords.shape
    shares = some.demand[:, 1:].float() / some.capacity[:, None]

    def solve() -> list[list[int]]:
        with torch.no_grad():
            env.raw_depot_node_xy, env.raw_node_xy = some.coords[:, 0], some.coords[:, 1:]
            env.raw_node_demand, env.beam_size = shares, 1
            env.load_problems(0, batch, nodes - 1)
            env.start_idx, env.step_size = 0, batch
            search = beams(1, batch, nodes, torch.FloatTensor, torch.LongTensor, "logits", False, "CVRP")
            env.reset("test")
            state, _, done = env.pre_step()
            model.pre_forward(env.dis_matrix, env.batch_size)
            step = 0
            while not done:
                selected = torch.full((batch,), nodes + 1)  # customer 1, via the depot
                if step:
                    flags = env.step_state.selected_flag
                    _, probs, _ = model(state, env.selected_node_list, None, None, knn, step, knn, flags)
                    env.selected_node_list = search.advance(
                        torch.log(probs.view(batch, 1, -1)), env, knn, step
                    )
                    selected = search.next_nodes[-1].view(-1)
                step += 1
                state, _, done = env.step(selected)
            return arrays(env.selected_node_list, env.step_state.selected_flag == 1)

    return solve
