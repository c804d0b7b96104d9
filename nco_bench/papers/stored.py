"""Which stored records answer a printed number, found by the facts of their cells: nothing is loaded, generated or run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nco_bench.cards import cards, weights_owner
from nco_bench.datasets.names import stream_of
from nco_bench.errors import BadWeightsError, ResultsError
from nco_bench.papers.courses import OF_COURSES, iterations_made, search_of
from nco_bench.papers.judging import ENOUGH
from nco_bench.papers.measuring import HARDWARE_METRICS, TIMES, Measured, Records
from nco_bench.papers.preset import CellPreset
from nco_bench.problems import problem as problem_module
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import Group, ResultFrame
from nco_bench.runs.finding import find_runs
from nco_bench.runs.records import Cell
from nco_bench.settings import pairs

Configuration = tuple[str, str, str, str, tuple[tuple[str, str], ...], float]
"""Solver, decoding, logit scale, coordinate scale, parameters, time limit."""


class Stored:
    """The records of some results folders, looked up by what a preset asks for.

    Attributes
    ----------
    frame
        All of them; None where the folders hold none.
    folders
        Where they are from.
    """

    def __init__(self, frame: ResultFrame | None, folders: Sequence[Path] = ()) -> None:
        self.frame = frame
        self.folders = tuple(folders)
        self._records = None if frame is None else Records(frame)
        self._groups: dict[Configuration, list[Group]] = {}
        self._instances: dict[int, int] = {}  # by the group's id
        held = {} if frame is None else frame.records.groupby("group")["instance"].nunique().to_dict()
        for code, group in enumerate(() if frame is None else frame.groups):
            if held.get(code) and _current(group.cell):
                self._groups.setdefault(_configuration_of(group.cell), []).append(group)
                self._instances[id(group)] = held[code]

    def measure(self, preset: CellPreset) -> Measured | None:
        """Read the number of a cell from what is stored of the first of its datasets that has records; None without any.

        The decoding that is asked for comes first, then a longer search, then one that a time limit ended; but what is of
        enough instances comes before what is of few. Times are of any number.
        """
        for name in preset.data:
            found: list[Measured] = []
            for measured in self._ways(preset, name):
                if measured is None:
                    continue
                found.append(measured)
                if preset.metric in TIMES or measured.instances >= min(ENOUGH, preset.count or ENOUGH):
                    return measured
            if found:
                return found[0]
        return None

    def _ways(self, preset: CellPreset, name: str) -> Iterator[Measured | None]:
        """Read a number of one dataset in each way that there is, the truest first."""
        group = self._group(preset, name)
        if group is not None:
            yield self._measure(preset, name, group)
        search = search_of(preset.decoding) if preset.metric in OF_COURSES else None
        if search is not None:
            longer = self._longer(preset, name, *search)
            if longer is not None:
                yield self._measure(preset, name, longer, search[1])
            yield self._limited(preset, name, *search)

    def _longer(self, preset: CellPreset, name: str, search: str, iterations: int) -> Group | None:
        """The records of the same search with more iterations, of most instances first: they keep their course.

        One that a time limit has ended counts where every instance came that far.
        """
        found = [
            (known, group)
            for known, group in self._searches(preset, name, search)
            if known > iterations
            and (not _limit(group) or min(self._made(preset, group), default=0) >= iterations)
        ]
        return max(
            found,
            key=lambda pair: (self._of(pair[1], preset), pair[1].cell.instances, -pair[0]),
            default=(0, None),
        )[1]

    def _limited(self, preset: CellPreset, name: str, search: str, iterations: int) -> Measured | None:
        """What a search of at least as many iterations had found when its time limit ended it, of the longest limit."""
        found = [
            (_limit(group), group)
            for known, group in self._searches(preset, name, search)
            if known >= iterations and _limit(group)
        ]
        limit, group = max(
            found,
            key=lambda pair: (self._of(pair[1], preset), pair[1].cell.instances, pair[0]),
            default=(0.0, None),
        )
        measured = None if group is None else self._measure(preset, name, group)
        if group is None or measured is None or measured.value is None:
            return None
        made = self._made(preset, group)
        few, most = min(made, default=0), max(made, default=0)
        if not few:  # the initial solution is not what a search found
            return None
        after = f"{few}" if few == most else f"{few} to {most}"
        course = f"ended by a time limit of {limit:g} s an instance after {after} of {iterations} iterations"
        return replace(measured, course=course, limited=True)

    def timed_otherwise(self, preset: CellPreset) -> str:
        """Say how the stored times or memory of a cell were measured, where not as the paper says; else an empty string."""
        if preset.metric not in HARDWARE_METRICS:
            return ""
        groups = [self._group(preset, name) for name in (*preset.mean_of, *preset.data)]
        others = [
            one
            for group in groups
            if group is not None
            for _, one in group.solved
            if not preset.timing.fits(one)
        ]
        if not others:
            return ""
        devices = dict.fromkeys(one.device.partition(":")[0] for one in others)
        batches = sorted({one.batch_size for one in others})
        asked = f"in batches of {preset.batch_size}" if preset.batch_size else f"on {preset.device}"
        found = (
            f"in batches of {' and '.join(map(str, batches))}"
            if preset.batch_size
            else f"on {' and '.join(devices)}"
        )
        return f"what is stored was measured {found}, not {asked}"

    def fruitless(self, preset: CellPreset, limit: float) -> bool:
        """Whether a stored search was ended by a time limit of at least `limit` seconds before its first iteration."""
        search = search_of(preset.decoding)
        if search is None:
            return False
        return any(
            _limit(group) >= limit and not min(self._made(preset, group), default=0)
            for name in (*preset.mean_of, *preset.data)
            for known, group in self._searches(preset, name, search[0])
            if known >= search[1]
        )

    def _searches(self, preset: CellPreset, name: str, search: str) -> list[tuple[int, Group]]:
        """The records of the same search of any length, with its iterations; with a time limit too if none is asked."""
        solver, _, *others, limit = configuration(preset)
        found = []
        for (one, decoding, *rest, their_limit), groups in self._groups.items():
            known = search_of(decoding)
            alike = (one, *rest) == (solver, *others) and limit in (0.0, their_limit)
            if alike and known and known[0] == search:
                found += [(known[1], group) for group in groups if self._fits(group, preset, name)]
        return found

    def _made(self, preset: CellPreset, group: Group) -> list[int]:
        assert self.frame is not None
        assert self._records is not None
        part = self._records.part(group.cell, preset.count, preset.repeats)
        return iterations_made(part, self.frame.runs)

    def _measure(
        self, preset: CellPreset, name: str, group: Group, iterations: int | None = None
    ) -> Measured | None:
        assert self._records is not None
        reference: Cell | float | None = None
        if preset.metric == "gap-of-means" and preset.reference_mean:
            reference = preset.reference_mean
        part = self._records.part(group.cell, preset.count, preset.repeats, iterations)
        if part.empty or (isinstance(reference, float) and part["instance"].nunique() < preset.count):
            return None  # a part of a set has no gap to the mean of all of it
        lacks = preset.metric in ("gap", "gap-of-means") and part["reference"].isna().any()
        if lacks and reference is None and preset.reference:
            other = self._group(CellPreset(solver=preset.reference, seed=preset.seed), name)
            if other is None:
                return None
            reference = other.cell
        return self._records.measure(
            preset.metric, group.cell, preset.count, preset.repeats, reference, iterations, preset.timing
        )

    def _of(self, group: Group, preset: CellPreset) -> int:
        """Of how many instances that a preset asks for a group has records, made in one run or in several."""
        held = self._instances[id(group)]
        return min(held, preset.count) if preset.count else held

    def _fits(self, group: Group, preset: CellPreset, name: str) -> bool:
        return _is_of(group, name) and group.cell.seed == preset.seed and _weights_fit(group.cell, preset)

    def _group(self, preset: CellPreset, name: str) -> Group | None:
        groups = self._groups.get(configuration(preset), ())
        fitting = [group for group in groups if self._fits(group, preset, name)]
        return max(fitting, key=lambda group: (self._of(group, preset), group.cell.instances), default=None)


def stored_in(folders: Sequence[Path], instances: Path | None) -> Stored:
    """Read the records of some results folders; folders without any runs are an empty store.

    Raises
    ------
    ResultsError
        For damaged runs.
    """
    filled = [folder for folder in folders if find_runs(folder)]
    try:
        return Stored(load_frame(filled, instances) if filled else None, folders)
    except ResultsError as error:
        if "no results yet" in str(error):  # runs that were stopped before their first record
            return Stored(None, folders)
        raise


def configuration(preset: CellPreset) -> Configuration:
    """Return what a preset's records must have been made with, apart from weights."""
    name, _, rest = preset.solver.partition(":")
    given = pairs(f"solver {preset.solver!r}", rest.split(":")) if rest else {}
    known = cards().get(name)
    decoding, scale = preset.decoding, preset.logit_scale
    if known is not None and known.decodings:
        decoding = given.pop("decoding", "") or decoding or known.decodings[0]
        given.pop("weights", None)
    else:
        decoding = scale = ""
    if scale:
        from nco_bench.nn.logit_scale import resolved

        assert known is not None
        scale = resolved(scale, glimpse=known.glimpse, model=known.name)
    params = tuple(sorted({**preset.params, **given}.items()))
    return name, decoding, scale, preset.coordinate_scale, params, preset.time_limit


