"""Make fixtures of POMO from the authors' code: encoder, greedy from all starts, x8, one step of REINFORCE; TSP and CVRP.

git clone https://github.com/yd-kwon/POMO
python tools/parity/make_pomo.py --official POMO --out parity
nco-bench parity parity/pomo-*.safetensors
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from making import arguments, import_from, margin, scatter, separated, write_fixture
from torch import Tensor

REPOSITORY = "yd-kwon/POMO"
COMMIT = "d7c3d6ea580499a53e874fe9e065f69e799a8551"
FOLDER = "NEW_py_ver"
SIZES = {
    "embedding_dim": 16, "encoder_layer_num": 2, "qkv_dim": 4, "head_num": 4, "logit_clipping": 10, "ff_hidden_dim": 32,
}  # fmt: skip
NODES, NODES_B = 10, 15
SHARES = 32
"""Demands are whole numbers of these parts of the capacity: sums are exact in float32, in any order."""


def main() -> None:
    options = arguments(__doc__)
    folder = options.official / FOLDER
    for problem in ("TSP", "CVRP"):
        import_from(folder / problem / "POMO", options.official, COMMIT, any_commit=options.any_commit)
        sys.path.insert(1, str((folder / problem).resolve()))
        make(problem, options.out)


def make(problem: str, out: Path) -> None:
    """Make the fixture of one problem."""

    def drawn(seed: int) -> tuple[Any, float]:
        model = network(problem, seed)
        inputs = {"": instances(problem, 2, NODES, seed), "b.": instances(problem, 1, NODES_B, seed + 1)}
        with torch.no_grad():
            found = {group: solved(model, problem, given) for group, given in inputs.items()}
            found["aug"] = solved(model, problem, inputs[""], aug=8)
        return (model, inputs, found), min(margin(one["probs"].log()) for one in found.values())

    (model, inputs, found), seed = separated(drawn, 300)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    given = {f"{group}{key}": value for group, values in inputs.items() for key, value in values.items()}
    torch.manual_seed(seed)
    with torch.no_grad():
        given["forced_tours"] = solved(model, problem, inputs[""], rule="softmax")["tours"]
        expected = encoder_of(model, inputs[""])
    expected |= {f"greedy.{key}": found[""][key] for key in ("tours", "lengths", "probs")}
    expected |= {f"b.greedy.{key}": found["b."][key] for key in ("tours", "lengths")}
    best = found["aug"]["lengths"].amin(1).view(8, -1)
    expected |= {f"aug.{key}": found["aug"][key] for key in ("tours", "lengths", "xy")}
    expected |= {"aug.no_aug_best": best[0], "aug.best": best.amin(0)}
    gradients, order = training_of(model, problem, inputs[""], given["forced_tours"])
    facts = {
        "model": "pomo", "problem": problem.lower(), "official_repo": REPOSITORY, "commit": COMMIT,
        "config": SIZES | {"pomo_size": NODES, "pomo_size_b": NODES_B},
        "seed": seed, "torch": torch.__version__, "grad_norm_order": order,
    }  # fmt: skip
    write_fixture(out, f"pomo-{problem.lower()}", weights, given, expected | gradients, facts)


def official(problem: str) -> tuple[Any, Any]:
    """Return the official environment and network."""
    if problem == "TSP":
        from TSPEnv import TSPEnv
        from TSPModel import TSPModel

        return TSPEnv, TSPModel
    from CVRPEnv import CVRPEnv
    from CVRPModel import CVRPModel

    return CVRPEnv, CVRPModel


def network(problem: str, seed: int) -> Any:
    """Build a small official network with random weights."""
    torch.manual_seed(seed)
    model = official(problem)[1](
        **SIZES, sqrt_embedding_dim=SIZES["embedding_dim"] ** 0.5, eval_type="argmax"
    )
    embeddings = (
        "encoder.embedding.weight",
        "encoder.embedding_node.weight",
        "encoder.embedding_depot.weight",
    )
    scatter(model, seed, dict.fromkeys(embeddings, 4.0) | {"decoder.multi_head_combine.weight": 6.0})
    return model.eval()


def instances(problem: str, count: int, n: int, seed: int) -> dict[str, Tensor]:
    """Draw instances as the fixture holds them."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, n, 2, generator=generator)
    if problem == "TSP":
        return {"problems": points}
    return {
        "depot_xy": torch.rand(count, 1, 2, generator=generator),
        "node_xy": points,
        "node_demand": torch.randint(1, 10, (count, n), generator=generator) / SHARES,
    }


