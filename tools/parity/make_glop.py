"""Make GLOP's fixture from the authors' code: a reviser's transformation, encoder, and paths in both directions; TSP.

git clone https://github.com/henry-yeh/GLOP
python tools/parity/make_glop.py --official GLOP --out parity
nco-bench parity parity/glop-tsp.safetensors
"""

from __future__ import annotations

from typing import Any

import torch
from making import absent, arguments, import_from, margin, scatter, separated, write_fixture
from torch import Tensor

REPOSITORY = "henry-yeh/GLOP"
COMMIT = "e540bc0153a0598e923e35116deeaecaf9c1cfff"
LENGTH, COUNT, WIDTH, HEADS, LAYERS = 9, 4, 16, 4, 1


def main() -> None:
    options = arguments(__doc__)
    absent(
        "torch_geometric",
        "torch_geometric.data",
        "torch_geometric.nn",
        "random_insertion",
        "tqdm",
        "lkh",
        "elkai",
    )
    import_from(options.official, options.official, COMMIT, any_commit=options.any_commit)
    (model, segments, found), seed = separated(drawn, 1900)
    name = f"rev{LENGTH}"
    weights = {f"reviser{LENGTH}.{key}": value for key, value in model.state_dict().items()}
    expected = {f"{name}.{key}": value for key, value in found.items()}
    facts = {
        "model": "glop", "problem": "tsp", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": {"embedding_dim": WIDTH, "n_encode_layers": LAYERS, "n_heads": HEADS, "revision_lens": [LENGTH]},
        "seed": seed, "torch": torch.__version__,
    }  # fmt: skip
    write_fixture(options.out, "glop-tsp", weights, {f"{name}.segments": segments}, expected, facts)


def drawn(seed: int) -> tuple[Any, float]:
    """Build a small official reviser with random weights; with what it makes of segments, and the smallest margin."""
    from nets.attention_local import AttentionModel
    from problems.local.problem_local import LOCAL

    torch.manual_seed(seed)
    model = AttentionModel(WIDTH, WIDTH, LOCAL, n_encode_layers=LAYERS, n_heads=HEADS)
    scatter(model, seed, {"init_embed.weight": 3.0, "project_step_context.weight": 3.0})
    model.eval()
    model.set_decode_type("greedy")
    generator = torch.Generator().manual_seed(seed)
    segments = torch.rand(COUNT, LENGTH, 2, generator=generator) * torch.tensor([0.3, 0.2]) + 0.1
    segments[1::2] = segments[1::2].flip(2)  # taller than wide: its axes are exchanged
    with torch.no_grad():
        found = revised(model, segments)
    return (model, segments, found), min(margin(found[f"logp_{way}"]) for way in ("forward", "backward"))


def revised(model: Any, segments: Tensor) -> dict[str, Tensor]:
    """Decode both directions greedily with the official code."""
    from utils.functions import coordinate_transformation

    seen = coordinate_transformation(segments)
    embeddings, _ = model.embedder(model._init_embed(seen))
    log_p, path, back_log_p, back = model._inner(seen, embeddings)
    costs = [model.problem.get_costs(seen, order)[0] for order in (path, back)]
    return {
        "transformed": seen, "node_embeddings": embeddings, "logp_forward": log_p, "pi_forward": path,
        "logp_backward": back_log_p, "pi_backward_raw": back, "cost_forward": costs[0], "cost_backward": costs[1],
        "ll_forward": log_p.gather(2, path[..., None]).sum((1, 2)),
        "ll_backward": back_log_p.gather(2, back[..., None]).sum((1, 2)),
    }  # fmt: skip


if __name__ == "__main__":
    main()
