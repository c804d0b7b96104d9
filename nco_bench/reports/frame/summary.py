"""One cell of a table: what the records of a solver configuration on a dataset come to, what its method is called,
and what the set has to do with the training set of the weights.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_bench.nn.device import on_cpu
from nco_bench.reports.frame.best_known import Source
from nco_bench.reports.frame.result_frame import Group
from nco_bench.runs.records import Cell

if TYPE_CHECKING:
    from nco_bench.reports.frame.pooled import Pooled


@dataclass(frozen=True)
class CellSummary:
    """One cell of a table: a solver configuration on a dataset.

    Repeats are averaged per instance first, then instances are averaged, as PENS does with five solves per
    instance. Failed solves (infeasible, timeout, out of memory, no solution) are counted and left out of all means but
    the times.

    Attributes
    ----------
    group
        Facts, runs and environments.
    instances, instances_of_column
        Instances in this cell; instances that any solver has on this dataset.
    solves, failed_solves, failed
        Records; records that are not ok; instances with at least one such record.
    statuses
        Number of records per status.
    repeats
        Repeats found.
    mean_cost, mean_reference
        Over instances with at least one ok repeat; the reference over those that have one.
    mean_gap_percent
        Mean of per-instance gaps; None without references.
    gap_of_means_percent
        100 (mean cost - mean reference) / mean reference over the same instances.
    gap_std_percent
        Sample standard deviation of per-instance gaps (n - 1); None below two.
    gap_low, gap_high
        95 % interval (`nco_bench.reports.frame.statistics.interval_of_mean`) of `mean_gap_percent` over instances.
    gap_instances, undefined_gaps
        Instances with a gap; solved instances whose reference is 0, where the gap is undefined.
    seconds_total
        Time for one pass over the set: sum over instances of the mean over repeats; failed solves took time too.
    sizes
        Smallest and largest n.
    distribution_label
        ``in-distribution``, ``size-OOD``, ``distribution-OOD``, ``size-OOD, distribution-OOD``; None without
        weights or where their manifest does not say.
    trained_on_test
        Whether the weights' manifest lists this dataset among its training data.
    calibrated_on_test
        Whether the coordinate scale was calibrated on this dataset.
    pooled
        Metrics that are pooled over instances, by name; empty for problems without.
    asked
        Solves that the commands asked for; None where the records do not say it.
    references
        Where the references come from, with the number of instances; the most frequent first.
    """

    group: Group
    instances: int
    instances_of_column: int
    solves: int
    failed_solves: int
    failed: int
    statuses: dict[str, int]
    repeats: int
    mean_cost: float | None
    mean_reference: float | None
    mean_gap_percent: float | None
    gap_of_means_percent: float | None
    gap_std_percent: float | None
    gap_low: float | None
    gap_high: float | None
    gap_instances: int
    undefined_gaps: int
    seconds_total: float
    sizes: tuple[int, int]
    distribution_label: str | None
    trained_on_test: bool
    calibrated_on_test: bool
    pooled: dict[str, Pooled] = field(default_factory=dict)
    asked: int | None = None
    references: tuple[tuple[Source, int], ...] = ()

    @property
    def reference_solver(self) -> str | None:
        """Who found most of the references."""
        return self.references[0][0].solver if self.references else None

    @property
    def seconds_per_instance(self) -> float:
        """Mean time of one instance: throughput, where a batch was solved at once."""
        return self.seconds_total / self.instances

    @property
    def complete(self) -> bool:
        """Whether all instances of the column were solved, so that the means can be ranked against others."""
        return self.failed_solves == 0 and self.instances == self.instances_of_column and not self.stopped

    @property
    def stopped(self) -> bool:
        """Whether a run was stopped before it had solved what it was asked for."""
        return self.asked is not None and self.solves < self.asked

    @property
    def all_failed(self) -> bool:
        """Whether nothing was solved."""
        return self.failed_solves == self.solves

    @property
    def method(self) -> str:
        """Label, decoding and chosen settings, as a table prints them."""
        return method_name(self.group.cell)

    @property
    def hardware(self) -> str:
        """Processor or GPU that the cell ran on; several where its runs were on several machines."""
        return " / ".join(dict.fromkeys(hardware(e, self.group.cell.device) for e in self.group.environments))

    @property
    def repeats_said(self) -> str:
        """Repeats per instance in words: a range where instances have different numbers of them."""
        return str(self.repeats) if self.solves == self.instances * self.repeats else f"1 to {self.repeats}"

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for ``run --json`` and ``report --json``."""
        cell = self.group.cell
        weights = cell.weights or {}
        return {
            "solver": cell.solver,
            "label": cell.label,
            "decoding": cell.decoding,
            "kind": cell.kind,
            "solver_version": cell.solver_version,
            "dataset": cell.dataset,
            "dataset_sha256": cell.dataset_sha256,
            "problem": cell.problem,
            "problem_version": cell.problem_version,
            "objective": cell.objective,
            "n_min": self.sizes[0],
            "n_max": self.sizes[1],
            "instances": self.instances,
            "failed": self.failed,
            "failed_solves": self.failed_solves,
            "asked_solves": self.asked,
            "solves": self.solves,
            "statuses": self.statuses,
            "repeats": self.repeats,
            "mean_cost": self.mean_cost,
            "mean_reference": self.mean_reference,
            "mean_gap_percent": self.mean_gap_percent,
            "gap_low_percent": self.gap_low,
            "gap_high_percent": self.gap_high,
            "gap_of_means_percent": self.gap_of_means_percent,
            "gap_std_percent": self.gap_std_percent,
            "gap_instances": self.gap_instances,
            "seconds_total": self.seconds_total,
            "seconds_per_instance": self.seconds_per_instance,
            "latency_seconds": self.group.latency_seconds,
            "peak_memory_mb": self.group.peak_memory_mb,
            "peak_device_memory_mb": self.group.peak_device_memory_mb,
            "device": cell.device,
            "hardware": self.hardware,
            "batch_size": cell.batch_size,
            "convention": cell.convention,
            "reference_solver": self.reference_solver,
            "references": [{**asdict(source), "instances": count} for source, count in self.references],
            "seed": cell.seed,
            "weights": weights.get("name"),
            "weights_sha256": weights.get("sha256"),
            "config_sha256": cell.config_sha256,
            "options": cell.options,
            "distribution_label": self.distribution_label,
            "trained_on_test": self.trained_on_test,
            "calibrated_on_test": self.calibrated_on_test,
            "pooled": {name: metric.as_dict() for name, metric in self.pooled.items()},
            "notes": list(cell.notes),
            "runs": list(self.group.runs),
        }


