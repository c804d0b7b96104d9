"""Where along the tour greedy construction loses: the gap by tenths of the decisions.

    python benchmarks/greedy_loss_along_tour.py decoder-6x128 tsp100.npz --limit 128 [--weights FILE]

After each tenth of the decisions the rest is solved near-optimally as a path (fast-tsp, `--seconds` per 100 nodes).
What the best tour that begins like the policy's is longer by than it was a tenth before is what those decisions cost. The
tenths add up to the greedy gap, up to what the solver misses. Beside it, what the same decisions would cost if each
were made in a state of the reference tour, as in training from labels: what is missing there comes from states that the
policy meets for its own mistakes alone.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from train_greedy_gap import from_node_0

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.policy import PathNodes, path_state
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.training.learners.best_paths import best_path, walk_length
from nco_bench.weights.store import load_into, resolve

TENTHS = 10


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of where walks along the reference tours begin")
    options = parser.parse_args()
    policy = policy_of(options)
    ordered = from_node_0(options.data)[: options.limit].astype(np.float32)
    found = greedy(policy.eval(), tsp_problem(torch.from_numpy(ordered))).order.numpy()
    tours = np.concatenate([np.zeros((len(found), 1), np.int64), found], axis=1)
    own = np.array([costs_by_tenth(x, t, options.seconds) for x, t in zip(ordered, tours, strict=True)])
    taught = cost_of_taught_decisions(policy, ordered, options.seconds, options.seed)
    print("| decisions | gap made there, % of the optimum | in states of the optimal tour |\n|---|---|---|")
    for tenth in range(TENTHS):
        print(f"| {10 * tenth} to {10 * tenth + 10} % | {said(own[:, tenth])} | {said(taught[:, tenth])} |")
    print(f"| all | {said(own.sum(axis=1))} | {said(taught.sum(axis=1))} |")


def options_of(doc: str) -> argparse.ArgumentParser:
    """Return the options of a script that looks at a network's greedy tours."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", help="dataset with references")
    parser.add_argument("--weights")
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=0.03, help="of fast-tsp, for 100 nodes")
    return parser


def policy_of(options: argparse.Namespace) -> Any:
    """Return the network that they name, on one thread."""
    torch.set_num_threads(1)
    file = resolve(options.weights or options.model, options.model)
    policy = build_path_policy(options.model, **file.manifest.config)
    load_into(policy, file)
    return policy


def said(costs: np.ndarray) -> str:
    """Say a mean with the half width of its 95 % interval over instances."""
    return f"{costs.mean():.3f} ± {1.96 * costs.std(ddof=1) / len(costs) ** 0.5:.3f}"


def costs_by_tenth(coords: np.ndarray, tour: np.ndarray, seconds: float) -> np.ndarray:
    """Return what each tenth of the decisions costs, in percent of the reference tour, which is 0, 1, 2, ..., N - 1."""
    points = coords.astype(np.float64)
    closed = np.append(tour, tour[0])
    nodes, reference = len(tour), walk_length(points[np.append(np.arange(len(tour)), 0)])
    best = [reference]
    for done in range(1, TENTHS):
        cut = done * nodes // TENTHS
        rest = points[closed[cut:]]
        best.append(walk_length(points[closed[: cut + 1]]) + walk_length(best_path(rest, seconds)))
    best.append(walk_length(points[closed]))
    return 100 * np.diff(best) / reference


def cost_of_taught_decisions(policy: Any, ordered: np.ndarray, seconds: float, seed: int) -> np.ndarray:
    """Return what decisions cost that are made in states of the reference tour, in percent of it, ``(B, TENTHS)``.

    Each tour is walked from a random node in a random direction; in each of its states the policy decides once, what is left
    is solved, and the walk goes on along the tour.
    """
    count, nodes, _ = ordered.shape
    rng = np.random.default_rng(seed)
    begin, way = rng.integers(nodes, size=(count, 1)), rng.choice((-1, 1), size=(count, 1))
    walks = np.take_along_axis(ordered, ((begin + way * np.arange(nodes + 1)) % nodes)[:, :, None], axis=1)
    costs = np.zeros((count, TENTHS))
    for done in range(nodes - 2):
        left = np.ascontiguousarray(walks[:, done:])
        chosen = 1 + scores_of(policy, left, closed=done == 0).argmax(axis=1)
        for row in np.flatnonzero(
            (chosen > 1) & ((chosen < nodes - 1) | (done > 0))
        ):  # a closed tour has two right ones
            path, node = left[row].astype(np.float64), chosen[row]
            rest = np.concatenate([path[[node]], np.delete(path[1:], node - 1, axis=0)])
            best = min(walk_length(path), walk_length(best_path(path, seconds)))
            cost = walk_length(path[[0, node]]) + walk_length(best_path(rest, seconds)) - best
            costs[row, done * TENTHS // nodes] += cost
    lengths = np.array([walk_length(walk.astype(np.float64)) for walk in walks])
    return 100 * costs / lengths[:, None]


@torch.inference_mode()
def scores_of(policy: Any, paths: np.ndarray, closed: bool) -> np.ndarray:
    """Score the nodes between the ends of paths, ``(B, L, 2)`` to ``(B, L - 2)``."""
    coords = torch.from_numpy(paths)
    nodes = PathNodes(coords, None, paths.shape[1] - 1 if closed else 100)
    rows = torch.arange(paths.shape[1]).expand(len(paths), -1)
    return policy.scores(path_state(nodes, policy.embed(nodes), rows, closed=closed)).numpy()


if __name__ == "__main__":
    main()
