"""Make fixtures of ELG from the authors' code: greedy from all starts, x8, forced, REINFORCE; TSP and CVRP.

git clone https://github.com/gaocrr/ELG
python tools/parity/make_elg.py --official ELG --out parity
nco-bench parity parity/elg-*.safetensors
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from making import absent, arguments, forget, import_from, margin, scatter, separated, write_fixture
from torch import Tensor

REPOSITORY = "gaocrr/ELG"
COMMIT = "beb676cbb04f4d8b6186aed6c21b1dfa2dc0f2b0"
NEAREST = 4
SIZES = {
    "ensemble": True, "distance_penalty": True, "positional": True, "ensemble_size": 1, "xi": -1, "euclidean": False,
    "demand": True, "local_att_hidden_dim": 8, "local_att_head_num": 2, "local_att_qkv_dim": 4, "logit_clipping": 50,
    "local_size": [NEAREST], "embedding_dim": 16, "encoder_layer_num": 2, "head_num": 4, "qkv_dim": 4, "ff_hidden_dim": 32,
}  # fmt: skip
NODES, NODES_B, PARTS, SPREAD = 10, 14, 32, 0.1
"""Sizes of the two batches; demands are whole numbers of these parts of the capacity, exact in float32; least spread of
the lengths of the sampled solutions."""


def main() -> None:
    options = arguments(__doc__)
    absent("wandb")
    for problem in ("tsp", "cvrp"):
        folder = options.official / problem.upper()
        import_from(folder, options.official, COMMIT, any_commit=options.any_commit)
        make(problem, options.out)
        forget(folder)  # both problems have modules of the same names


def make(problem: str, out: Path) -> None:
    """Make the fixture of one problem."""

    def drawn(seed: int) -> tuple[Any, float]:
        model = network(problem, seed)
        inputs = {"": instances(problem, 2, NODES, seed), "b.": instances(problem, 1, NODES_B, seed + 1)}
        with torch.no_grad():
            found = {group: solved(model, problem, given) for group, given in inputs.items()}
            found["aug"] = solved(model, problem, inputs[""], aug=8)
            least = min(margin(one["probs"].log()) for one in found.values())
            torch.manual_seed(seed)
            found["forced"] = solved(model, problem, inputs[""], rule="sample")
        lengths = found["forced"]["lengths"]  # the loss divides by the largest advantage
        spread = float((lengths.mean(1) - lengths.amin(1)).min())
        return (model, inputs, found), least if spread > SPREAD else 0.0

    (model, inputs, found), seed = separated(drawn, 1000)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    given = {f"{group}{key}": value for group, values in inputs.items() for key, value in values.items()}
    given["forced_tours"] = found["forced"]["tours"]
    expected = {f"greedy.{key}": found[""][key] for key in ("tours", "lengths", "probs")}
    expected |= {f"b.greedy.{key}": found["b."][key] for key in ("tours", "lengths")}
    best = found["aug"]["lengths"].amin(1).view(8, -1)
    expected |= {f"aug.{key}": found["aug"][key] for key in ("tours", "lengths")}
    expected |= {"aug.no_aug_best": best[0], "aug.best": best.amin(0)}
    trained, order = training_of(model, problem, inputs[""], given["forced_tours"])
    facts = {
        "model": "elg", "problem": problem, "official_repo": REPOSITORY, "commit": COMMIT,
        "config": SIZES | {"pomo_size": NODES, "pomo_size_b": NODES_B},
        "seed": seed, "torch": torch.__version__, "grad_norm_order": order,
    }  # fmt: skip
    write_fixture(out, f"elg-{problem}", weights, given, expected | trained, facts)


def network(problem: str, seed: int) -> Any:
    """Build a small official network with random weights and its local policy."""
    torch.manual_seed(seed)
    if problem == "tsp":
        from TSPModel import TSPModel as Model
    else:
        from CVRPModel import CVRPModel as Model
    model = Model(**SIZES)
    model.decoder.add_local_policy(torch.device("cpu"))
    scales = {
        key: 2.0
        for key, _ in model.named_parameters()
        if "embedding" in key or ("local" in key and "combine.w" in key)
    }
    scatter(model, seed, scales)
    return model.eval()


def instances(problem: str, count: int, n: int, seed: int) -> dict[str, Tensor]:
    """Draw instances, and the starts of all trajectories, in a random order."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, n, 2, generator=generator)
    starts = torch.randperm(n, generator=generator)
    if problem == "tsp":
        return {"problems": points, "starts": starts}
    demand = torch.randint(1, 10, (count, n), generator=generator) / PARTS
    return {
        "depot": torch.rand(count, 1, 2, generator=generator), "loc": points, "demand": demand, "starts": starts + 1,
    }  # fmt: skip


def solved(
    model: Any, problem: str, given: dict[str, Tensor], *, aug: int = 1, rule: str = "greedy", moves: Tensor | None = None
) -> dict[str, Tensor]:  # fmt: skip
    """Decode, or follow `moves`, in the official environment; with what the decoder says at each of its calls."""
    starts = given["starts"].tolist()
    env = environment(problem, len(starts))
    batch = given["problems"] if problem == "tsp" else {k: given[k] for k in ("depot", "loc", "demand")}
    env.load_random_problems(batch, aug)
    said: list[Tensor] = []
    watch = model.decoder.register_forward_hook(lambda _module, _given, out: said.append(out))
    reset, _, _ = env.reset()
    model.pre_forward(reset)
    features: Callable[[], Any] = env.get_local_feature if problem == "tsp" else env.get_cur_feature
    state, reward, done = env.pre_step()
    with mock.patch.object(random, "sample", return_value=starts):
        while not done:
            selected, _ = model.one_step_rollout(state, *features(), eval_type=rule)
            if moves is not None:
                selected = moves[:, :, env.selected_count]
            state, reward, done = env.step(selected)
    watch.remove()
    return {"tours": env.selected_node_list, "lengths": -reward, "probs": torch.stack(said)}


def environment(problem: str, width: int) -> Any:
    """Return the official environment."""
    if problem == "tsp":
        from TSPEnv import TSPEnv as Env
    else:
        from CVRPEnv import CVRPEnv as Env
    return Env(multi_width=width, device=torch.device("cpu"))


def training_of(
    model: Any, problem: str, given: dict[str, Tensor], moves: Tensor
) -> tuple[dict[str, Tensor], list[str]]:
    """Take the gradients of one step of REINFORCE along `moves`; advantages are divided by the largest."""
    starts = moves[:, :, 0 if problem == "tsp" else 1]
    followed = solved(model, problem, given | {"starts": starts[0]}, moves=moves)
    decided = moves[:, :, -len(followed["probs"]) :]  # the first moves are given
    chosen = followed["probs"].permute(1, 2, 0, 3).gather(3, decided[..., None]).squeeze(3)
    log_prob = chosen.log().sum(2)
    reward = -followed["lengths"]
    advantage = reward - reward.mean(dim=1, keepdim=True)
    loss = (-advantage * log_prob / advantage.amax(dim=1, keepdim=True)).mean()
    loss.backward()
    named = dict(model.named_parameters())
    norms = [torch.zeros(()) if p.grad is None else p.grad.norm() for p in named.values()]
    return {
        "forced.lengths": followed["lengths"], "forced.log_prob": log_prob, "train.loss": loss[None],
        "train.grad_norms": torch.stack(norms),
    }, list(named)  # fmt: skip


if __name__ == "__main__":
    main()
