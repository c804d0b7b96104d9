"""Make fixtures of SIGD from the authors' code (gumbeldore): logits, greedy, training; TSP and CVRP, on BQ and LEHD.

git clone https://github.com/grimmlab/gumbeldore
python tools/parity/make_sigd.py --official gumbeldore --out parity
nco-bench parity parity/sigd*.safetensors
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from making import arguments, import_from, margin, scatter, separated, write_fixture
from torch import Tensor, nn

REPOSITORY = "grimmlab/gumbeldore"
COMMIT = "8f1eae0b1fff954f051d3efcacbde542eef8d256"
SIZES = {
    "latent_dimension": 16, "num_attention_heads": 4, "feedforward_dimension": 32, "num_transformer_blocks": 2,
    "dropout": 0.0, "use_rezero_transformer": True,
}  # fmt: skip
STYLES = {"bq": "sigd", "lehd": "sigd_lehd"}
"""Name of the network in the repository -> beginning of the fixture's name."""
NODES, PART, RATE = 14, 8, 2e-4
LENGTHS = [6, NODES + 1, 10]
"""Of the sub-tours that are trained on; the last node is the destination."""
TRAINED = ["node_embedding.weight", "policy_linear_out.weight"]


def main() -> None:
    options = arguments(__doc__)
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for style in STYLES:
        make_tsp(options.out, style)
        make_cvrp(options.out, style)


def make_tsp(out: Path, style: str) -> None:
    """Make the fixture of the TSP: BQ sees the nodes of the path alone, LEHD encodes all of them before."""

    def drawn(seed: int) -> tuple[Any, float]:
        net, points = network("tsp", style, seed), random_points(3, NODES, seed)
        with torch.no_grad():
            greedy, least = greedy_of(scorer(net, points), points)
        return (net, points, greedy), least

    (net, points, greedy), seed = separated(drawn, 1500)
    weights = {key: value.clone() for key, value in net.state_dict().items()}
    tours = random_points(3, NODES, seed + 1)
    inputs = {
        "coords": points, "train.coords": torch.cat([tours, tours[:, :1]], dim=1), "train.lengths": torch.tensor(LENGTHS),
    }  # fmt: skip
    if style == "bq":
        inputs["sub_coords"] = random_points(3, PART, seed + 2)
    else:
        inputs["sub_length"] = torch.tensor(PART)
    with torch.no_grad():
        if style == "bq":
            expected = {"logits_sub": net({"nodes": inputs["sub_coords"]})}
        else:
            lengths = {"sub": PART, "full": NODES + 1}
            expected = {f"logits_{name}": net(part(points, length)) for name, length in lengths.items()}
            expected["encoded_nodes"] = net.encode(points)
    expected |= {f"greedy.{key}": value for key, value in greedy.items()}
    given = [
        {"nodes": inputs["train.coords"][:, :length]} if style == "bq" else part(tours, length)
        for length in LENGTHS
    ]
    batches = [(one, torch.zeros(3, dtype=torch.int64)) for one in given]
    write(out, style, "tsp", seed, weights, inputs, expected | training_of(net, batches))


def part(tours: Tensor, length: int) -> dict[str, Any]:
    """Return what the LEHD style takes for the first `length` nodes of tours; one more than there are closes them."""
    count = tours.shape[1]
    return {"nodes": tours, "subtour_length": min(length, count), "start_node_is_end_node": length > count}


def make_cvrp(out: Path, style: str) -> None:
    """Make the fixture of the CVRP: logits of paths that start at the depot and at a customer, and training on such."""
    seed = 1600
    net = network("cvrp", style, seed)
    weights = {key: value.clone() for key, value in net.state_dict().items()}
    steps = {"step": state(9, seed)} | {f"train.{k}": state(6 + 3 * k, seed + 1 + k) for k in range(3)}
    inputs = {
        f"{name}.{key}": value.to(torch.uint8) if value.dtype == torch.bool else value
        for name, given in steps.items()
        for key, value in given.items()
    }
    with torch.no_grad():
        expected = {"step.logits": net(steps["step"])}
    batches = []
    for name, given in list(steps.items())[1:]:
        target = (~given["action_mask"]).long().argmax(1)  # the first that is allowed
        inputs[f"{name}.next_action_idx"] = target
        batches.append((given, target))
    write(out, style, "cvrp", seed, weights, inputs, expected | training_of(net, batches))


