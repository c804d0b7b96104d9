"""H-TSP against github.com/Learning4Optimization-HUST/H-TSP: complete solves, of both levels, without improvement."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from nco_bench.nn.build import build_path_policy, load_official
from nco_bench.solvers.divide.htsp_episode import Sizes, begin, construct
from official.checkouts import first_on_path
from official.engine import Case, Pair, Side, same_rows, separated
from official.instances import drawn

CARD = "h-tsp"
COMMIT = "e44daa1973f3348b517b633521f798c8a79904e6"
CASES = (
    Case("h-tsp", "tsp", 200, "fragment=50", 1),
    Case("h-tsp", "tsp", 1000, "fragment=50", 1),
    Case("h-tsp", "tsp", 1000, "greedy", 1),
)
"""``greedy`` has the README's fragments of 200 cities."""
TOOLS = Path(__file__).parents[2] / "tools" / "parity"
LOWER = {"encoder_type": "mha", "embedding_dim": 128, "n_heads": 8, "n_layers": 12, "tanh_clipping": 10}
WIDTH, ACTOR, CRITIC, BUFFER = 128, 128, 512, 1000


def pair(case: Case, checkout: Path) -> Pair:
    """Prepare both sides."""
    stand_in()
    first_on_path([checkout])
    sizes = Sizes()
    if "=" in case.decoding:
        fragment = int(case.decoding.split("=")[1])
        sizes = Sizes(fragment, fragment - 10)
    parts = networks(sizes.fragment)
    state = {
        f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()
    }
    ours = build_path_policy("h-tsp", "tsp", layers=LOWER["n_layers"])
    load_official(ours, "h-tsp", state)
    coords = drawn("tsp", case.size, case.batch).coords
    points = coords.numpy()

    def solve() -> Any:
        with torch.inference_mode():
            episodes = [begin(one, sizes.neighbours) for one in points]
            construct(ours, episodes, sizes)  # type: ignore[arg-type]
        return [episode.tour.tolist() for episode in episodes]

    return Pair([episodes_of(parts, coords, sizes)], solve, same_rows)


def stand_in() -> None:
    """Let the imports of the official code that a solve never uses find something."""
    first_on_path([TOOLS])
    importlib.import_module("htsp_packages").stand_in()
    importlib.import_module("making").absent(
        "wandb", "hydra", "omegaconf", "networkx", "tsplib95", "lkh", "dgl", "dgl.function", "torch_geometric",
        "matplotlib", "matplotlib.pyplot",
    )  # fmt: skip


def networks(fragment: int) -> dict[str, Any]:
    """Build the official networks under the prefixes of their checkpoints."""
    models = importlib.import_module("rl_models")
    settings = SimpleNamespace(
        **LOWER, node_dim=2, val_type="x8Aug_nTraj", add_init_projection=True, n_decoding_neighbors=None,
        graph_size=fragment, norm_reward=True,
    )  # fmt: skip
    parts: dict[str, Any] = {
        "low_level_model": importlib.import_module("rl4cop.train_path_solver").PathSolver(settings),
        "encoder": models.IMPALAEncoder(8, WIDTH),
        "actor": models.ActorPPO(WIDTH, ACTOR, 2, -1.0),
        "critic": models.CriticPPO(WIDTH, CRITIC, 2),
    }
    for part in parts.values():
        separated(part, 1.3, bias=0.02)
    with torch.no_grad():
        parts["actor"].net[3].weight.mul_(100)  # begins at a hundredth, where all points are the centre
    return parts


def episodes_of(parts: dict[str, Any], coords: Tensor, sizes: Sizes) -> Side:
    """Solve as the official `evaluate.py` does."""
    environment = importlib.import_module("h_tsp")
    buffer = importlib.import_module("rl_utils").FragmengBuffer

    def solve() -> list[list[int]]:
        with torch.no_grad():
            env = environment.VecEnv(sizes.neighbours, sizes.fragment, sizes.new, max_improvement_step=0)
            solver = environment.RLSolver(parts["low_level_model"], sizes.fragment)
            seen = buffer(BUFFER, sizes.fragment)
            state = env.reset(coords)
            while not env.done:
                action = parts["actor"](parts["encoder"](state))
                state, *_ = env.step(action, solver, frag_buffer=seen)
            return [[int(city) for city in one.state.current_tour] for one in env.envs]

    return solve
