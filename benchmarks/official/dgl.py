"""DGL against github.com/xybFight/DGL: greedy from one start, without turned copies; the TSP."""

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
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn
from official.stubs import torch_cluster, without

CASES = tuple(Case("dgl", "tsp", size, "greedy", batch) for size, batch in ((100, 2), (1000, 1)))
FEATURES = [True, True, True, False, True, True, False, False, False, False, False]
SIZES = {
    "mode": "test", "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "decoder_layer_num": 3, "qkv_dim": 16,
    "head_num": 8, "ff_hidden_dim": 512, "append_information": FEATURES,
}  # fmt: skip
NEIGHBOURS = 30


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
    first_on_path([checkout / "TSP", checkout])
    official = separated(importlib.import_module("TSPModel").TSPModel(**SIZES), 1.3)
    ours = build_path_policy("dgl", "tsp")
    load_official(ours, "dgl", official.state_dict())
    some, decoding = drawn("tsp", case.size, case.batch), parse_decoding("greedy")

    def solve() -> Any:
        return decode_local_views(ours, *some.given, decoding=decoding)

    return Pair([greedy(official, some)], solve, same_rows)


def greedy(model: Any, some: Instances) -> Side:
    """Solve in the official environment with beams of one, as the official test does, starting at node 0."""
    environment = importlib.import_module("TSPEnv")
    beams = importlib.import_module("utils.beamsearch").Beamsearch
    environment.run_aug = lambda kind, points: points
    batch, size, _ = some.coords.shape
    options = {
        "data_path": "", "baseline_path": "", "mode": "test", "append_information": FEATURES, "aggregation_nums": 50,
        "test_mode": "aug_test", "aug_size": 1,
    }  # fmt: skip

    def solve() -> list[list[int]]:
        with torch.no_grad():
            env = environment.TSPEnv(**options)
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
                    _, probs, _ = model(state, env.selected_node_list, None, NEIGHBOURS, step)
                    env.selected_node_list = search.advance(
                        torch.log(probs.view(batch, 1, -1)), env, NEIGHBOURS, step
                    )
                    selected = search.next_nodes[-1].view(-1)
                step += 1
                state, _, done = env.step(selected)
            return env.selected_node_list.tolist()

    return solve
