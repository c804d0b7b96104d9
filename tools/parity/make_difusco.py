"""Make fixtures of DIFUSCO from the authors' code: embeddings, the network's output, noise and inference schedules; TSP.

git clone https://github.com/Edward-Sun/DIFUSCO
python tools/parity/make_difusco.py --official DIFUSCO --out parity
nco-bench parity parity/difusco-*.safetensors
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from making import absent, arguments, import_from, scatter, write_fixture
from torch import Tensor, nn

REPOSITORY = "Edward-Sun/DIFUSCO"
COMMIT = "65eb3b7bde76097c0d3438ce743fa6769baf9ce5"
SEED, NODES, STEPS = 1800, 8, 1000
SIZES = {"n_layers": 2, "hidden_dim": 32, "aggregation": "sum", "norm": "layer"}
TIMES = [0, 1, 10, 500, 999, 1000]
INFERENCE = {"inference_schedule": "cosine", "inference_diffusion_steps": 5, "inference_trick": "ddim"}


def main() -> None:
    options = arguments(__doc__)
    absent("torch_sparse", "torch_geometric", "torch_geometric.data")
    import_from(options.official / "difusco", options.official, COMMIT, any_commit=options.any_commit)
    for name, kind in (("difusco-tsp", "categorical"), ("difusco-tsp-gaussian", "gaussian")):
        make(name, kind, options.out)


def make(name: str, kind: str, out: Path) -> None:
    """Make the fixture of one kind of noise, on complete graphs."""
    model = network(kind)
    generator = torch.Generator().manual_seed(SEED)
    points = torch.rand(2, NODES, 2, generator=generator)
    noisy = torch.randn(3, NODES, NODES, generator=generator)
    noisy = (noisy > 0).float() if kind == "categorical" else noisy
    time = torch.tensor([3.0, 250.0, 1000.0])
    with torch.no_grad():
        expected = forward_of(model, points, noisy, time)
    facts = {
        "model": "difusco", "problem": "tsp", "official_repo": REPOSITORY, "commit": COMMIT,
        "config": SIZES | INFERENCE | {
            "out_channels": 2 if kind == "categorical" else 1, "sparse_factor": -1, "diffusion_type": kind,
            "diffusion_schedule": "linear", "diffusion_steps": STEPS,
        },
        "seed": SEED, "torch": torch.__version__,
    }  # fmt: skip
    weights = {key: value.clone() for key, value in model.state_dict().items()}
    inputs = {"points": points, "fwd_x_t": noisy, "fwd_t": time, "times": torch.tensor(TIMES)}
    write_fixture(out, name, weights, inputs, expected | schedules(kind), facts)


def network(kind: str) -> Any:
    """Build a small official network with random weights; those that begin at 0 are drawn too."""
    from models.gnn_encoder import GNNEncoder

    torch.manual_seed(SEED)
    model = GNNEncoder(**SIZES, out_channels=2 if kind == "categorical" else 1, sparse=False)
    scatter(model, SEED)
    generator = torch.Generator().manual_seed(SEED)
    for module in model.modules():
        if isinstance(module, nn.LayerNorm | nn.GroupNorm):
            module.weight.data.uniform_(0.6, 1.4, generator=generator)
        elif isinstance(module, nn.Linear) and not module.weight.any():
            module.weight.data.normal_(0.0, 0.1, generator=generator)
    return model.eval()


def forward_of(model: Any, points: Tensor, noisy: Tensor, time: Tensor) -> dict[str, Tensor]:
    """Run the network on the first instance under three states of noise; also its embeddings."""
    from models.nn import timestep_embedding

    copies = points[:1].expand(len(noisy), -1, -1)
    return {
        "fwd_out": model(copies, time, noisy), "pos_embed": model.pos_embed(points[:1]),
        "edge_pos_embed": model.edge_pos_embed(noisy[:1]),
        "timestep_embedding": timestep_embedding(time, SIZES["hidden_dim"]),
    }  # fmt: skip


def schedules(kind: str) -> dict[str, Tensor]:
    """Return the shares of signal that are left at some times, and the pairs of times of inference."""
    from utils.diffusion_schedulers import CategoricalDiffusion, GaussianDiffusion, InferenceSchedule

    out: dict[str, Tensor] = {}
    for noise in ("linear", "cosine"):
        if kind == "categorical":
            out[f"Q_bar_{noise}"] = torch.from_numpy(CategoricalDiffusion(STEPS, noise).Q_bar[TIMES])
        else:
            out[f"alphabar_{noise}"] = torch.from_numpy(GaussianDiffusion(STEPS, noise).alphabar[TIMES])
        for many in (5, 50):
            out[f"pairs_{noise}_{many}"] = pairs(InferenceSchedule(noise, STEPS, many), many)
    steps = INFERENCE["inference_diffusion_steps"]
    out["schedule_t1_t2"] = pairs(InferenceSchedule("cosine", STEPS, steps), int(steps))
    return out


def pairs(schedule: Any, many: int) -> Tensor:
    """Return the times ``(many, 2)`` that inference goes from and to."""
    return torch.from_numpy(np.array([schedule(i) for i in range(many)], dtype=np.int64))


if __name__ == "__main__":
    main()
