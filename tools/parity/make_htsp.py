"""Make H-TSP's fixture from the authors' code: lower model and its training, upper model, whole episodes; TSP.

git clone https://github.com/Learning4Optimization-HUST/H-TSP
python tools/parity/make_htsp.py --official H-TSP --out parity
nco-bench parity parity/htsp-tsp.safetensors
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from htsp_packages import stand_in
from making import absent, arguments, import_from, scatter, separated, write_fixture
from torch import Tensor, nn

REPOSITORY = "Learning4Optimization-HUST/H-TSP"
COMMIT = "e44daa1973f3348b517b633521f798c8a79904e6"
LOWER = {"encoder_type": "mha", "embedding_dim": 16, "n_heads": 4, "n_layers": 2, "tanh_clipping": 10}
UPPER = {"input_dim": 8, "embedding_dim": 8, "actor_mid_dim": 8, "critic_mid_dim": 8}
NODES, COUNT, FRAGMENT, NEW, NEAREST = 40, 2, 12, 9, 6
IMPROVEMENTS = 2
MOVED, TRIALS = 1e-6, 3
"""Weights moved by a millionth must lead to the same tours: of some ten thousand decisions, none may hang on rounding."""


def main() -> None:
    options = arguments(__doc__)
    stand_in()
    absent(
        "wandb", "hydra", "omegaconf", "networkx", "tsplib95", "lkh", "dgl", "dgl.function", "torch_geometric", "matplotlib",
        "matplotlib.pyplot", "numba", "numba.core", "numba.core.errors",
    )  # fmt: skip
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    (parts, inputs, expected), seed = separated(drawn, 2500)
    weights = {
        f"{prefix}.{key}": value for prefix, part in parts.items() for key, value in part.state_dict().items()
    }
    lower, order = training_of(parts["low_level_model"], seed)
    facts = {
        "model": "htsp", "problem": "tsp", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"lower": LOWER, "upper": UPPER, "frag_len": FRAGMENT, "max_new_nodes": NEW, "k": NEAREST},
        "seed": seed, "torch": torch.__version__, "grad_norm_keys": order,
    }  # fmt: skip
    write_fixture(
        options.out, "htsp-tsp", weights, inputs | lower["input"], expected | lower["expected"], facts
    )


def drawn(seed: int) -> tuple[Any, float]:
    """Build small official networks with random weights; with what they do, and whether it is safe from rounding."""
    parts = networks(seed)
    generator = torch.Generator().manual_seed(seed)
    coords = torch.rand(COUNT, NODES, 2, generator=generator)
    improve = torch.rand(IMPROVEMENTS, COUNT, 2, generator=generator) * 2 - 1
    with torch.no_grad():
        paths = filling(torch.rand(COUNT, FRAGMENT, 2, generator=generator))
        inputs, expected = solved(parts["low_level_model"], paths)
        episodes = episodes_of(parts, coords, improve)
        expected |= episodes | actions_of(parts, episodes["step0.state"], inputs, generator)
        others = [moved(parts, seed + trial) for trial in range(TRIALS)]
        same = all(same_tours(episodes_of(other, coords, improve), episodes) for other in others)
        lengths = [solved(other["low_level_model"], paths)[1]["low.best_length"] for other in others]
        same &= all(torch.allclose(length, expected["low.best_length"]) for length in lengths)
    steps = sum(key.endswith(".tours") for key in episodes)
    first = torch.arange(FRAGMENT).expand(steps, -1).contiguous()
    inputs |= {"coords": coords, "improve_actions": improve, "first_nodes": first}
    return (parts, inputs, expected), float("inf") if same else 0.0


def filling(points: Tensor) -> Tensor:
    """Scale paths as the authors' solver scales fragments: into [0.05, 0.95], by the longer side."""
    low = points.amin(1, keepdim=True)
    return 0.9 * (points - low) / (points.amax(1, keepdim=True) - low).amax(2, keepdim=True) + 0.05


