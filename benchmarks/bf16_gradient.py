"""How far gradients in bf16 are from those in float32, for weights that ship, on pieces of optimal tours.

    nco-bench generate tsp --n 100 --count 256 --seed 4321 --reference lkh3 --out tsp100.npz
    python benchmarks/bf16_gradient.py tsp100.npz [MODEL ...] [--batch 128]

Both precisions see the same pieces and weights; the loss is that of the next node (the auxiliary head does not ship). Said
are the cosine of the two gradients, and the length of their difference as a share of float32's; beside it the same for two
halves of the batch in float32, which is what a batch of half the size is off by anyway.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn.build import build_path_policy
from nco_bench.nn.device import precision as computing_in
from nco_bench.training.data import LabelStream
from nco_bench.training.learners.supervised import SubPaths, Supervised, draw_sub_paths
from nco_bench.training.recipes import recipe_for
from nco_bench.weights.store import load_into, resolve

ROWS = (10, 25, 50, 100)


def gradient(learner: Supervised, pieces: SubPaths, precision: str) -> Tensor:
    """Return the gradient of the loss in all parameters, in one row."""
    parameters = [*learner.policy.parameters(), *learner.extra.parameters()]
    with computing_in(precision, "cpu"):
        loss = learner.paths_loss(pieces, 0).total
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    flat = (torch.zeros_like(p) if g is None else g.float() for g, p in zip(found, parameters, strict=True))
    return torch.cat([one.flatten() for one in flat])


def _apart(exact: Tensor, other: Tensor) -> str:
    cosine = torch.cosine_similarity(exact.double(), other.double(), dim=0)
    return f"cosine {cosine:.3f}, difference {(other - exact).norm() / exact.norm():.2f} of the gradient"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("labels")
    parser.add_argument("models", nargs="*", default=["decoder-6x128", "pens-a"])
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    for model in options.models:
        file = resolve(model, model)
        policy = build_path_policy(model, **file.manifest.config)
        load_into(policy, file)
        stream = LabelStream([options.labels], 0)
        torch.manual_seed(0)
        learner = Supervised(
            policy.train(),
            stream,
            recipe_for(model, {"recipe": "flagship", "auxiliary": "0"}),
            0,
            torch.device("cpu"),
        )
        ordered = stream.take(options.batch).ordered
        for rows in ROWS:
            pieces = draw_sub_paths(torch.from_numpy(ordered), rows, np.random.default_rng(1), True)
            paths = SubPaths(pieces, False, ordered.shape[1])
            exact, low = (gradient(learner, paths, precision) for precision in ("fp32", "bf16"))
            halves = (replace(paths, coords=half) for half in paths.coords.chunk(2))
            one, other = (gradient(learner, half, "fp32") for half in halves)
            print(
                f"{model}, {rows:3d} rows: bf16 {_apart(exact, low)}; halves {_apart(one, other)}", flush=True
            )


if __name__ == "__main__":
    main()