def environment(problem: str, given: dict[str, Tensor], aug: int) -> Any:
    """Return the official environment with these instances loaded."""
    points = given["problems"] if problem == "TSP" else given["node_xy"]
    count, n, _ = points.shape
    env = official(problem)[0](problem_size=n, pomo_size=n)
    if problem == "CVRP":
        env.FLAG__use_saved_problems, env.saved_index = True, 0
        env.saved_depot_xy, env.saved_node_xy = given["depot_xy"], given["node_xy"]
        env.saved_node_demand = given["node_demand"]
        env.load_problems(count, aug)
        return env
    import TSPEnv as module

    module.get_random_problems = lambda *_: points
    env.load_problems(count, aug)
    return env


def solved(
    model: Any, problem: str, given: dict[str, Tensor], *, aug: int = 1, rule: str = "argmax", moves: Tensor | None = None
) -> dict[str, Tensor]:  # fmt: skip
    """Decode, or follow `moves`, in the official environment; with what the decoder says at each of its calls."""
    env = environment(problem, given, aug)
    said: list[Tensor] = []
    decoder = model.decoder.forward
    model.decoder.forward = lambda *a, **k: (said.append(decoder(*a, **k)), said[-1])[1]
    model.model_params["eval_type"] = rule
    reset, _, _ = env.reset()
    try:
        model.pre_forward(reset)
        state, reward, done = env.pre_step()
        while not done:
            selected, _ = model(state)
            if moves is not None:
                selected = moves[:, :, env.selected_count]
            state, reward, done = env.step(selected)
    finally:
        model.decoder.forward = decoder
        model.model_params["eval_type"] = "argmax"
    xy = env.problems if problem == "TSP" else env.depot_node_xy
    return {"tours": env.selected_node_list, "lengths": -reward, "probs": torch.stack(said), "xy": xy}


def encoder_of(model: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    encoder = model.encoder
    if "problems" in given:
        x = encoder.embedding(given["problems"])
    else:
        nodes = torch.cat([given["node_xy"], given["node_demand"][:, :, None]], dim=2)
        x = torch.cat([encoder.embedding_depot(given["depot_xy"]), encoder.embedding_node(nodes)], dim=1)
    out = {"init_embed": x}
    for index, layer in enumerate(encoder.layers):
        x = layer(x)
        out[f"layer{index}_out"] = x
    return out | {"encoded_nodes": x}


def training_of(
    model: Any, problem: str, given: dict[str, Tensor], moves: Tensor
) -> tuple[dict[str, Tensor], list[str]]:
    """Take the gradients of one step of REINFORCE along `moves`, the mean over starts being the baseline."""
    followed = solved(model, problem, given, moves=moves)
    decided = moves[:, :, -len(followed["probs"]) :]  # the first moves are given
    chosen = followed["probs"].permute(1, 2, 0, 3).gather(3, decided[..., None]).squeeze(3)
    log_prob = chosen.log().sum(2)
    reward = -followed["lengths"]
    advantage = reward - reward.mean(dim=1, keepdim=True)
    loss = (-advantage * log_prob).mean()
    loss.backward()
    named = dict(model.named_parameters())
    norms = [torch.zeros(()) if p.grad is None else p.grad.norm() for p in named.values()]
    return {
        "forced.lengths": followed["lengths"], "forced.log_prob": log_prob, "train.log_prob": log_prob,
        "train.advantage": advantage, "train.loss": loss[None], "train.grad_norms": torch.stack(norms),
    }, list(named)  # fmt: skip


if __name__ == "__main__":
    main()
