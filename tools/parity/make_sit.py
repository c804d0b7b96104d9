"""Make SIT's fixture from the authors' code (SIL): embedding, scores of steps, greedy tours, training; TSP.

git clone https://github.com/CIAM-Group/SIL
python tools/parity/make_sit.py --official SIL --out parity
nco-bench parity parity/sil-tsp.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from making import arguments, import_from, module_of, scatter, separated, write_fixture
from torch import Tensor
from tsp_steps import Tape, drawn, greedy_of, step_of, training_of

REPOSITORY = "CIAM-Group/SIL"
COMMIT = "9ec783e90a1631f7b95f84eb20f8f9751cb45c10"
FOLDER, TRAINING = "TSP/Test_All", "TSP/Train"
"""Two versions of the network: gradients are those of the one for training."""
SIZES = {
    "embedding_dim": 16, "sqrt_embedding_dim": 4.0, "encoder_layer_num": 2, "qkv_dim": 4, "head_num": 4, "ff_hidden_dim": 32,
    "logit_clipping": 10,
}  # fmt: skip
TRAINED = ["decoder.Linear_final.weight", "decoder.embedding_last_node_7.weight", "encoder.embedding.weight"]
RATE, CLIP, SCALE, NEAREST = 1e-4, 10.0, 2.0, 6
VARIANT = {"mode": "test", "use_k_nearest": False, "k_nearest_num": NEAREST}


def main() -> None:
    options = arguments(__doc__)
    import_from(options.official / FOLDER, options.official, COMMIT, any_commit=options.any_commit)
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
    trained = module_of(options.official / TRAINING / "TSPModel.py").TSPModel(
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
    write_fixture(options.out, "sil-tsp", weights, inputs, expected, facts)


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
