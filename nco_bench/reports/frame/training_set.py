"""What a test set has to do with the training set of the weights that were tested on it."""

from __future__ import annotations

from nco_bench.reports.frame.load import Group
from nco_bench.weights.manifest import names_seed

ONLY_LONGER = {"length-ood": "id"}
"""Settings of the algorithmic tasks that differ from another in length alone."""


def distribution_label(group: Group, sizes: tuple[int, int]) -> str | None:
    """Say whether the test set looks like what the weights were trained on.

    Parameters
    ----------
    group
        Its weights' ``training_size`` is a number or a (smallest, largest) pair, ``training_distribution`` a name.
    sizes
        Smallest and largest n of the test set.

    Returns
    -------
    str or None
        None without weights, or where their manifest does not say.
    """
    weights = group.cell.weights or {}
    size, distribution = weights.get("training_size"), weights.get("training_distribution")
    if size is None or not distribution:
        return None
    trained = [int(s) for s in size] if isinstance(size, list | tuple) else [int(size)]
    labels = []
    if sizes[0] < min(trained) or sizes[1] > max(trained):
        labels.append("size-OOD")
    tested = (group.cell.origin.get("distribution") or "").lower()
    if ONLY_LONGER.get(tested, tested) != str(distribution).lower():
        labels.append("distribution-OOD")
    return ", ".join(labels) or "in-distribution"


def trained_on_test(group: Group, sizes: tuple[int, int]) -> bool:
    """Whether the weights saw the test set: its hash is among ``trained_on``, or it comes from a training seed.

    The same seed, size and distribution give the same instances, since the generator is prefix-stable.
    """
    weights, origin = group.cell.weights or {}, group.cell.origin
    if set(group.whole.names.values()) & set(weights.get("trained_on") or ()):
        return True
    same_seed = any(names_seed(str(text), origin.get("seed")) for text in weights.get("training_seeds") or ())
    return same_seed and distribution_label(group, sizes) == "in-distribution"


def calibrated_on_test(group: Group, sizes: tuple[int, int]) -> bool:
    """Whether the coordinate scale was calibrated on the test set: uniform instances of a size and seed of the calibration.

    Only where the run took its scale from the calibration do its records name those seeds.
    """
    origin = group.cell.origin
    if origin.get("generator") != "nco-bench" or origin.get("distribution") != "uniform":
        return False
    seeds: dict[str, int] = (group.cell.weights or {}).get("calibration_seeds") or {}
    return any(sizes[0] <= int(n) <= sizes[1] and seed == origin.get("seed") for n, seed in seeds.items())
