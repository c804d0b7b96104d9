"""ESF (the factor on POMO's attention) against github.com/xybFight/VRP-Generalization: greedy from all starts."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from nco_bench.nn.build import load_official
from nco_bench.parity.esf import EsfPomo
from nco_bench.solvers.decoding.spec import parse_decoding
from nco_bench.solvers.stepwise.decode import decode_encode_once
from nco_bench.solvers.stepwise.pomo import PomoConfig, build
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import Instances, drawn
from official.stubs import without

CARD = "pomo"
REPOSITORY = "xybFight/VRP-Generalization"
COMMIT = "e9c731767640376d77e2034829edfe3e9e2813bb"
CASES = tuple(Case("pomo + esf", "tsp", size, "multistart", batch) for size, batch in ((50, 4), (100, 1)))
SIZES = {
    "embedding_dim": 128, "sqrt_embedding_dim": 128**0.5, "encoder_layer_num": 6, "qkv_dim": 16, "head_num": 8,
    "logit_clipping": 10, "ff_hidden_dim": 512, "eval_type": "argmax",
}  # fmt: skip
BASE = 50
"""Of the logarithm, as in the authors' code."""


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    without("utils", "utils.functions", load_dataset=None)
    folder = checkout / "DS_decoder" / "TSP"
    first_on_path([folder / "POMO", folder])
    official = importlib.import_module("TSPModel").TSPModel(inference=True, **SIZES)
    separated(official, 1.5)
    pomo = build(PomoConfig("tsp"))
    load_official(pomo, "pomo", official.state_dict())
    ours: Any = EsfPomo(pomo, BASE, case.size).eval()
    some, decoding = drawn("tsp", case.size, case.batch), parse_decoding("multistart")

    def solve() -> Any:
        return decode_encode_once(ours, *some.given, decoding=decoding)

    return Pair([rollout(official, some)], solve, same_rows)


def rollout(model: Any, some: Instances) -> Side:
    """Solve in the official environment."""
    environment = importlib.import_module("TSPEnv").TSPEnv
    count, size, _ = some.coords.shape

    def solve() -> list[list[int]]:
        with torch.no_grad():
            env = environment(problem_size=size, pomo_size=size, num_dis=1)
            env.env_params["load_path"], env.all_problems, env.saved_index = ".pkl", some.coords, 0
            env.load_problems(count)
            model.pre_forward(env.reset()[0])
            state, reward, done = env.pre_step()
            while not done:
                selected, _ = model(state)
                state, reward, done = env.step(selected)
            return env.selected_node_list[torch.arange(count), reward.argmax(1)].tolist()

    return solve
