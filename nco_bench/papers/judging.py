"""What a measured number says about a printed one: the rule stands here, once, and every caption repeats it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nco_bench.errors import counted
from nco_bench.papers.measuring import HARDWARE_METRICS, UPPER, Measured
from nco_bench.papers.preset import CellPreset
from nco_bench.papers.published import PublishedCell
from nco_bench.reports.frame.statistics import BOOTSTRAP_FROM
from nco_bench.weights.shelf import trained_now

SETTING_STATUSES = ("setting matches", "setting differs")
"""Of printed settings that are held against those of our recipes."""
STATUSES = (
    "reproduced", "agrees", "differs", "reproduced (few)", "differs (few)", "other weights", "weights missing", "OOM",
    "not comparable", "no result", "no code", "too long", "not run", *SETTING_STATUSES,
)  # fmt: skip
FEWEST = 8
"""Instances below which nothing is concluded from an interval."""
ENOUGH = 16
"""Instances below which a verdict says that they are few."""
FEW = " (few)"
"""What stands behind the status then."""
COUNTS = ("solved", "instances")
"""Metrics that are counts of instances and no sample of them."""

TOLERANCE = (
    "Reproduced: the printed value, give or take half a unit of its last digit, meets the 95 % interval of ours "
    f"(percentile bootstrap over instances; Student's t below {BOOTSTRAP_FROM}), widened by the sampling error of the "
    "paper's own mean where it is over other instances, and narrowed to what varies beside their references where they are "
    "all of the paper's; where a paper does not say whether its gap is a mean of gaps or a ratio of means, either may meet "
    f"it; (few): fewer than {ENOUGH} instances; nothing is concluded from fewer "
    f"than {FEWEST} nor from a part of a library's group. Agrees: a number that is computed and not run, such as a count of "
    "parameters or what follows from other numbers of the paper, is the printed one to its last digit. Differs: neither"
)

FULL_SHARE = 0.995
MOST_NAMED = 3
"""Of the numbers of a recipe that are not the paper's."""
_NUMBER = re.compile(r"(\d[\d,]*)(?:\.(\d+))?")


@dataclass(frozen=True)
class Verdict:
    """One of `STATUSES`, and why in one line."""

    status: str
    reason: str


def half_unit(cell: PublishedCell) -> float:
    """Half a unit of the last printed digit, in the unit of ``cell.number``; 0 where no number is printed."""
    found = _NUMBER.search(cell.value)
    if found is None or cell.number is None:
        return 0.0
    mantissa = float(found[0].replace(",", ""))
    decimals = len(found[2] or "")
    # 1.25×10^-4 is stored as 0.000125: the power of ten between both moves the last digit too.
    power = 0 if not mantissa or not cell.number else round(math.log10(abs(cell.number) / mantissa))
    return 0.5 * 10.0 ** (power - decimals)


def judge_computed(cell: PublishedCell, value: float | None) -> Verdict:
    """Hold a computed number against the printed one: they must agree to the printed digit."""
    if value is None or cell.number is None:
        return Verdict("not comparable", "one of the two is no number")
    if abs(value - cell.number) <= half_unit(cell) * (1 + 1e-9) + 1e-12:
        return Verdict("agrees", "computed, no run")
    return Verdict("differs", "computed, no run")


def judge(cell: PublishedCell, preset: CellPreset, measured: Measured) -> Verdict:
    """Hold a measured number, already in the printed unit, against the printed one."""
    if measured.cell.dataset.partition(":")[0] in preset.paper_sets:
        preset = replace(preset, same_instances=True)
    if measured.oom and measured.oom >= measured.failed and measured.value is None:
        return Verdict("OOM", f"out of memory on {counted(measured.oom, 'instance')}")
    if measured.value is None:
        return Verdict("not run", _nothing(preset, measured))
    if cell.number is None:
        return Verdict("not comparable", "the paper's machine ran out of memory, ours did not")
    part = part_of_library(preset, measured)
    if preset.metric in HARDWARE_METRICS:
        place = f"measured on {measured.hardware or 'other hardware'}"
        busy = f" {measured.busy}" if measured.busy and preset.metric != "memory" else ""
        if not part:
            return Verdict("not comparable", place + busy)
        bound = "too low" if not busy else "no bound either way"  # fewer instances, but each took longer
        return Verdict("not comparable", f"{place}{busy.removesuffix(UPPER)}, of {part}, so {bound}")
    if part and preset.metric in COUNTS:
        return Verdict("not comparable", f"of {part}")
    if measured.trained_on_test:
        return Verdict("not comparable", "WARNING: the weights were trained on this test set")
    if measured.calibrated_on_test:
        return Verdict("not comparable", "WARNING: the coordinate scale was calibrated on this test set")
    weights = _other_weights(preset, measured)
    if weights:
        return Verdict("other weights", f"{weights}; of {part}" if part else weights)
    if measured.limited:
        return Verdict("not comparable", "a time limit ended the search early")
    if preset.time_limit < preset.full_limit:
        shorter = (
            f"stopped after {preset.time_limit:g} s an instance, at full scale after {preset.full_limit:g} s"
        )
        return Verdict("not comparable", shorter)
    return _compare(cell, preset, measured)


def part_of_library(preset: CellPreset, measured: Measured) -> str:
    """Say which part of the paper's instances of a library a number is of; empty where of all, or of other sets."""
    tried = measured.instances + (measured.failed if preset.metric not in COUNTS else 0)
    if not preset.unlike or not preset.same_instances or tried >= preset.paper_instances:
        return ""
    return f"{tried} of the paper's {preset.paper_instances} instances, the smallest first"