def write(
    out: Path, style: str, problem: str, seed: int, weights: dict[str, Tensor], inputs: dict[str, Tensor],
    expected: dict[str, Tensor],
) -> None:  # fmt: skip
    facts = {
        "model": "SIGD", "problem": problem.upper(), "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"architecture": style.upper(), "model_params": SIZES, "train_lr": RATE},
        "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, f"{STYLES[style]}-{problem}", weights, inputs, expected, facts)


def network(problem: str, style: str, seed: int) -> Any:
    """Build a small official network with random weights; the residual weights, 0 at the start, are drawn too."""
    kind = getattr(import_module(f"{problem}.{style}_network"), f"{style.upper()}PolicyNetwork")
    torch.manual_seed(seed)
    net = kind(SimpleNamespace(**SIZES))
    scatter(net, seed, {key: 1.8 for key, p in net.named_parameters() if p.dim() > 1})
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in net.named_parameters():
        if parameter.dim() <= 1 and parameter.numel() == 1 and not name.endswith("bias"):
            parameter.data.uniform_(0.4, 1.2, generator=generator)
    return net.eval()


def random_points(count: int, n: int, seed: int) -> Tensor:
    """Draw points of the unit square."""
    return torch.rand(count, n, 2, generator=torch.Generator().manual_seed(seed))


def state(rows: int, seed: int) -> dict[str, Tensor]:
    """Draw paths as the official network takes them: two at the depot, two at the customer of row 1."""
    generator = torch.Generator().manual_seed(seed)
    demands = torch.randint(1, 10, (4, rows), generator=generator) / 32
    demands[:, 0] = 0
    left = torch.tensor([[1.0], [1.0], [5 / 32], [9 / 32]])
    start = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    demands[2:, 1] = 0  # already served
    mask = torch.zeros(4, 2 * (rows - 1), dtype=torch.bool)
    mask[:, 0::2] = demands[:, 1:] > left  # directly
    mask[:2, 0::2] = True  # from the depot every way leads by the depot
    mask[2:, :2] = True
    points = torch.rand(4, rows, 2, generator=generator)
    return {
        "nodes": points, "demands": demands, "current_capacity": left, "start_node_mask": start, "action_mask": mask,
    }  # fmt: skip


def scorer(net: Any, points: Tensor) -> Callable[[Tensor], Tensor]:
    """Return what scores the open nodes of rows: the last node, the open ones, node 0."""
    seen = net.encode(points) if hasattr(net, "encode") else points

    def scores(rows: Tensor) -> Tensor:
        chosen = seen.gather(1, rows[..., None].expand(-1, -1, seen.shape[2]))
        made: Tensor = net.decode(chosen) if hasattr(net, "encode") else net({"nodes": chosen})
        return made

    return scores


def greedy_of(score: Callable[[Tensor], Tensor], points: Tensor) -> tuple[dict[str, Tensor], float]:
    """Construct tours from node 0; the network sees the last node, the open ones and node 0. With the smallest margin."""
    tours = torch.zeros(len(points), 1, dtype=torch.int64)
    log_prob, least = torch.zeros(len(points)), float("inf")
    while tours.shape[1] < points.shape[1]:
        free = torch.ones(points.shape[:2], dtype=torch.bool).scatter(1, tours, False)
        left = free.nonzero()[:, 1].view(len(points), -1)
        if left.shape[1] == 1:  # appended without asking
            tours = torch.cat([tours, left], dim=1)
            continue
        rows = torch.cat([tours[:, -1:], left, tours[:, :1]], dim=1)
        scores = score(rows).log_softmax(1)
        least = min(least, margin(scores))
        best, chosen = scores.max(1, keepdim=True)
        log_prob = log_prob + best.squeeze(1)
        tours = torch.cat([tours, left.gather(1, chosen)], dim=1)
    ordered = points.gather(1, tours[..., None].expand(-1, -1, 2))
    lengths = (ordered - ordered.roll(-1, dims=1)).norm(dim=2).sum(1)
    return {"tours": tours, "lengths": lengths, "log_prob": log_prob}, least


def training_of(net: Any, batches: list[tuple[dict[str, Tensor], Tensor]]) -> dict[str, Tensor]:
    """Take a step of Adam on the cross-entropy of the next action of each batch."""
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    losses = []
    for given, target in batches:
        loss = nn.functional.cross_entropy(net(given), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    after = {f"train.param_after.{key}": net.state_dict()[key] for key in TRAINED}
    return {"train.losses": torch.stack(losses), **after}


if __name__ == "__main__":
    main()
