"""Where along the tour greedy construction loses: the gap by tenths of the decisions.

    python benchmarks/greedy_loss_along_tour.py decoder-6x128 tsp100.npz --limit 128 [--weights FILE]

After each tenth of the decisions the rest is solved near-optimally as a path problem (fast-tsp, `--seconds` each). What the
best tour that begins like the policy's is longer by than it was a tenth before is what those decisions cost. The tenths add
up to the greedy gap, up to what the solver misses.
"""

from __future__ import annotations

import argparse

import fast_tsp
import numpy as np
import torch
from train_greedy_gap import from_node_0

from nco_bench.nn.build import build_path_policy
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.weights.store import load_into, resolve

TENTHS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", help="dataset with references")
    parser.add_argument("--weights")
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=0.03)
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = resolve(options.weights or options.model, options.model)
    policy = build_path_policy(options.model, **file.manifest.config)
    load_into(policy, file)
    ordered = from_node_0(options.data)[: options.limit].astype(np.float32)
    found = greedy(policy.eval(), tsp_problem(torch.from_numpy(ordered))).order.numpy()
    tours = np.concatenate([np.zeros((len(found), 1), np.int64), found], axis=1)
    costs = np.array([costs_by_tenth(x, t, options.seconds) for x, t in zip(ordered, tours, strict=True)])
    print("| decisions | gap made there, % of the optimum | share |\n|---|---|---|")
    for tenth, cost in enumerate(costs.T):
        width = 1.96 * cost.std(ddof=1) / len(cost) ** 0.5
        share = 100 * cost.mean() / costs.sum(axis=1).mean()
        print(f"| {10 * tenth} to {10 * tenth + 10} % | {cost.mean():.3f} ± {width:.3f} | {share:.0f} % |")
    print(f"| all | {costs.sum(axis=1).mean():.3f} | 100 % |")


def costs_by_tenth(coords: np.ndarray, tour: np.ndarray, seconds: float) -> np.ndarray:
    """Return what each tenth of the decisions costs, in percent of the reference tour, which is 0, 1, 2, ..., N - 1."""
    points = coords.astype(np.float64)
    closed = np.append(tour, tour[0])
    nodes, reference = len(tour), walk_length(points[np.append(np.arange(len(tour)), 0)])
    best = [reference]
    for done in range(1, TENTHS):
        cut = done * nodes // TENTHS
        rest = points[closed[cut:]]
        # The policy's own way is a bound that the solver may miss.
        solved = walk_length(rest[shortest_path(rest, seconds)]) if len(rest) > 3 else np.inf
        best.append(walk_length(points[closed[: cut + 1]]) + min(solved, walk_length(rest)))
    best.append(walk_length(points[closed]))
    return 100 * np.diff(best) / reference


def shortest_path(coords: np.ndarray, seconds: float) -> np.ndarray:
    """Order the rows ``(L, 2)`` of a path problem: near-optimal from the first through all others to the last.

    A path with fixed ends is a tour that contains the edge between the ends: all other edges are made longer by the
    same amount, so that no tour without it is shorter.
    """
    extent = float(np.ptp(coords, axis=0).max()) or 1.0
    points = (coords - coords.min(axis=0)) / extent
    distance = np.sqrt(np.square(points[:, None] - points[None]).sum(-1)) + 2.0
    distance[0, -1] = distance[-1, 0] = 0.0
    np.fill_diagonal(distance, 0.0)
    tour = np.asarray(
        fast_tsp.find_tour(np.rint(distance * 19_000).astype(np.int32), duration_seconds=seconds)
    )
    tour = np.roll(tour, -int(np.flatnonzero(tour == 0)[0]))
    return tour if tour[-1] == len(coords) - 1 else np.roll(tour[::-1], 1)


def walk_length(points: np.ndarray) -> float:
    """Return the length of the way through the points in their order."""
    return float(np.linalg.norm(np.diff(points, axis=0), axis=1).sum())


if __name__ == "__main__":
    main()