def _nothing(preset: CellPreset, measured: Measured) -> str:
    if measured.failed < preset.count and preset.reference_mean:
        lost = f"{measured.failed} of {preset.count} instances {'was' if measured.failed == 1 else 'were'}"
        return f"{lost} not solved, and only all have a gap to the paper's mean"
    if preset.metric in HARDWARE_METRICS and preset.timing.batch_size:
        return f"the records are not of batches of {preset.timing.batch_size}; a run into an empty folder is"
    if measured.failed:
        return f"none of {measured.failed} instances was solved"
    return f"the records have no {preset.metric}"


def _other_weights(preset: CellPreset, measured: Measured) -> str:
    """Say how far the weights are from the paper's, or return an empty string."""
    weights: Mapping[str, Any] | None = measured.cell.weights
    if weights is None:
        return ""
    if weights.get("name") == "random":
        return "untrained network"
    size, weights = weights.get("training_size"), trained_now(weights)
    if preset.trained_samples and weights.get("samples") is not None:
        weights = {**weights, "share_of_paper": weights["samples"] / preset.trained_samples}
    known = preset.trained_on and size is not None
    other = f", at size {size} instead of {preset.trained_on}" if known and size != preset.trained_on else ""
    return trained_otherwise(weights, other)


def trained_otherwise(weights: Mapping[str, Any], other: str = "") -> str:
    """Say how the training of weights differs from the paper's, in samples or recipe, or return an empty string.

    Parameters
    ----------
    weights
        What records say of them, see `nco_bench.weights.store.WeightsFile.facts`.
    other
        A difference that the caller knows of, such as the size of instances.
    """
    name, share, departures = (weights.get(key) for key in ("name", "share_of_paper", "departures"))
    if weights.get("imported") or (share is None and "official" in str(name)):
        return ""
    if share is None:
        return f"{name} {_seen(weights)}, which the paper gives no count for"
    if share < FULL_SHARE or other:
        return f"{name} has seen {100 * share:.3g} % of the paper's training samples{other}"
    if departures is None:
        return f"{name}: its manifest does not say whether it was trained by the paper's recipe"
    if departures:
        more = f" and {len(departures) - MOST_NAMED} more" if len(departures) > MOST_NAMED else ""
        named = ", ".join(f"({one})" for one in departures[:MOST_NAMED])
        return f"{name} was trained by another recipe than the paper's: {named}{more}"
    return ""


def _seen(weights: Mapping[str, Any]) -> str:
    """Say what weights have seen, as far as it is known."""
    samples, size = weights.get("samples"), weights.get("training_size")
    if samples is None:
        return "had a training of its own"
    return f"has seen {samples:,} training samples" + (f" of size {size}" if size else "")


def _compare(cell: PublishedCell, preset: CellPreset, measured: Measured) -> Verdict:
    assert cell.number is not None
    assert measured.value is not None
    missing = preset.paper_instances - measured.instances if preset.same_instances else 0
    if missing > 0 and preset.unlike and preset.metric not in COUNTS:
        part = f"{measured.instances} of the paper's {preset.paper_instances} instances"
        return Verdict("not comparable", f"{part}; a part of a library says little of the whole")
    facts = _facts(preset, measured)
    few = FEW if measured.instances < ENOUGH and preset.metric not in COUNTS else ""
    rounding = half_unit(cell) * (1 + 1e-9) + 1e-12
    if measured.low is None or measured.high is None:
        if preset.metric not in COUNTS and measured.instances == 1:
            return Verdict("not comparable", "one instance is too few to judge by")
        close = abs(measured.value - cell.number) <= rounding
        return Verdict(f"{'reproduced' if close else 'differs'}{few}", facts)
    if measured.instances < FEWEST:
        few = "1 instance is" if measured.instances == 1 else f"{measured.instances} instances are"
        return Verdict("not comparable", f"{few} too few to judge by")
    if preset.same_instances and preset.paper_instances and missing <= 0 and measured.of_these is not None:
        low, high = measured.of_these
        measured = replace(measured, low=low, high=high)
    if _meets(cell.number, rounding, preset, measured):
        return Verdict(f"reproduced{few}", facts)
    other = measured.other_gap if preset.gap_unstated else None
    if other is not None and _meets(cell.number, rounding, preset, other):
        means = "a mean of gaps" if preset.metric == "gap-of-means" else "a ratio of means"
        return Verdict(f"reproduced{few}", f"{facts}, read as {means}, {other.value:.4g}")
    return Verdict(f"differs{few}", facts)


def _facts(preset: CellPreset, measured: Measured) -> str:
    """Say on which instances a number rests, and how many of them have none."""
    if not preset.same_instances:
        facts = f"{measured.instances} instances, other instances of the same kind"
    elif measured.instances < preset.paper_instances:
        facts = f"{measured.instances} of the paper's {preset.paper_instances} instances"
    else:
        facts = f"{measured.instances} instances, the paper's instances"
    return f"{facts}, {measured.failed} more failed" if measured.failed else facts


def _meets(printed: float, rounding: float, preset: CellPreset, measured: Measured) -> bool:
    """Whether a printed mean, with what it carries itself, meets our interval."""
    assert measured.value is not None
    assert measured.low is not None
    assert measured.high is not None
    below, above = (
        math.hypot(side, _paper_error(side, preset, measured))
        for side in (measured.value - measured.low, measured.high - measured.value)
    )
    return measured.value - below - rounding <= printed <= measured.value + above + rounding


def _paper_error(ours: float, preset: CellPreset, measured: Measured) -> float:
    """Sampling error of the paper's mean, from ours: the spread of instances is the same, their number is not.

    None on the same instances, nor where the paper does not say how many they were.
    """
    if preset.same_instances or not preset.paper_instances:
        return 0.0
    return ours * math.sqrt(measured.instances / preset.paper_instances)
