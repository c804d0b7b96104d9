"""Make DGL's fixture from the authors' code: features, candidates, encoder, probabilities, greedy tours and beams; TSP.

git clone https://github.com/xybFight/DGL
python tools/parity/make_dgl.py --official DGL --out parity
nco-bench parity parity/dgl-tsp.safetensors
"""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import UTC
from typing import Any
from unittest import mock

import torch
from making import absent, arguments, import_from, margin, scatter, separated, write_fixture
from nearest import stand_in
from torch import Tensor

REPOSITORY = "xybFight/DGL"
COMMIT = "66332b869506d9e23e8528b67818f6278913de95"
FEATURES = [True, True, True, False, True, True, False, False, False, False, False]
"""Which of the authors' features the published model has."""
SIZES = {
    "embedding_dim": 16, "head_num": 4, "qkv_dim": 4, "ff_hidden_dim": 32, "encoder_layer_num": 1, "decoder_layer_num": 2,
    "append_information": FEATURES,
}  # fmt: skip
NODES, COUNT, NEAREST, BEAMS = 16, 3, 6, 3
STEPS = (1, 2, 8, 13)


def main() -> None:
    options = arguments(__doc__)
    stand_in()
    absent("concorde", "concorde.tsp", "pytz", "lkh", "elkai", "tsplib95", "vrplib")
    with suppress(AttributeError):  # a stand-in: their loggers want the hour in Seoul
        sys.modules["pytz"].timezone.return_value = UTC
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    import_from(options.official / "TSP", options.official, COMMIT, any_commit=options.any_commit)
    (model, points, greedy, beams), seed = separated(drawn, 1700)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    inputs = {"coords": points, "greedy.start": torch.tensor([3]), "beam.start": torch.tensor([5])}
    expected = {f"greedy.{key}": greedy[key] for key in ("tours", "lens")}
    expected |= {f"beam.{key}": value for key, value in beams.items()}
    for step in STEPS:
        inputs[f"step{step}.selected"] = greedy["tours"][:, :step]
        expected |= {f"step{step}.{key}": value for key, value in greedy["steps"][step - 1].items()}
    facts = {
        "model": "dgl", "problem": "tsp", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": SIZES | {"knn": NEAREST, "beam_size": BEAMS}, "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(options.out, "dgl-tsp", weights, inputs, expected, facts)


def drawn(seed: int) -> tuple[Any, float]:
    """Build a small official network with random weights; with its greedy tours, its beams and their margin."""
    from TSPModel import TSPModel

    torch.manual_seed(seed)
    model = TSPModel(**SIZES, mode="test").eval()
    scatter(model, seed, {key: 1.8 for key, p in model.named_parameters() if p.dim() > 1})
    points = torch.rand(COUNT, NODES, 2, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        greedy = solved(model, points, 1, 3)
        beams = solved(model, points, BEAMS, 5)
    least = min(margin(step["probs"].log()) for step in greedy["steps"] if step["candidates"].shape[1] > 1)
    beams["best_len"] = beams["lens"].view(COUNT, -1).amin(1)
    del beams["steps"]
    return (model, points, greedy, beams), min(least, beams.pop("margin"))


def solved(model: Any, points: Tensor, width: int, start: int) -> dict[str, Any]:
    """Decode in the official environment from one start, as the official tester does; with what the network saw."""
    from TSPEnv import TSPEnv
    from utils.beamsearch import Beamsearch

    env = TSPEnv(
        data_path="", mode="test", baseline_path="", test_mode="pomo_test", aug_size=1, append_information=FEATURES,
        aggregation_nums=0,
    )  # fmt: skip
    env.raw_data_nodes, env.start_idx = points.clone(), 0
    env.load_problems(0, COUNT, NODES, width)
    env.reset("test")
    search = Beamsearch(width, COUNT, NODES, torch.FloatTensor, torch.LongTensor)
    model.pre_forward(env.dis_matrix, COUNT)
    seen: dict[str, Tensor] = {}
    watch = model.encoder.register_forward_hook(
        lambda _m, given, out: seen.update(encoder_input=given[0].clone(), encoder_output=out)
    )
    asked = model.get_knn_state

    def noting(*given: Any) -> Any:
        nodes, chosen = asked(*given)
        seen["candidates"] = chosen
        return nodes, chosen

    steps, least = [], float("inf")
    state, reward, done = env.step(torch.full((COUNT * width,), start))
    with mock.patch.object(model, "get_knn_state", noting):
        while not done:
            features = state.data.clone()
            _, probs, _ = model(state, env.selected_node_list, None, NEAREST, env.selected_count)
            steps.append({"node_features": features, "probs": probs, **seen})
            log_probs = probs.log().view(COUNT, width, -1)
            env.selected_node_list = search.advance(log_probs, env, NEAREST, env.selected_count)
            least = min(least, kept_apart(search.scores))
            state, reward, done = env.step(search.next_nodes[-1].view(-1))
    watch.remove()
    return {"tours": env.selected_node_list, "lens": reward, "steps": steps, "margin": least}


def kept_apart(scores: Tensor) -> float:
    """Return by how much the beams that were kept differ from each other: equal ones could stand in either order."""
    return float((scores[:, :-1] - scores[:, 1:]).min()) if scores.shape[1] > 1 else float("inf")


if __name__ == "__main__":
    main()