def same_tours(ones: dict[str, Tensor], others: dict[str, Tensor]) -> bool:
    """Whether two runs of the episodes built the same tours, step by step."""
    return all(
        torch.equal(ones[key], others[key]) for key in others if key.endswith((".tours", ".fragments"))
    )


def networks(seed: int) -> dict[str, Any]:
    """Build the four networks under the prefixes of the authors' checkpoints."""
    from rl4cop.train_path_solver import PathSolver
    from rl_models import ActorPPO, CriticPPO, IMPALAEncoder

    torch.manual_seed(seed)
    settings = SimpleNamespace(
        **LOWER, node_dim=2, val_type="x8Aug_nTraj", add_init_projection=True, n_decoding_neighbors=None,
        graph_size=FRAGMENT, norm_reward=True,
    )  # fmt: skip
    width = UPPER["embedding_dim"]
    parts: dict[str, Any] = {
        "low_level_model": PathSolver(settings),
        "encoder": IMPALAEncoder(UPPER["input_dim"], width),
        "actor": ActorPPO(width, UPPER["actor_mid_dim"], 2, -1.0),
        "critic": CriticPPO(width, UPPER["critic_mid_dim"], 2),
    }
    scales = {
        "low_level_model": {
            "encoder.init_projection_layer.weight": 4.0,
            "decoder.multi_head_combine.weight": 6.0,
        },
        "encoder": {"cnn.fc.weight": 8.0},
        "actor": {
            "net.3.weight": 100.0
        },  # the authors start it at a hundredth, where all points are the centre
    }
    for name, part in parts.items():
        scatter(part, seed, scales.get(name))
        part.eval()
    return parts


