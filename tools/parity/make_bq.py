"""Make fixtures of BQ-NCO from the authors' code: scores, greedy and beam search, nearest nodes, training; TSP and CVRP.

git clone https://github.com/naver/bq-nco
python tools/parity/make_bq.py --official bq-nco --out parity
nco-bench parity parity/bq-*.safetensors
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from making import (
    absent,
    arguments,
    import_from,
    in_double,
    margin,
    scatter,
    separated,
    watched,
    write_fixture,
)
from torch import Tensor, nn

REPOSITORY = "naver/bq-nco"
COMMIT = "b7f927faf1d87dca699361312471c10ecc8dd346"
SIZES = {
    "emb_size": 16, "nb_heads": 4, "dim_ff": 32, "nb_layers_encoder": 2, "activation_ff": "relu",
    "activation_attention": "softmax", "dropout": 0.0, "batchnorm": False,
}  # fmt: skip
NODES, PART, BEAM, NEAREST = 14, 8, 4, 6
RATE, DECAY = 2.5e-4, 0.99
TRAINED = [
    "input_emb.weight", "begin_end_tokens.weight", "encoder.0.attn.lambda1", "encoder.0.res_norm1.alpha",
    "scores_projection.weight",
]  # fmt: skip
CAPACITY = 30.0
DRAWS = {"tsp": [6, NODES, 9], "cvrp": [0, 4, 7]}


def main() -> None:
    options = arguments(__doc__)
    absent("entmax")  # only the variant with entmax needs it
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    for problem in ("tsp", "cvrp"):
        make(problem, options.out)


def make(problem: str, out: Any) -> None:
    """Make the fixture of one problem."""

    def drawn(seed: int) -> tuple[Any, float]:
        net, given = network(problem, seed), instances(problem, seed)
        with torch.no_grad():
            found, least = decoded(net, problem, given)
            with in_double():
                again, _ = decoded(copy.deepcopy(net).double(), problem, given)
        firm = all(
            torch.equal(value, again[key]) for key, value in found.items() if not value.is_floating_point()
        )
        return (net, given, found), least if firm else 0.0

    (net, given, found), seed = separated(drawn, 900)
    weights = {key: value.clone() for key, value in net.state_dict().items()}
    with torch.no_grad():
        found |= {
            "scores_full": scores(net, problem, given, given.get("capacities")),
            "scores_sub": scores(net, problem, given, given.get("sub_remaining"), "sub_"),
        }
    trained, made = training(net, problem, seed)
    facts = {
        "model": "BQ-NCO", "problem": problem.upper(), "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {
            "model_params": SIZES, "beam": BEAM, "knns": NEAREST, "train_lr": RATE, "decay_rate": DECAY, "decay_every": 50,
        },
        "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(out, f"bq-{problem}", weights, given | trained, found | made, facts)


def network(problem: str, seed: int) -> Any:
    """Build a small official network with random weights; the residual weights, 0 at the start, are drawn too."""
    from model.model import BQModel

    torch.manual_seed(seed)
    net = BQModel(2 if problem == "tsp" else 4, **SIZES, problem=problem)
    scatter(net, seed, {key: 1.8 for key, p in net.named_parameters() if p.dim() > 1})
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in net.named_parameters():
        if name.endswith("alpha"):
            parameter.data.uniform_(0.4, 1.2, generator=generator)
        if "bias_" in name:
            parameter.data.normal_(0.0, 0.2, generator=generator)
    return net.eval()


def instances(problem: str, seed: int) -> dict[str, Tensor]:
    """Draw instances as the authors store them, the first node again at the end, and path problems."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(3, NODES, 2, generator=generator)
    out = {
        "coords": torch.cat([points, points[:, :1]], dim=1),
        "sub_coords": torch.rand(3, PART, 2, generator=generator),
    }
    if problem == "tsp":
        return out
    demand = torch.randint(1, 10, (3, NODES + 1), generator=generator).float()
    demand[:, 0] = demand[:, -1] = 0
    part = torch.randint(1, 10, (3, PART), generator=generator).float()
    part[:, -1] = 0
    return out | {
        "demands": demand, "capacities": torch.full((3,), CAPACITY), "sub_demands": part,
        "sub_remaining": torch.tensor([4.0, 12.0, 25.0]),
    }  # fmt: skip


def scores(
    net: Any, problem: str, given: dict[str, Tensor], remaining: Tensor | None, part: str = ""
) -> Tensor:
    """Ask the network for the scores of a sequence origin ... destination."""
    coords = given[f"{part}coords"]
    if problem == "tsp" or remaining is None:
        return net(coords)
    demands, capacities = given[f"{part}demands"], given["capacities"]
    shares = (remaining / capacities)[:, None, None].expand(-1, coords.shape[1], 1)
    inputs = torch.cat([coords, (demands / capacities[:, None])[..., None], shares], dim=2)
    return net(inputs, demands=demands, remaining_capacities=remaining)


