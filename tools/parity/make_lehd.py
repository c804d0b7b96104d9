"""Make LEHD's fixtures from the authors' code: encoder, scores of steps, greedy solutions, training; TSP and CVRP.

git clone https://github.com/CIAM-Group/NCO_code
python tools/parity/make_lehd.py --official NCO_code --out parity
nco-bench parity parity/lehd-*.safetensors
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
from making import arguments, import_from, scatter, separated, write_fixture
from torch import Tensor
from tsp_steps import Tape, drawn, greedy_of, step_of, training_of

REPOSITORY = "CIAM-Group/NCO_code"
COMMIT = "274df3c4975384592b60fe7f79fbb2441ce11c15"
FOLDER = "single_objective/LEHD"
SIZES = {
    "embedding_dim": 16, "sqrt_embedding_dim": 4.0, "decoder_layer_num": 3, "qkv_dim": 4, "head_num": 4, "ff_hidden_dim": 32,
}  # fmt: skip
TRAINED = ["decoder.Linear_final.weight", "decoder.layers.0.Wq.weight", "encoder.embedding.weight"]
RATE, SCALE = 1e-4, 1.8


def main() -> None:
    options = arguments(__doc__)
    for problem in ("TSP", "CVRP"):
        folder = options.official / FOLDER / problem
        import_from(folder, options.official, COMMIT, any_commit=options.any_commit)
    make_tsp(options.out)
    make_cvrp(options.out)


def make_tsp(out: Path) -> None:
    """Make the fixture of the TSP."""
    (model, tape, problems, labels, greedy), seed = separated(candidate, 500)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    inputs = {
        "problems": problems, "label_tours": labels,
        "step_a.selected": labels[:, :1], "step_b.selected": labels[:, :7],
    }  # fmt: skip
    draws = {"start": 5, "length": 9, "flip": 1}
    with torch.no_grad():
        expected = {"encoded_nodes": model.encoder(problems)}
        for step in ("step_a", "step_b"):
            expected |= step_of(step, decider(model), tape, problems, inputs[f"{step}.selected"])
    expected |= {f"greedy.{key}": value for key, value in greedy.items()}
    expected |= training_of(model, decider(model), problems, labels, draws, TRAINED, RATE)
    inputs |= {f"train.{key}": torch.tensor(value) for key, value in draws.items()}
    facts = {
        "model": "LEHD", "problem": "TSP", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"model_params": SIZES, "train_lr": RATE}, "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, "lehd-tsp", weights, inputs, expected, facts)


def make_cvrp(out: Path) -> None:
    """Make the fixture of the CVRP."""
    (model, tape, given, greedy), seed = separated(cvrp_candidate, 500)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    visited = given["label_node_flag"][..., 0]
    selected = {"step_a": visited[:, :0], "step_b": visited[:, :6]}
    left = {"step_a": torch.full((len(visited),), CAPACITY), "step_b": torch.tensor([3.0, 11.0, 20.0])}
    inputs = dict(given)
    with torch.no_grad():
        expected = {"encoded_nodes": model.encoder(rows_of(given), CAPACITY)}
        for step, nodes in selected.items():
            expected |= cvrp_step_of(step, cvrp_decider(model), tape, given, nodes, left[step])
            inputs |= {f"{step}.selected": nodes, f"{step}.remaining": left[step]}
    expected |= {f"greedy.{key}": value for key, value in greedy.items()}
    draws = {
        "shift": torch.tensor(1), "length": torch.tensor(9), "end_route": torch.tensor([0.3, 0.6, 0.9]),
        "whole_flip": torch.tensor(0.0), "route_flip": torch.ones(visited.numel()),
    }  # fmt: skip
    expected |= cvrp_training_of(model, cvrp_decider(model), given, draws, TRAINED, RATE)
    inputs |= {f"train.{key}": value for key, value in draws.items()}
    facts = {
        "model": "LEHD", "problem": "CVRP", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"model_params": SIZES, "train_lr": RATE}, "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, "lehd-cvrp", weights, inputs, expected, facts)


def cvrp_candidate(seed: int) -> tuple[Any, float]:
    """Build a small official network for the CVRP with random weights; with its greedy solutions and their margin."""
    from VRPModel import VRPModel

    torch.manual_seed(seed)
    model = VRPModel(**SIZES, mode="test").eval()
    scatter(model, seed, {key: SCALE for key, p in model.named_parameters() if p.dim() > 1})
    given = cvrp_drawn(3, 14, seed)
    with torch.no_grad():
        greedy, margin = cvrp_greedy_of(cvrp_decider(model), given)
    return (model, Tape.of(model.decoder.Linear_final), given, greedy), margin


def cvrp_decider(model: Any) -> Any:
    """Return what asks the official network for the probabilities of customers, directly or by way of the depot."""

    def decide(rows: Tensor, selected: Tensor, capacity: float, left: Tensor) -> Tensor:
        return model.decoder(model.encoder(rows, capacity), selected, capacity, left)

    return decide


def candidate(seed: int) -> tuple[Any, float]:
    """Build a small official network with random weights; returns it with its greedy tours and their margin."""
    from TSPModel import TSPModel

    torch.manual_seed(seed)
    model = TSPModel(**SIZES, mode="test").eval()
    scatter(model, seed, {key: SCALE for key, p in model.named_parameters() if p.dim() > 1})
    problems, labels = drawn(3, 14, seed)
    with torch.no_grad():
        greedy, margin = greedy_of(decider(model), problems)
    return (model, Tape.of(model.decoder.Linear_final), problems, labels, greedy), margin


def decider(model: Any) -> Any:
    """Return what asks the official network for the next node's probabilities."""

    def decide(problems: Tensor, selected: Tensor) -> Tensor:
        return model.decoder(model.encoder(problems), selected)

    return decide


if __name__ == "__main__":
    main()
