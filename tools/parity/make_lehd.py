"""Make LEHD's fixture from the authors' code: encoder, scores of steps, greedy tours, training along a segment; TSP.

git clone https://github.com/CIAM-Group/NCO_code
python tools/parity/make_lehd.py --official NCO_code --out parity
nco-bench parity parity/lehd-tsp.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from making import arguments, import_from, scatter, separated, write_fixture
from torch import Tensor
from tsp_steps import Tape, drawn, greedy_of, step_of, training_of

REPOSITORY = "CIAM-Group/NCO_code"
COMMIT = "274df3c4975384592b60fe7f79fbb2441ce11c15"
FOLDER = "single_objective/LEHD/TSP"
SIZES = {
    "embedding_dim": 16, "sqrt_embedding_dim": 4.0, "decoder_layer_num": 3, "qkv_dim": 4, "head_num": 4, "ff_hidden_dim": 32,
}  # fmt: skip
TRAINED = ["decoder.Linear_final.weight", "decoder.layers.0.Wq.weight", "encoder.embedding.weight"]
RATE, SCALE = 1e-4, 1.8


def main() -> None:
    options = arguments(__doc__)
    import_from(options.official / FOLDER, options.official, COMMIT, any_commit=options.any_commit)
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
    write_fixture(options.out, "lehd-tsp", weights, inputs, expected, facts)


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
