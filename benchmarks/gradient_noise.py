"""
How noisy the gradient of a network is on pieces of labels, learned from the labels and from a better network.

Two batches are drawn of each length, and the next-node loss of both is taken either way. Said are the variance of the
gradient of a batch, from how two batches of one length differ, and the cross-entropies of both networks on the labels.

    python benchmarks/gradient_noise.py LABELS.npz pens-a [--teacher decoder-6x128] [--batch 64] [--lengths 12]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.policy import PathNodes, PathState
from nco_bench.training.data import LabelStream
from nco_bench.training.learners.pieces import SubPaths, draw_sub_paths
from nco_bench.training.learners.supervised import next_node_loss
from nco_bench.training.learners.teacher import Teacher, imitation_loss
from nco_bench.weights.store import load_into, resolve

KINDS = ("labels", "teacher")


def gradients(policy: Any, teacher: Teacher, paths: SubPaths) -> tuple[list[Tensor], list[float]]:
    """Return the gradient of either loss, and the cross-entropies of student and teacher on the labels."""
    nodes = PathNodes(paths.coords, None, paths.instance_size)
    scores = policy.scores(
        PathState(policy.embed(nodes), paths.coords, None, None, False, paths.instance_size)
    )
    aimed = teacher.probabilities(paths)
    losses = next_node_loss(scores, False), imitation_loss(scores, aimed)
    found = []
    for loss in losses:
        parts = torch.autograd.grad(loss, list(policy.parameters()), retain_graph=True)
        found.append(torch.cat([part.flatten() for part in parts]))
    return found, [losses[0].item(), float(-aimed[:, 0].clamp_min(1e-9).log().mean())]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("labels")
    parser.add_argument("model")
    parser.add_argument("--weights", help="of the model (default: those that ship)")
    parser.add_argument("--teacher", default="decoder-6x128")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lengths", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(0)
    file = resolve(options.weights or options.model, options.model)
    policy: Any = build_path_policy(options.model, **file.manifest.config)
    load_into(policy, file)
    teacher = Teacher(options.teacher, torch.device("cpu"))
    stream, rng = LabelStream([options.labels], 0), np.random.default_rng(0)
    found: dict[tuple[str, int], list[Tensor]] = {(kind, batch): [] for kind in KINDS for batch in (0, 1)}
    entropies = []
    for length in np.linspace(5, 95, options.lengths).astype(int):
        for batch in (0, 1):
            ordered = torch.from_numpy(stream.take(options.batch).ordered)
            paths = SubPaths(draw_sub_paths(ordered, int(length), rng, True), False, ordered.shape[1])
            both, entropy = gradients(policy.train(), teacher, paths)
            entropies.append(entropy)
            for kind, gradient in zip(KINDS, both, strict=True):
                found[kind, batch].append(gradient)
    for kind in KINDS:
        pairs = zip(found[kind, 0], found[kind, 1], strict=True)
        noise = np.mean([float((one - other).norm() ** 2 / 2) for one, other in pairs])
        print(f"{kind}: variance of the gradient of {options.batch} pieces {noise:.3f}")
    student, other = np.mean(entropies, axis=0)
    print(f"cross-entropy on the labels: {options.model} {student:.4f}, {options.teacher} {other:.4f}")


if __name__ == "__main__":
    main()