def hardware(environment: dict[str, Any], device: str) -> str:
    """Describe the machine in a few words: the GPU for a CUDA device, else processor and usable cores."""
    gpus = environment.get("gpu") or []
    if not on_cpu(device) and gpus:
        return str(gpus[0].get("name", "GPU"))
    cores = environment.get("cpu_affinity") or environment.get("cpu_count")
    name = str(environment.get("cpu") or "unknown processor")
    return f"{name}, {cores} {'core' if cores == 1 else 'cores'}" if cores else name


def method_name(cell: Cell) -> str:
    """Return label and decoding, and in brackets the settings that the label does not say: a name hides nothing that ran."""
    settings = chosen_settings(cell)
    return f"{plain_name(cell)} ({', '.join(settings)})" if settings else plain_name(cell)


def plain_name(cell: Cell) -> str:
    """Return label and decoding."""
    return f"{cell.label} {cell.decoding}" if cell.decoding else cell.label


def chosen_settings(cell: Cell) -> tuple[str, ...]:
    """Return what was set otherwise than the solver's default, in words, without what stands in the label.

    Weights of the solver's own name are its default. Cells of older versions say what they stored.
    """
    in_label = set(cell.label.split(":")[1:])
    weights = cell.options.get("weights") if cell.weights else None
    said = []
    if weights and weights != cell.solver and ":weights=" not in cell.label:
        said.append(f"weights {Path(weights).name}")
    for key, value in cell.options.items():
        if key in ("decoding", "weights") or value is None:
            continue
        if isinstance(value, dict):
            settings = (f"{k}={v}" for k, v in sorted(value.items()))
            said += [text for text in settings if text not in in_label]
        elif key == "time_limit":
            said.append(f"time limit {value:g} s")
        else:
            said.append(f"{key.replace('_', ' ')} {value}")
    return tuple(said)


