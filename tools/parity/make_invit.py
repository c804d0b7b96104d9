"""Make fixtures of INViT from the authors' code: greedy solutions and probabilities, forced, REINFORCE; TSP and CVRP.

git clone https://github.com/Kasumigaoka-Utaha/INViT
python tools/parity/make_invit.py --official INViT --out parity
nco-bench parity parity/invit-*.safetensors
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import torch
from making import absent, arguments, import_from, margin, scatter, separated, write_fixture
from nearest import stand_in
from torch import Tensor, nn

REPOSITORY = "Kasumigaoka-Utaha/INViT"
COMMIT = "f11a6024870036f5d7a7826e0955bd4e6dd350dd"
SIZES = {
    "dim_emb": 16, "dim_ff": 32, "num_state_encoder": 2, "nb_layers_state_encoder": 1, "nb_layers_action_encoder": 1,
    "nb_layers_decoder": 3, "nb_heads": 4,
}  # fmt: skip
NEAR, STATES, CAPACITY = 4, [6, 9], 30
NODES, NODES_B = 16, 20


def main() -> None:
    options = arguments(__doc__)
    stand_in()
    absent("sklearn", "sklearn.decomposition", "sklearn.manifold")
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for problem in ("tsp", "cvrp"):
        make(problem, options.out)


def make(problem: str, out: Path) -> None:
    """Make the fixture of one problem."""

    def drawn(seed: int) -> tuple[Any, float]:
        model = network(problem, seed)
        inputs = {"": instances(problem, 3, NODES, seed), "b.": instances(problem, 2, NODES_B, seed + 1)}
        with torch.no_grad():
            found = {group: solved(model, problem, given) for group, given in inputs.items()}
        return (model, inputs, found), min(
            margin(step.log()) for one in found.values() for step in one["steps"] if step.shape[1] > 1
        )

    (model, inputs, found), seed = separated(drawn, 1200)
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    given = {f"{group}{key}": value for group, values in inputs.items() for key, value in values.items()}
    expected: dict[str, Tensor] = {}
    for group, one in found.items():
        expected |= {f"{group}greedy.{key}": one[key] for key in ("tours", "lengths", "log_prob")}
    width = max(step.shape[1] for step in found[""]["steps"])
    steps = [nn.functional.pad(step, (0, width - step.shape[1])) for step in found[""]["steps"]]
    expected["greedy.probs"] = torch.stack(steps)
    torch.manual_seed(seed)
    sampled = solved(model, problem, inputs[""], greedy=False)
    given |= {"forced_tours": sampled["tours"], "baseline": found[""]["lengths"]}
    loss = ((sampled["lengths"] - found[""]["lengths"]) * sampled["log_prob"]).mean()
    loss.backward()
    named = dict(model.named_parameters())
    norms = [torch.zeros(()) if p.grad is None else p.grad.norm() for p in named.values()]
    expected |= {
        "forced.log_prob": sampled["log_prob"], "forced.lengths": sampled["lengths"], "train.loss": loss[None],
        "train.grad_norms": torch.stack(norms),
    }  # fmt: skip
    facts = {
        "model": "invit", "problem": problem, "official_repo": REPOSITORY, "commit": COMMIT,
        "config": SIZES | {
            "action_k": NEAR, "state_k": STATES, "problem": problem, "capacity": float(CAPACITY), "batchnorm": False,
            "if_agg_whole_graph": False, "if_use_local_mask": False,
        },
        "seed": seed, "torch": torch.__version__, "grad_norm_order": list(named),
    }  # fmt: skip
    write_fixture(out, f"invit-{problem}", weights, given, expected, facts)


def network(problem: str, seed: int) -> Any:
    """Build a small official network with random weights."""
    torch.manual_seed(seed)
    if problem == "tsp":
        from TSP_net import TSP_net as Net
    else:
        from VRP_net import VRP_net as Net
    model = Net(2, **SIZES, batchnorm=False, if_agg_whole_graph=False)
    scales = {
        key: 2.0 for key, _ in model.named_parameters() if "input_emb" in key and key.endswith("weight")
    }
    scatter(model, seed, scales | {"decoder.Wq_final.weight": 3.0, "WK_att_decoder.weight": 3.0})
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.weight.data.uniform_(0.6, 1.4, generator=generator)
    return model.eval()


def instances(problem: str, count: int, n: int, seed: int) -> dict[str, Tensor]:
    """Draw instances; for the TSP also the first node of each tour, which the official code draws."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, n, 2, generator=generator)
    if problem == "tsp":
        return {"coords": points, "start": torch.randint(n, (count,), generator=generator)}
    return {
        "loc": points, "depot": torch.rand(count, 2, generator=generator),
        "demand": torch.randint(1, 10, (count, n), generator=generator),
    }  # fmt: skip


def solved(model: Any, problem: str, given: dict[str, Tensor], *, greedy: bool = True) -> dict[str, Any]:
    """Build solutions with the official code; `steps` is what its decoder says at each call."""
    steps: list[Tensor] = []
    watch = model.decoder.register_forward_hook(lambda _module, _given, out: steps.append(out.detach()))
    if problem == "tsp":
        with mock.patch.object(torch, "randint", return_value=given["start"]):
            tours, log_prob = model(given["coords"], NEAR, STATES, choice_deterministic=greedy)
        rows = given["coords"].gather(1, tours[..., None].expand(-1, -1, 2))
    else:
        tours, log_prob = model(given, NEAR, STATES, CAPACITY, choice_deterministic=greedy)
        points = torch.cat([given["depot"][:, None], given["loc"]], dim=1)
        closed = nn.functional.pad(tours + 1, (1, 0))
        rows = points.gather(1, closed[..., None].expand(-1, -1, 2))
    watch.remove()
    lengths = (rows - rows.roll(-1, dims=1)).norm(dim=2).sum(1)
    return {"tours": tours, "lengths": lengths, "log_prob": log_prob, "steps": steps}


if __name__ == "__main__":
    main()
