"""Make fixtures of AM from the authors' code: encoder, greedy and beam decoding, one step of REINFORCE; TSP and CVRP.

git clone https://github.com/wouterkool/attention-learn-to-route
python tools/parity/make_am.py --official attention-learn-to-route --out parity
nco-bench parity parity/am-*.safetensors
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from making import arguments, import_from, margin, scatter, separated, write_fixture
from torch import Tensor, nn

REPOSITORY = "wouterkool/attention-learn-to-route"
COMMIT = "c9abf41ac2f878a55b20dc7e829bc942bb999631"
WIDTH, HEADS, LAYERS, FEED_FORWARD, BEAM = 16, 4, 2, 32, 5
SHARES = 32
"""Demands are whole numbers of these parts of the capacity: sums are exact in float32, in any order."""


def main() -> None:
    options = arguments(__doc__)
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for problem in ("tsp", "cvrp"):
        make(problem, options.out)


def make(problem: str, out: Path) -> None:
    """Make the fixture of one problem."""

    def drawn(seed: int) -> tuple[Any, float]:
        model = network(problem, seed)
        inputs = {"": instances(problem, 3, 12, seed), "b.": instances(problem, 2, 20, seed + 1)}
        with torch.no_grad():
            greedy = {group: greedy_of(model, given) for group, given in inputs.items()}
        return (model, inputs, greedy), min(margin(found["log_p"]) for found in greedy.values())

    (model, inputs, greedy), seed = separated(drawn, 100)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    with torch.no_grad():
        expected = encoder_of(model, as_official(inputs[""]))
        expected |= {f"greedy.{key}": value for key, value in greedy[""].items()}
        expected |= {f"b.greedy.{key}": greedy["b."][key] for key in ("pi", "cost", "ll")}
        expected |= beams_of(model, as_official(inputs[""]))
    given = {f"{group}{key}": value for group, values in inputs.items() for key, value in values.items()}
    given["forced_pi"] = expected["greedy.pi"]
    given["baseline"] = torch.linspace(4.0, 5.0, 3)
    gradients, order = training_of(model, as_official(inputs[""]), given["forced_pi"], given["baseline"])
    sizes = {
        "embedding_dim": WIDTH, "hidden_dim": WIDTH, "n_encode_layers": LAYERS, "n_heads": HEADS,
        "tanh_clipping": 10.0, "normalization": "batch", "feed_forward_hidden": FEED_FORWARD,
    }  # fmt: skip
    facts = {
        "model": "am", "problem": problem, "official_repo": REPOSITORY, "commit": COMMIT, "config": sizes,
        "seed": seed, "torch": torch.__version__, "grad_norm_order": order,
    }  # fmt: skip
    write_fixture(out, f"am-{problem}", weights, given, expected | gradients, facts)


def network(problem: str, seed: int) -> nn.Module:
    """Build a small official network with random weights."""
    from nets.attention_model import AttentionModel
    from nets.graph_encoder import GraphAttentionEncoder
    from problems import CVRP, TSP

    torch.manual_seed(seed)
    model = AttentionModel(WIDTH, WIDTH, TSP if problem == "tsp" else CVRP, LAYERS, n_heads=HEADS)
    model.embedder = GraphAttentionEncoder(HEADS, WIDTH, LAYERS, feed_forward_hidden=FEED_FORWARD)
    scatter(model, seed, {"project_out.weight": 6.0, "init_embed.weight": 3.0})
    return model.eval()


def instances(problem: str, count: int, n: int, seed: int) -> dict[str, Tensor]:
    """Draw instances as the fixture holds them."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {"loc": torch.rand(count, n, 2, generator=generator)}
    if problem == "cvrp":
        drawn["depot"] = torch.rand(count, 2, generator=generator)
        drawn["demand"] = torch.randint(1, 10, (count, n), generator=generator) / SHARES
    return drawn


def as_official(given: dict[str, Tensor]) -> Any:
    """Return the instances as the official code takes them."""
    return given if "demand" in given else given["loc"]


def followed(model: Any, given: Any, moves: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Decode greedily or along `moves`; return moves, costs, log-likelihoods and log-probabilities of all steps."""
    model.set_decode_type("greedy")
    official = model._select_node
    if moves is not None:
        steps = iter(moves.T)
        model._select_node = lambda probs, mask: next(steps)
    try:
        embeddings, _ = model.embedder(model._init_embed(given))
        log_p, pi = model._inner(given, embeddings)
    finally:
        model._select_node = official
    cost, mask = model.problem.get_costs(given, pi)
    return pi, cost, model._calc_log_likelihood(log_p, pi, mask), log_p


def greedy_of(model: Any, given: dict[str, Tensor]) -> dict[str, Tensor]:
    pi, cost, ll, log_p = followed(model, as_official(given), None)
    return {"pi": pi, "cost": cost, "ll": ll, "log_p": log_p}


def encoder_of(model: Any, given: Any) -> dict[str, Tensor]:
    x = model._init_embed(given)
    out = {"init_embed": x}
    for index, layer in enumerate(model.embedder.layers):
        x = layer(x)
        out[f"layer{index}_out"] = x
    fixed = model._precompute(x)
    graph = x.mean(1)
    return out | {"encoder_out": x, "graph_embed": graph, "fixed_context": fixed.context_node_projected[:, 0]}


def beams_of(model: Any, given: Any) -> dict[str, Tensor]:
    model.set_decode_type("greedy")
    score, pi, cost, _, _ = model.beam_search(given, BEAM)
    name = f"beam{BEAM}"
    return {f"{name}.score": score, f"{name}.pi": pi, f"{name}.cost": cost}


def training_of(
    model: Any, given: Any, moves: Tensor, baseline: Tensor
) -> tuple[dict[str, Tensor], list[str]]:
    """Take the gradients of one step of REINFORCE, with batch statistics."""
    model.train()
    _, cost, ll, _ = followed(model, given, moves)
    loss = ((cost - baseline) * ll).mean()
    loss.backward()
    named = dict(model.named_parameters())
    norms = [torch.zeros(()) if p.grad is None else p.grad.norm() for p in named.values()]
    found = {"train.ll": ll, "train.loss": loss[None], "train.grad_norms": torch.stack(norms)}
    statistics = {key: value for key, value in model.state_dict().items() if "running" in key}
    return found | {f"train.after.{key}": value for key, value in statistics.items()}, list(named)


if __name__ == "__main__":
    main()