def _configuration_of(cell: Cell) -> Configuration:
    options: Mapping[str, Any] = cell.options
    return (
        cell.solver, cell.decoding, options.get("logit_scale") or "", options.get("coordinate_scale") or "",
        tuple(sorted((options.get("params") or {}).items())), options.get("time_limit") or 0.0,
    )  # fmt: skip


def _limit(group: Group) -> float:
    return float(group.cell.options.get("time_limit") or 0.0)


def _current(cell: Cell) -> bool:
    """Whether a run of today would find the same: records of an older solver or problem are of another one."""
    known = cards().get(cell.solver)
    if known is None:
        return False
    if cell.solver_version not in (known.version, *known.same_as.get(cell.problem, ())):
        return False
    return bool(cell.problem_version == problem_module(cell.problem).VERSION)


def _is_of(group: Group, name: str) -> bool:
    stream = stream_of(name)
    if stream is not None and group.whole.stream:
        return stream[0] == group.whole.stream
    return name in group.whole.names or name in group.sources


def _weights_fit(cell: Cell, preset: CellPreset) -> bool:
    if cell.weights is None:
        return True
    name = str(cell.weights.get("name"))
    if name == "random" or not unchanged(name, str(cell.weights.get("sha256"))):
        return name == "random" and "random" in preset.weights
    owner = weights_owner(cell.solver)
    if not preset.weights:
        # The solver's own: neither those of an ablation nor what somebody trained for a minute.
        tasks = cell.problem.startswith(("algorithmic", "lra"))  # a network of each task
        kind = cell.dataset.partition(":")[0] if tasks else cell.problem
        own = {one + end for one in (cell.solver, owner) for end in ("", f"-{kind}")}
        return "official" in name or re.sub(r"-seed\d+$", "", name) in own
    return name in {
        full for one in preset.weights for full in (one, f"{cell.solver}-{one}", f"{owner}-{one}")
    }


def unchanged(name: str, sha256: str) -> bool:
    """Whether what this name means today is not at hand, still the same weights, or the same ones rounded."""
    from nco_bench.weights.manifest import manifest_path
    from nco_bench.weights.shelf import listed
    from nco_bench.weights.store import files_called

    called = files_called(name)
    if not called:
        return True
    try:
        now = listed(manifest_path(called[0]))
    except BadWeightsError:
        return False  # `weights verify` names it
    return sha256 in (now.sha256, now.rounded_from or now.sha256)