def moved(parts: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return networks whose weights differ by `MOVED`."""
    generator = torch.Generator().manual_seed(seed)
    others = copy.deepcopy(parts)
    for parameter in (p for part in others.values() for p in part.parameters()):
        parameter.data.mul_(1 + MOVED * torch.randn(parameter.shape, generator=generator))
    return others


def solved(lower: Any, points: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Solve paths by the lower model, the eight symmetries and a trajectory from every city; with all its decisions."""
    from rl4cop import train_path_solver

    inputs, expected, asked = {"low.coords": points}, {}, lower.decoder.forward
    steps: list[dict[str, Tensor]] = []

    def noting(last: Tensor) -> Tensor:
        steps.append({"last": last.clone(), "mask": lower.decoder.group_ninf_mask.clone()})
        steps[-1]["probs"] = asked(last)
        return steps[-1]["probs"]

    encoded: list[Tensor] = []
    watch = lower.encoder.register_forward_hook(lambda _module, _given, out: encoded.append(out))
    ends = torch.zeros(len(points), 1, dtype=torch.int64)
    with mock.patch.object(lower.decoder, "forward", noting), taken(train_path_solver.Env) as moves:
        length, path = lower(points, ends, ends + FRAGMENT - 1, return_pi=True, group_size=FRAGMENT)
    watch.remove()
    inputs["low.first_nodes"] = moves[0][0]
    for index in (0, 1, FRAGMENT // 2, FRAGMENT - 3):
        inputs |= {f"low.step{index}.{key}": steps[index][key] for key in ("last", "mask")}
        expected[f"low.step{index}.probs"] = steps[index]["probs"]
    return inputs, expected | {
        "low.encoder_output": encoded[0],
        "low.best_length": length,
        "low.best_pi": path,
    }


@contextmanager
def taken(environment: Any) -> Iterator[list[Tensor]]:
    """Note what is selected in an environment of the lower model."""
    made, step = [], environment.step

    def noting(env: Any, selected: Tensor) -> Any:
        made.append(selected.clone())
        return step(env, selected)

    with mock.patch.object(environment, "step", noting):
        yield made


def episodes_of(parts: dict[str, Any], coords: Tensor, improve: Tensor) -> dict[str, Tensor]:
    """Run episodes in the authors' environment by greedy actions, then improve the tours at given points."""
    from h_tsp import RLSolver, VecEnv
    from rl_utils import FragmengBuffer

    torch.manual_seed(0)
    env = VecEnv(NEAREST, FRAGMENT, NEW, max_improvement_step=0)
    solver, buffer = RLSolver(parts["low_level_model"], FRAGMENT), FragmengBuffer(1000, FRAGMENT)
    states, found, count, left = env.reset(coords), {}, 0, list(improve)
    while not env.done or left:
        if env.done:
            for one in env.envs:
                one.max_improvement_step = len(improve)
        name = f"step{count}"
        found[f"{name}.state"] = states.clone()
        if env.envs[0].max_improvement_step:
            action = left.pop(0)
        else:
            encoded = parts["encoder"](states)
            action = parts["actor"](encoded)
            found |= {f"{name}.encoder_output": encoded, f"{name}.critic_value": parts["critic"](encoded)}
        active = [i for i, one in enumerate(env.envs) if not one.done]
        states, reward, _, facts = env.step(action, solver, frag_buffer=buffer)
        found |= {
            f"{name}.action": action, f"{name}.active": torch.tensor(active),
            f"{name}.fragments": torch.stack(facts["fragments"]), f"{name}.new_nodes": padded(facts["new_cities"]),
            f"{name}.start_city_coord": facts["start_city"],
            f"{name}.tours": padded([torch.tensor(one.state.current_tour) for one in env.envs]),
            f"{name}.tour_len": torch.stack([one.state.current_tour_len for one in env.envs]), f"{name}.reward": reward,
        }  # fmt: skip
        count += 1
    return found


def padded(rows: list[Tensor]) -> Tensor:
    """Stack rows, -1 behind the shorter ones."""
    return nn.utils.rnn.pad_sequence([row.long() for row in rows], batch_first=True, padding_value=-1)


def actions_of(
    parts: dict[str, Any], states: Tensor, inputs: dict[str, Tensor], generator: torch.Generator
) -> dict[str, Tensor]:
    """Return the terms of PPO for actions that are drawn into `inputs`."""
    encoded, actor = parts["encoder"](states), parts["actor"]
    action, noise = (torch.randn(len(states), 2, generator=generator) for _ in range(2))
    inputs |= {"ppo.action": action, "ppo.noise": noise}
    chance, entropy = actor.get_logprob_entropy(encoded, action)
    return {
        "ppo.logprob": chance, "ppo.neg_entropy": entropy, "ppo.old_logprob": actor.get_old_logprob(action, noise)
    }  # fmt: skip


def training_of(lower: Any, seed: int) -> tuple[dict[str, dict[str, Tensor]], list[str]]:
    """Take one step of REINFORCE in the authors' trainer, along what it samples."""
    from rl4cop import train_path_solver

    torch.manual_seed(seed)
    points, ends = torch.rand(COUNT + 1, FRAGMENT, 2), []
    lower = copy.deepcopy(lower).train()
    lower.group_size = FRAGMENT
    reset = train_path_solver.Env.reset

    def noting(env: Any, group_size: int, source: Tensor, target: Tensor) -> Any:
        ends.append(torch.stack([source[:, 0], target[:, 0]], dim=1))
        return reset(env, group_size, source, target)

    with mock.patch.object(train_path_solver.Env, "reset", noting), taken(train_path_solver.Env) as moves:
        loss = lower.training_step(points, None)["loss"]
    loss.backward()
    named = dict(sorted(lower.named_parameters()))
    norms = torch.stack([torch.zeros(()) if p.grad is None else p.grad.norm() for p in named.values()])
    inputs = {
        "low_train.coords": points, "low_train.source_target": ends[0], "low_train.first_nodes": moves[0][0],
        "low_train.actions": torch.stack(moves[1:], dim=2),
    }  # fmt: skip
    return {
        "input": inputs, "expected": {"low_train.loss": loss, "low_train.grad_norms": norms}
    }, list(named)  # fmt: skip


if __name__ == "__main__":
    main()
