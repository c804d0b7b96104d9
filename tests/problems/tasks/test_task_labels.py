"""Labels of generated instances against brute force, SciPy, and plain transcriptions of the canonical rules."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial import ConvexHull, QhullError

from nco_bench.problems.tasks import generate

COUNT = 60


def cases(task, **options):
    """Instances of three settings, small enough for brute force; integers where the features are."""
    for setting in ("id", "value-ood", "length-ood"):
        batch = generate(task, setting, 9 if setting == "length-ood" else None, COUNT, 3, **options)
        yield from zip(batch.inputs.astype(np.float64), batch.targets, strict=True)


def subset_sums(values):
    sums = {0}
    for value in values:
        sums |= {s + value for s in sums}
    return sums


@pytest.mark.parametrize("variant", ["balanced", "legacy"])
def test_subset_sum_says_whether_a_subset_reaches_the_target(variant):
    for tokens, label in cases("subset-sum", variant=variant):
        assert label == (tokens[0, 1] in subset_sums(tokens[:, 0]))


def test_knapsack_mask_is_the_optimum_that_the_table_traces_back_to():
    for tokens, label in cases("knapsack"):
        values, weights, capacity = tokens[:, 0], tokens[:, 1].astype(int), int(tokens[0, 2])
        subsets = (list(s) for r in range(len(values) + 1) for s in combinations(range(len(values)), r))
        optimum = max(values[s].sum() for s in subsets if weights[s].sum() <= capacity)
        assert (label * values).sum() == optimum
        assert (label * weights).sum() <= capacity
        best = [[0.0] * (capacity + 1)]
        for value, weight in zip(values, weights, strict=True):
            last = best[-1]
            best.append(
                [max(last[c], last[c - weight] + value if c >= weight else 0) for c in range(capacity + 1)]
            )
        mask, left = [], capacity
        for i in range(len(values), 0, -1):
            mask.insert(0, best[i][left] != best[i - 1][left])
            left -= mask[0] * weights[i - 1]
        assert label.tolist() == mask


def test_fractional_knapsack_is_the_optimum_of_the_linear_program():
    for task_variant in ("value", "fractions"):
        for tokens, label in cases("fractional-knapsack", variant=task_variant):
            values, weights, capacity = tokens[:, 0], tokens[:, 1], tokens[0, 2]
            optimum = -linprog(-values, A_ub=weights[None], b_ub=[capacity], bounds=(0, 1)).fun
            if task_variant == "value":
                assert label == pytest.approx(np.log1p(optimum), rel=1e-6)
            else:
                assert (label * values).sum() == pytest.approx(optimum, rel=1e-6)
                assert (label * weights).sum() <= capacity + 1e-4


def test_coins_are_fewest_and_as_the_table_traces_back():
    for tokens, label in cases("min-coin-change"):
        coins, target = tokens[:, 0].astype(int), int(tokens[0, 1])
        sizes = [r for r in range(len(coins) + 1) if any(sum(s) == target for s in combinations(coins, r))]
        if not sizes:
            assert not label.any()
            continue
        assert label.sum() == min(sizes)
        assert (label * coins).sum() == target
        fewest = [[0] + [99] * target]
        for coin in coins:
            last = fewest[-1]
            fewest.append([min(last[t], last[t - coin] + 1 if t >= coin else 99) for t in range(target + 1)])
        mask, left = [], target
        for i in range(len(coins), 0, -1):
            mask.insert(0, fewest[i][left] < fewest[i - 1][left])
            left -= mask[0] * coins[i - 1]
        assert label.tolist() == mask


def test_legacy_coin_label_is_the_smallest_number_of_coins():
    for tokens, label in cases("min-coin-change", variant="legacy"):
        coins, target = tokens[:, 0], tokens[0, 1]
        sizes = [r for r in range(len(coins) + 1) if any(sum(s) == target for s in combinations(coins, r))]
        assert label == min(sizes, default=0)


@pytest.mark.parametrize("variant", ["raw", "legacy", "normalised"])
def test_quickselect_marks_every_place_of_the_kth_smallest(variant):
    for tokens, label in cases("quickselect", variant=variant):
        values, n = tokens[:, 0], len(tokens)
        k = round(tokens[0, 1] * (n - 1)) + 1 if variant == "normalised" else int(tokens[0, 1])
        assert 2 <= k <= 8
        assert label.tolist() == (values == sorted(values)[k - 1]).tolist()


def test_partition_is_balanced_and_follows_first_reachers():
    for tokens, label in cases("balanced-partition"):
        values = tokens[:, 0].astype(int)
        half = sum(values) // 2
        before = {0: None}
        for i, value in enumerate(values):
            for s in sorted(before, reverse=True):
                before.setdefault(s + value, (i, s))
        left = max(s for s in before if s <= half)
        assert (label * values).sum() == left == max(s for s in subset_sums(values.tolist()) if s <= half)
        mask = [0] * len(values)
        while left:
            item, left = before[left]
            mask[item] = 1
        assert label.tolist() == mask


def test_legacy_partition_label_is_the_smallest_difference():
    for tokens, label in cases("balanced-partition", variant="legacy"):
        total = tokens.sum()
        assert label == min(abs(total - 2 * s) for s in subset_sums(tokens[:, 0]))


def test_bins_open_as_first_fit_does():
    for tokens, label in cases("bin-packing"):
        space, opens = [], []
        for size in tokens[:, 0]:
            fitting = [b for b, left in enumerate(space) if left >= size]
            opens.append(not fitting)
            if not fitting:
                space.append(tokens[0, 1])
            space[fitting[0] if fitting else -1] -= size
        assert label.tolist() == opens
        assert (np.diff(tokens[:, 0]) <= 0).all()


@pytest.mark.parametrize("n", [8, 40])
def test_hull_vertices_are_those_of_qhull(n):
    checked = 0
    for setting in ("id", "value-ood"):
        batch = generate("convex-hull", setting, n, 200, 5)
        for points, label in zip(batch.inputs.astype(np.float64), batch.targets, strict=True):
            try:
                corners = points[ConvexHull(points).vertices]
            except QhullError:  # all on one line
                continue
            expected = [any((p == c).all() for c in corners) for p in points]
            assert label.tolist() == expected
            checked += 1
    assert checked > 350


def test_hull_of_points_on_a_line_is_its_two_ends():
    from nco_bench.problems.tasks.convex_hull import label

    px = np.array([[0, 1, 2, 3, 3], [4, 4, 4, 4, 4], [5, 5, 5, 5, 5]])
    py = np.array([[0, 2, 4, 6, 6], [1, 9, 3, 1, 5], [2, 2, 2, 2, 2]])
    assert label(px, py).tolist() == [[1, 0, 0, 1, 1], [1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]


@pytest.mark.parametrize("n", [8, 14])
def test_three_sum_tries_all_triples_of_positions(n):
    for setting in ("id", "value-ood"):
        batch = generate("three-sum", setting, n, 200, 2)
        for tokens, label in zip(batch.inputs, batch.targets, strict=True):
            assert label == any(sum(t) == tokens[0, 1] for t in combinations(tokens[:, 0], 3))


def test_legacy_distances_are_those_of_scipy_undirected():
    for tokens, label in cases("floyd-warshall"):
        n = round(len(tokens) ** 0.5)
        weights = tokens[:, 0].reshape(n, n)
        assert (weights != weights.T).any()
        assert label.reshape(n, n) == pytest.approx(shortest_path(weights, "D", directed=False))


def test_distances_and_predecessors_are_those_of_scipy():
    for setting, high in (("id", 15), ("value-ood", 30), ("length-ood", 15)):
        ours = {v: generate("floyd-warshall", setting, None, 40, 9, v) for v in ("distances", "predecessors")}
        assert (ours["distances"].inputs == ours["predecessors"].inputs).all()
        columns = zip(
            ours["distances"].inputs, ours["distances"].targets, ours["predecessors"].targets, strict=True
        )
        for tokens, distances, predecessors in columns:
            n = round(len(tokens) ** 0.5)
            weights = tokens[:, 0].astype(np.float64).reshape(n, n)
            length, before = shortest_path(weights, "D", directed=False, return_predecessors=True)
            assert distances.reshape(n, n) == pytest.approx(
                np.where(np.isfinite(length), length, n * high + 1), 1e-5
            )
            assert predecessors.tolist() == np.where(before < 0, n, before).ravel().tolist()


@pytest.mark.parametrize("variant", ["published", "dense", "legacy"])
def test_components_are_those_of_scipy(variant):
    for tokens, label in cases("scc", variant=variant):
        n = round(len(tokens) ** 0.5)
        edges = tokens[:, 0].reshape(n, n)
        strong = "weak" if variant == "legacy" else "strong"
        _, component = connected_components(edges, directed=True, connection=strong)
        assert label.reshape(n, n).tolist() == (component[:, None] == component).tolist()