def decoded(net: Any, problem: str, given: dict[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """Decode greedily and with a beam, with and without nearest nodes; also the smallest margin of the greedy choices."""
    kind = next(net.parameters()).dtype
    coords = given["coords"].to(kind)
    distances = torch.cdist(coords, coords, compute_mode="donot_use_mm_for_euclid_dist")
    margins: list[float] = []
    watch = net.register_forward_hook(lambda _module, _given, out: margins.append(margin(out.log_softmax(1))))
    out: dict[str, Tensor] = {}
    for name, width in (("greedy", 1), ("beam", BEAM)):
        for ending, nearest in (("", -1), ("_knn", NEAREST)):
            if width > 1:
                watch.remove()
            with watched(
                "argmin"
            ) as compared:  # of the lengths of the last beams; routes in another order cost the same
                found = official_decode(problem, net, coords, distances, given, width, nearest)
            margins += [margin(-lengths) for lengths in compared]
            out |= {f"{name}{ending}.{key}": value for key, value in found.items()}
    return out, min(margins)


def official_decode(
    problem: str, net: nn.Module, coords: Tensor, distances: Tensor, given: dict[str, Tensor], width: int, nearest: int
) -> dict[str, Tensor]:  # fmt: skip
    if problem == "tsp":
        from learning.tsp.decoding import decode

        tours, lengths = decode(coords, distances, net, width, nearest)
        return {"tours": tours, "lengths": lengths.float()}
    from learning.cvrp.decoding import beam_search_decoding_loop, greedy_decoding_loop

    demands, capacities = (given[key].to(coords.dtype) for key in ("demands", "capacities"))
    # The loop for a beam keeps rows of distances by nearest nodes only.
    if width == 1:
        paths, via, lengths = greedy_decoding_loop(coords, distances, demands, capacities, net, nearest)
    else:
        paths, via, lengths = beam_search_decoding_loop(
            coords, distances, demands, capacities, net, width, nearest
        )
    return {"paths": paths, "via_depot": via.long(), "lengths": lengths.float()}


def training(net: Any, problem: str, seed: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Train on suffixes of solutions, a step of Adam for each, as the official learner does; then the rate decays."""
    from utils.misc import do_lr_decay

    given = instances(problem, seed + 1)
    inputs = {"train.coords": given["coords"]}
    if problem == "cvrp":
        via, room = routes_of(given["demands"])
        inputs |= {
            "train.demands": given["demands"],
            "train.via_depots": via,
            "train.remaining_capacities": room,
        }
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    net.train()
    losses, sizes = [], []
    for draw in DRAWS[problem]:
        begin = NODES + 2 - draw if problem == "tsp" else draw
        part = {"coords": given["coords"][:, begin:], "capacities": given.get("capacities", torch.ones(3))}
        if problem == "tsp":
            out, target = net(part["coords"]), torch.ones(3, dtype=torch.int64)
        else:
            part["demands"] = given["demands"][:, begin:]
            out = scores(net, problem, part, room[:, begin])
            target = 2 + via[:, begin + 1]
        loss = nn.functional.cross_entropy(out, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        sizes.append(part["coords"].shape[1])
    do_lr_decay(optimizer, DECAY)
    inputs["train.size_draws" if problem == "tsp" else "train.begin_draws"] = torch.tensor(DRAWS[problem])
    after = {f"train.param_after.{key}": net.state_dict()[key] for key in TRAINED}
    rate = torch.tensor(optimizer.param_groups[0]["lr"], dtype=torch.float64)
    made = {
        "train.losses": torch.stack(losses),
        "train.num_nodes": torch.tensor(sizes),
        "train.lr_after": rate,
    }
    return inputs, made | after


def routes_of(demands: Tensor) -> tuple[Tensor, Tensor]:
    """Serve the customers in their order, by way of the depot where the load no longer fits."""
    via, room = torch.zeros_like(demands, dtype=torch.int64), torch.full_like(demands, CAPACITY)
    via[:, 0] = 1
    left = torch.full((len(demands),), CAPACITY)
    for at in range(1, demands.shape[1] - 1):
        back = left < demands[:, at]
        left = torch.where(back, CAPACITY, left) - demands[:, at]
        via[:, at], room[:, at] = back.long(), left
    return via, room


if __name__ == "__main__":
    main()
