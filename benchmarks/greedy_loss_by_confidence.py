"""Which decisions cost greedy construction its gap: those of which the network is not sure.

    python benchmarks/greedy_loss_by_confidence.py decoder-6x128 tsp100.npz --limit 128 [--weights FILE]

The regret of a decision is by how much the best tour that is still possible grows by it; the regrets of all decisions
add up to the gap. Here they are summed by how likely the network's first choice was. What is left after the choice, and
after every other one with a probability above 1 % (four at most), is solved near-optimally as a path (fast-tsp,
`--seconds` for 100 nodes), so a choice that is better than all of these is not seen, and regrets are a little too small.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from greedy_loss_along_tour import options_of, policy_of, said, scores_of
from train_greedy_gap import from_node_0

from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.training.learners.best_paths import best_path, walk_length

BOUNDS = (0.0, 0.5, 0.7, 0.9, 0.97, 0.99, 1.0001)
CHOICES, LIKELY = 4, 0.01


def main() -> None:
    parser = options_of(__doc__)
    parser.set_defaults(seconds=0.005)
    options = parser.parse_args()
    policy = policy_of(options)
    ordered = from_node_0(options.data)[: options.limit].astype(np.float32)
    found = greedy(policy.eval(), tsp_problem(torch.from_numpy(ordered))).order.numpy()
    tours = np.pad(found, ((0, 0), (1, 1)))  # from node 0 back to it
    closed = np.take_along_axis(ordered, tours[:, :, None], axis=1)
    references = np.array(
        [walk_length(walk) for walk in np.append(ordered, ordered[:, :1], axis=1).astype(np.float64)]
    )
    lengths = np.array([walk_length(walk) for walk in closed.astype(np.float64)])
    sure, regret = decisions(policy, closed, options.seconds)
    share = 100 * regret / references
    wrong = regret > 0
    print(
        "| first choice's probability | decisions, % | of these wrong, % | regret, % of the optimum |\n|---|---|---|---|"
    )
    for low, high in pairwise(BOUNDS):
        there = (sure >= low) & (sure < high)
        bad = 100 * (wrong & there).sum() / max(1, there.sum())
        print(
            f"| {low:g} to {min(high, 1):g} | {100 * there.mean():.1f} | {bad:.1f} | {said((share * there).sum(axis=0))} |"
        )
    print(f"| all | 100 | {100 * wrong.mean():.1f} | {said(share.sum(axis=0))} |")
    print(f"\ngreedy gap {said(100 * (lengths / references - 1))} %, {len(references)} instances; ", end="")
    print(f"a wrong decision costs {np.median(regret[wrong]):.4f} (median), the tour {references.mean():.3f}")


def decisions(policy: torch.nn.Module, closed: np.ndarray, seconds: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability of the choice and its regret, of every decision but a tour's first, ``(N - 3, B)`` each.

    `closed` are tours ``(B, N + 1, 2)``: in each state the choice is the first of what is left.
    """
    sure, regret = [], []
    for done in range(1, closed.shape[1] - 3):
        left = np.ascontiguousarray(closed[:, done:])
        likely = torch.from_numpy(scores_of(policy, left, closed=False)).softmax(1)
        best, which = likely.topk(min(CHOICES, likely.shape[1]), dim=1)
        sure.append(likely[:, 0].numpy())
        regret.append([
            _regret(path, nodes[some > LIKELY].tolist(), seconds)
            for path, some, nodes in zip(left.astype(np.float64), best, which, strict=True)
        ])  # fmt: skip
    return np.array(sure), np.array(regret)


def _regret(path: np.ndarray, choices: list[int], seconds: float) -> float:
    """Return by how much the best path through the first of the nodes that are left is longer than through another."""
    through = {
        one: walk_length(
            np.concatenate(
                [
                    path[:1],
                    best_path(np.concatenate([path[[one + 1]], np.delete(path[1:], one, axis=0)]), seconds),
                ]
            )
        )
        for one in ({0, *choices} if choices != [0] else ())
    }
    return through[0] - min(through.values()) if through else 0.0


if __name__ == "__main__":
    main()