ONLY_LONGER = {"length-ood": "id"}
"""Settings of the algorithmic tasks that differ from another in length alone."""
UNKNOWN = "unknown"
"""The training distribution of weights that learned from files which do not say how they were drawn."""
FROM_FILES = ("file", "memory")
"""Origins of test sets that do not say it either."""


def distribution_label(group: Group, sizes: tuple[int, int]) -> str | None:
    """Say whether the test set looks like what the weights were trained on.

    Parameters
    ----------
    group
        Its weights' ``training_size`` is a number or a (smallest, largest) pair, ``training_distribution`` a name,
        ``training_params`` what its instances were drawn with (CVRP: capacity and demands; packing: sides), where known.
    sizes
        Smallest and largest n of the test set.

    Returns
    -------
    str or None
        None without weights, or where their manifest or the test set does not say and the sizes do not differ.
    """
    weights = group.cell.weights or {}
    size, distribution = weights.get("training_size"), weights.get("training_distribution")
    if size is None or not distribution:
        return None
    trained = [int(s) for s in size] if isinstance(size, list | tuple) else [int(size)]
    labels = []
    if sizes[0] < min(trained) or sizes[1] > max(trained):
        labels.append("size-OOD")
    origin = group.cell.origin
    tested = (origin.get("distribution") or "").lower()
    learned = {name.strip() for name in str(distribution).lower().split(",")}
    same = ONLY_LONGER.get(tested, tested) in learned
    untold = not same and (UNKNOWN in learned or (not tested and origin.get("generator") in FROM_FILES))
    given, drawn = origin.get("params") or {}, weights.get("training_params")
    known = drawn.items() if isinstance(drawn, dict) else ()  # an own solver says what it likes
    other_draws = any(given.get(name, value) != value for name, value in known)
    if other_draws or not (same or untold):
        labels.append("distribution-OOD")
    return ", ".join(labels) or (None if untold else "in-distribution")


def trained_on_test(group: Group, sizes: tuple[int, int]) -> bool:
    """Whether the weights saw the test set: its hash is among ``trained_on``, or it comes from a training seed.

    The same seed, size and distribution give the same instances, since the generator is prefix-stable.
    """
    weights, origin = group.cell.weights or {}, group.cell.origin
    if set(group.whole.names.values()) & set(weights.get("trained_on") or ()):
        return True
    if not weights.get("training_seeds") or distribution_label(group, sizes) != "in-distribution":
        return False
    from nco_bench.weights.manifest import names_seed

    return any(names_seed(str(text), origin.get("seed")) for text in weights["training_seeds"])


def calibrated_on_test(group: Group, sizes: tuple[int, int]) -> bool:
    """Whether the coordinate scale was calibrated on the test set: uniform instances of a size and seed of the calibration.

    Only where the run took its scale from the calibration do its records name those seeds.
    """
    origin = group.cell.origin
    if origin.get("generator") != "nco-bench" or origin.get("distribution") != "uniform":
        return False
    seeds: dict[str, int] = (group.cell.weights or {}).get("calibration_seeds") or {}
    return any(sizes[0] <= int(n) <= sizes[1] and seed == origin.get("seed") for n, seed in seeds.items())
