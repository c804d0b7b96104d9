"""Make SIT's fixtures from the authors' code (SIL): embedding, scores of steps, greedy solutions, training; TSP and CVRP.

git clone https://github.com/CIAM-Group/SIL
python tools/parity/make_sit.py --official SIL --out parity
nco-bench parity parity/sil-*.safetensors
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from cvrp_steps import CAPACITY, rows_of
from cvrp_steps import drawn as cvrp_drawn
from cvrp_steps import greedy_of as cvrp_greedy_of
from cvrp_steps import step_of as cvrp_step_of
from cvrp_steps import training_of as cvrp_training_of
from making import arguments, import_from, module_of, scatter, separated, write_fixture
from torch import Tensor
from tsp_steps import Tape, drawn, greedy_of, step_of, training_of

REPOSITORY = "CIAM-Group/SIL"
COMMIT = "9ec783e90a1631f7b95f84eb20f8f9751cb45c10"
FOLDER, TRAINING = "Test_All", "Train"
"""Two versions of the network: gradients are those of the one for training."""
SIZES = {
    "embedding_dim": 16, "sqrt_embedding_dim": 4.0, "encoder_layer_num": 2, "qkv_dim": 4, "head_num": 4, "ff_hidden_dim": 32,
    "logit_clipping": 10,
}  # fmt: skip
CVRP_SIZES = {key: value for key, value in SIZES.items() if key != "encoder_layer_num"} | {
    "decoder_layer_num": 2
}
TRAINED = ["decoder.Linear_final.weight", "decoder.embedding_last_node_7.weight", "encoder.embedding.weight"]
RATE, CLIP, SCALE, NEAREST = 1e-4, 10.0, 2.0, 6
VARIANT = {"mode": "test", "use_k_nearest": False, "k_nearest_num": NEAREST}


def main() -> None:
    options = arguments(__doc__)
    for problem in ("TSP", "CVRP"):
        folder = options.official / problem
        import_from(folder / FOLDER, options.official, COMMIT, any_commit=options.any_commit)
    make_tsp(options.official, options.out)
    make_cvrp(options.official, options.out)


def make_tsp(official: Path, out: Path) -> None:
    """Make the fixture of the TSP."""
    (model, tape, problems, labels, tours), seed = separated(candidate, 700)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    selected = {"step_a": labels[:, :1], "step_b": labels[:, :9], "step_c": labels[:, :6]}
    with torch.no_grad():
        expected = {"encoded_nodes": model.encoder(problems)}
        for step, visited in selected.items():
            decide = decider(model, NEAREST if step == "step_c" else None)
            expected |= step_of(step, decide, tape, problems, visited)
    for name, greedy in tours.items():
        expected |= {f"{name}.{key}": value for key, value in greedy.items()}
    draws = {"start": 4, "length": 10, "flip": 1}
    trained = module_of(official / "TSP" / TRAINING / "TSPModel.py").TSPModel(
        **SIZES, **VARIANT | {"k_nearest_num": len(labels[0])}
    )
    trained.load_state_dict(weights)
    expected |= training_of(trained, decider(trained, None), problems, labels, draws, TRAINED, RATE, CLIP)
    inputs = {"problems": problems, "label_tours": labels}
    inputs |= {f"{step}.selected": visited for step, visited in selected.items()}
    inputs |= {f"train.{key}": torch.tensor(value) for key, value in draws.items()}
    facts = {
        "model": "SIL", "problem": "TSP", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"model_params": SIZES, "step_c_k": NEAREST, "train_lr": RATE},
        "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, "sil-tsp", weights, inputs, expected, facts)


def make_cvrp(official: Path, out: Path) -> None:
    """Make the fixture of the CVRP."""
    (model, tape, given, solutions), seed = separated(cvrp_candidate, 700)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    visited = given["label_node_flag"][..., 0]
    selected = {"step_a": visited[:, :0], "step_b": visited[:, :7], "step_c": visited[:, :5]}
    left = {"step_a": [CAPACITY] * 3, "step_b": [3.0, 11.0, 20.0], "step_c": [9.0, 2.0, 14.0]}
    inputs = dict(given)
    with torch.no_grad():
        expected = {"encoded_nodes": model.encoder(rows_of(given), CAPACITY)}
        for step, nodes in selected.items():
            decide, room = (
                cvrp_decider(model, NEAREST if step == "step_c" else None),
                torch.tensor(left[step]),
            )
            expected |= cvrp_step_of(step, decide, tape, given, nodes, room)
            inputs |= {f"{step}.selected": nodes, f"{step}.remaining": room}
    for name, greedy in solutions.items():
        expected |= {f"{name}.{key}": value for key, value in greedy.items()}
    trained = module_of(official / "CVRP" / TRAINING / "VRPModel.py").VRPModel(
        **CVRP_SIZES, **VARIANT | {"k_nearest_num": visited.shape[1]}
    )
    trained.load_state_dict(weights)
    draws = {
        "shift": torch.tensor(1), "length": torch.tensor(9), "end_route": torch.tensor([0.3, 0.6, 0.9]),
        "whole_flip": torch.tensor(0.0), "route_flip_1": torch.ones(visited.numel()),
        "route_flip_2": torch.ones(visited.numel()),
    }  # fmt: skip
    expected |= cvrp_training_of(trained, cvrp_decider(trained, None), given, draws, TRAINED, RATE, CLIP)
    inputs |= {f"train.{key}": value for key, value in draws.items()}
    facts = {
        "model": "SIL", "problem": "CVRP", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"model_params": CVRP_SIZES, "step_c_k": NEAREST, "train_lr": RATE},
        "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, "sil-cvrp", weights, inputs, expected, facts)


def cvrp_candidate(seed: int) -> tuple[Any, float]:
    """Build a small official network for the CVRP with random weights; with its greedy solutions and their margin."""
    from VRPModel import VRPModel

    torch.manual_seed(seed)
    model = VRPModel(**CVRP_SIZES, **VARIANT).eval()
    scatter(model, seed, {key: SCALE for key, p in model.named_parameters() if p.dim() > 1})
    given = cvrp_drawn(3, 16, seed)
    with torch.no_grad():
        plain, margin = cvrp_greedy_of(cvrp_decider(model, None), given)
        nearest, other = cvrp_greedy_of(cvrp_decider(model, NEAREST), given)
    solutions = {"greedy": plain, "greedy_knn": nearest}
    return (model, Tape.of(model.decoder.Linear_final), given, solutions), min(margin, other)


def cvrp_decider(model: Any, nearest: int | None) -> Any:
    """Return what asks the official network for the probabilities of customers, all or the nearest in sight."""

    def decide(rows: Tensor, selected: Tensor, capacity: float, left: Tensor) -> Tensor:
        model.decoder.model_params["use_k_nearest"] = nearest is not None
        step = selected.shape[1]
        return model.decoder(model.encoder(rows, capacity), rows, selected, step, capacity, left)

    return decide


def candidate(seed: int) -> tuple[Any, float]:
    """Build a small official network with random weights; returns it with its greedy tours and their margin."""
    from TSPModel import TSPModel

    torch.manual_seed(seed)
    model = TSPModel(**SIZES, **VARIANT).eval()
    scatter(model, seed, {key: SCALE for key, p in model.named_parameters() if p.dim() > 1})
    problems, labels = drawn(3, 16, seed)
    with torch.no_grad():
        plain, margin = greedy_of(decider(model, None), problems)
        nearest, other = greedy_of(decider(model, NEAREST), problems)
    tours = {"greedy": plain, "greedy_knn": nearest}
    return (model, Tape.of(model.decoder.Linear_final), problems, labels, tours), min(margin, other)


def decider(model: Any, nearest: int | None) -> Any:
    """Return what asks the official network for the next node's probabilities, all open nodes or the nearest in sight."""

    def decide(problems: Tensor, selected: Tensor) -> Tensor:
        model.decoder.model_params["use_k_nearest"] = nearest is not None
        count, n, _ = problems.shape
        first, last = (problems.gather(1, selected[:, [at], None].expand(-1, -1, 2)) for at in (0, -1))
        step = selected.shape[1]
        return model.decoder(model.encoder(problems), problems, first, last, selected, step, count, n)

    return decide


if __name__ == "__main__":
    main()
