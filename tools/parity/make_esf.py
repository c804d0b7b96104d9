"""Make ESF's fixtures from the authors' code: encoder, one decision, greedy from all starts; POMO (TSP), Omni-VRP (CVRP).

git clone https://github.com/xybFight/VRP-Generalization
python tools/parity/make_esf.py --official VRP-Generalization --out parity
nco-bench parity parity/esf-*.safetensors
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from making import absent, arguments, forget, import_from, margin, scatter, separated, write_fixture
from torch import Tensor

REPOSITORY = "xybFight/VRP-Generalization"
COMMIT = "e9c731767640376d77e2034829edfe3e9e2813bb"
SIZES = {
    "embedding_dim": 16, "sqrt_embedding_dim": 4.0, "encoder_layer_num": 2, "qkv_dim": 4, "head_num": 4,
    "logit_clipping": 10, "ff_hidden_dim": 32, "eval_type": "argmax",
}  # fmt: skip
BASE = 50
"""Of the logarithm; the authors' code has it as a number."""
NODES, COUNT = 14, 2
STEP = 4
"""The decision whose probabilities are kept, after those that are given."""
CAPACITY = 32.0
"""Demands are whole numbers of its parts: sums are exact in float32, in any order."""


def main() -> None:
    options = arguments(__doc__)
    absent("utils", "utils.functions")
    tsp = options.official / "DS_decoder" / "TSP"
    import_from(tsp, options.official, COMMIT, any_commit=options.any_commit)
    import_from(tsp / "POMO", options.official, COMMIT, any_commit=options.any_commit)
    make_tsp(options.out)
    forget(tsp / "POMO")
    forget(tsp)
    omni = options.official / "ESF" / "Omni_VRP_with_ESF" / "src"
    import_from(omni, options.official, COMMIT, any_commit=options.any_commit)
    make_cvrp(options.out)


def make_tsp(out: Path) -> None:
    """Make the fixture of POMO with the factor, as published with one decoder."""
    from TSPEnv import TSPEnv
    from TSPModel import TSPModel

    def drawn(seed: int) -> tuple[Any, float]:
        torch.manual_seed(seed)
        model = TSPModel(inference=True, **SIZES)
        spread(model, seed, ["encoder.embedding.weight"])
        points = torch.rand(COUNT, NODES, 2, generator=torch.Generator().manual_seed(seed))
        env = TSPEnv(problem_size=NODES, pomo_size=NODES, num_dis=1)
        env.env_params["load_path"], env.all_problems, env.saved_index = ".pkl", points, 0
        env.load_problems(COUNT)
        found = solved(model, env, first=1)
        return (model, {"coords": points}, found), found.pop("margin")

    written(out, "esf-pomo-tsp", *separated(drawn, 2300), sizes=SIZES)


def make_cvrp(out: Path) -> None:
    """Make the fixture of Omni-VRP with the factor, normalised as its trainer sets it."""
    from CVRPEnv import CVRPEnv
    from CVRPModel import CVRPModel

    sizes = {**SIZES, "meta_update_encoder": True, "norm": "batch_no_track"}

    def drawn(seed: int) -> tuple[Any, float]:
        torch.manual_seed(seed)
        model = CVRPModel(**sizes)
        spread(model, seed, ["encoder.embedding_depot.weight", "encoder.embedding_node.weight"])
        generator = torch.Generator().manual_seed(seed)
        points = torch.rand(COUNT, NODES + 1, 2, generator=generator)
        demand = torch.randint(1, 10, (COUNT, NODES), generator=generator) / CAPACITY
        env = CVRPEnv(problem_size=NODES, pomo_size=NODES)
        env.load_problems(COUNT, (points[:, :1], points[:, 1:], demand))
        found = solved(model, env, first=2)
        return (model, {"depot_node_xy": points, "demand": demand}, found), found.pop("margin")

    written(out, "esf-cvrp", *separated(drawn, 2400), sizes={**sizes, "capacity": CAPACITY})


def spread(model: Any, seed: int, embeddings: list[str]) -> None:
    """Draw weights that separate decisions."""
    scatter(model, seed, dict.fromkeys(embeddings, 4.0) | {"decoder.multi_head_combine.weight": 6.0})
    model.eval()


@torch.no_grad()
def solved(model: Any, env: Any, first: int) -> dict[str, Any]:
    """Decode greedily in the authors' environment; the first moves of a trajectory are given."""
    said: list[Tensor] = []
    model.decoder.register_forward_hook(lambda _module, _given, out: said.append(out))
    reset, _, _ = env.reset()
    model.pre_forward(reset)
    state, reward, done = env.pre_step()
    seen: dict[str, Tensor] = {}
    while not done:
        if env.selected_count == first + STEP - 1:
            kept = ("current_node", "load", "ninf_mask")
            seen = {key: getattr(state, key).clone() for key in kept if hasattr(state, key)}
        selected, _ = model(state)
        state, reward, done = env.step(selected)
    return {
        "encoded_nodes": model.encoded_nodes, "seen": seen, "probs": said[STEP - 1], "tours": env.selected_node_list,
        "costs": -reward, "best_costs": (-reward).amin(1), "margin": min(margin(one.log()) for one in said),
    }  # fmt: skip


def written(out: Path, name: str, made: Any, seed: int, *, sizes: dict[str, Any]) -> None:
    """Write one fixture of a network, its inputs, and what it found."""
    model, inputs, found = made
    inputs = inputs | {f"step{STEP}.{key}": value for key, value in found.pop("seen").items()}
    expected = {f"step{STEP}.probs": found.pop("probs"), **found}
    facts = {
        "model": "esf", "problem": name.rpartition("-")[2], "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {**sizes, "pomo_size": NODES, "esf_baseline": BASE}, "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, name, model.state_dict(), inputs, expected, facts)


if __name__ == "__main__":
    main()
