"""Re-score stored solutions and check every hash: what a record claims must follow from what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.ledger_file import faults as ledger_faults
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import NcoBenchError, ResultsError, UnknownNameError, counted
from nco_bench.problems import problem as problem_module
from nco_bench.progress import report, tracked
from nco_bench.runs.finding import find_runs, incomplete, none_in
from nco_bench.runs.judge import counts_of
from nco_bench.runs.records import Cell, Record, key_of, solution_bytes, solution_sha256
from nco_bench.runs.stored_run import Run
from nco_bench.seals import is_sealed

COST_TOLERANCE = 1e-9
"""Relative; the same code on the same arrays gives the same float64, other NumPy versions may round a sum elsewhere."""


@dataclass(frozen=True)
class Finding:
    """One thing that does not hold: the run, the place in it, and what is wrong."""

    run: str
    place: str
    problem: str

    def __str__(self) -> str:
        return f"{self.run}: {self.place}: {self.problem}"


@dataclass(frozen=True)
class Verified:
    """How much was checked, and what does not hold.

    Attributes
    ----------
    runs, records
        How many.
    findings
        What does not hold.
    unscored
        Run id to its records of which the solution's hash alone is kept: their cost stands as it was measured.
    """

    runs: int
    records: int
    findings: tuple[Finding, ...]
    unscored: Mapping[str, int] = field(default_factory=dict)


def verify(results: Path, names: tuple[str, ...], places: Places) -> Verified:
    """Check runs; one that cannot be read, or an archive, is a finding beside the others.

    Parameters
    ----------
    results
        Folder of all runs.
    names
        Run ids, or none for all.
    places
        Where the datasets are.

    Raises
    ------
    ResultsError
        For an unknown run id or an empty folder.
    """
    unread: dict[str, Finding] = {}
    runs = find_runs(
        results, lambda path, error: unread.update({path.name: Finding(path.name, "the whole", str(error))})
    )
    unread |= {name: Finding(name, "the whole", f"{text}.") for name, text in incomplete(results).items()}
    runs = [run for run in runs if run.run_id not in unread]
    if names:
        known = {run.run_id: run for run in runs}
        for name in names:
            if name not in known and name not in unread:
                raise ResultsError(f"{results}: no run {name!r}; it holds {', '.join(known) or 'none'}.")
        runs = [known[name] for name in names if name in known]
    findings = [finding for name, finding in unread.items() if not names or name in names]
    if not runs and not findings:
        raise ResultsError(f"{none_in([results], 'no runs to verify')}; 'nco-bench run' makes them.")
    cache: dict[tuple[str, str], Dataset | str] = {}
    count, unscored = 0, {}
    lines = [1 + run.count() for run in runs]
    for run, total in zip(tracked(runs, "run", lines), lines, strict=False):
        checker = _RunChecker(run, places, cache, total)
        findings += checker.check()
        count += checker.records
        if checker.unscored:
            unscored[run.run_id] = checker.unscored
    findings += [Finding("ledger", "references", fault) for fault in ledger_faults(places.instances)]
    return Verified(len(runs), count, tuple(findings), unscored)


class _RunChecker:
    def __init__(
        self, run: Run, places: Places, cache: dict[tuple[str, str], Dataset | str], total: int
    ) -> None:
        self._run, self._places, self._cache, self._total = run, places, cache, total
        self.records = self.unscored = 0

    def check(self) -> Iterator[Finding]:
        try:
            cells = {cell.cell: cell for cell in self._run.cells()}
            for cell in cells.values():
                dataset = self._dataset(cell)
                if isinstance(dataset, str):
                    yield self._finding(f"dataset {cell.dataset}", dataset)
            yield from self._check_name()
            yield from self._check_records(cells)
            yield from self._check_traces()
            yield from self._check_ends(finished=all(cell.seconds_total for cell in cells.values()))
        except ResultsError as error:
            yield self._finding("records", str(error))
        except (TypeError, KeyError, ValueError) as error:
            yield self._finding("records", f"not readable as records ({error})")

    def _check_name(self) -> Iterator[Finding]:
        told = self._run.info.get("run_id", self._run.run_id)
        if told != self._run.run_id:
            yield self._finding("run.json", f"is of the run {told}: the folder was given another name")

    def _check_records(self, cells: Mapping[int, Cell]) -> Iterator[Finding]:
        """Check each record, and that none is there twice or gone."""
        damaged: list[ResultsError] = []
        places: set[tuple[int, int, int]] = set()
        held: Counter[int] = Counter()
        spans: list[tuple[int, int]] = []
        for record in self._run.records(damaged.append):
            self.records += 1
            held[record.cell] += 1
            if record.solution is not None:
                spans.append(record.solution)
            report(self.records, self._total, "record")
            name = f"{record.name} (instance {record.instance}, repeat {record.repeat})"
            for text in self._check_record(record, cells.get(record.cell)):
                yield self._finding(name, text)
            place = (record.cell, record.repeat, record.instance)
            if place in places:
                yield self._finding(name, "has another record of the same cell in this run")
            places.add(place)
        if damaged:
            more = f" ({len(damaged) - 1} more lines are damaged)" if len(damaged) > 1 else ""
            yield self._finding("records", f"{damaged[0]}{more}")
        elif not self._last_line("records.jsonl"):
            yield from self._check_counts(cells, held)
            if not self._run.archived:
                yield from self._check_spans(spans)

    def _check_counts(self, cells: Mapping[int, Cell], held: Mapping[int, int]) -> Iterator[Finding]:
        for cell in cells.values():
            name, found = f"{cell.label} on {cell.dataset}", held.get(cell.cell, 0)
            if cell.records is not None and found != cell.records:
                yield self._finding(
                    name,
                    f"holds {counted(found, 'record')}, and the run had written {cell.records} when it ended",
                )
            elif cell.records is None and cell.seconds_total and not found:  # of before they were counted
                said = f"took {cell.seconds_total:.3g} s to solve, and its records are gone"
                yield self._finding(name, said)

    def _check_spans(self, spans: Sequence[tuple[int, int]]) -> Iterator[Finding]:
        """Tell solutions between those of records that none speaks of, for runs whose cells do not count their records."""
        end = 0
        for offset, length in sorted(map(tuple, spans)):
            if offset > end:
                said = f"{offset - end} integers before number {offset} belong to no record: a line was taken out"
                yield self._finding("solutions.bin", said)
            end = max(end, offset + length)

    def _check_traces(self) -> Iterator[Finding]:
        for line in self._run.lines("traces.jsonl"):
            if line.keys() != {"key", "points"}:
                yield self._finding("traces", f"a line holds {', '.join(line)}, expected key and points")

    def _check_ends(self, *, finished: bool) -> Iterator[Finding]:
        """Tell a last line that was cut or changed from one that a killed process did not finish."""
        for name in ("cells.jsonl", "records.jsonl", "traces.jsonl"):
            last = self._last_line(name)
            if last[:-1].endswith(b'"}') and is_sealed(last[:-1]):
                yield self._finding(name, "the last line is whole but for its end: its newline was changed")
            elif last and finished and name == "records.jsonl":
                yield self._finding(name, "the last line is torn, and the run had ended: a record was lost")

    def _last_line(self, name: str) -> bytes:
        """Return what stands after the last newline of a file; nothing in one that is whole."""
        path = self._run.folder / name
        return path.read_bytes().rpartition(b"\n")[2] if path.is_file() else b""

    def _finding(self, place: str, text: str) -> Finding:
        return Finding(self._run.run_id, place, text)

    def _dataset(self, cell: Cell) -> Dataset | str:
        """Load a cell's dataset, or say why it is not the one that was solved."""
        key = (cell.source, cell.dataset_sha256)
        if key not in self._cache:
            try:
                # A file that was solved must still hold what was solved; a name stands for its content.
                name = cell.source if Path(cell.source).is_file() else cell.dataset
                dataset = load_dataset(name, self._places)
                if dataset.sha256 == cell.dataset_sha256:
                    self._cache[key] = dataset
                else:
                    self._cache[key] = (
                        f"{name}: its content has hash {dataset.sha256[:16]}, the run solved {cell.dataset_sha256[:16]}"
                    )
            except UnknownNameError as error:
                gone = f"the file {cell.source} is not here; put it back, or start 'verify' where the run was started."
                self._cache[key] = gone if cell.origin.get("generator") == "file" else str(error)
            except NcoBenchError as error:
                self._cache[key] = str(error)
        return self._cache[key]

    def _check_record(self, record: Record, cell: Cell | None) -> Iterator[str]:
        if cell is None:
            yield f"belongs to cell {record.cell}, which the run does not have"
            return
        expected = key_of(cell, record)
        if record.key != expected:
            yield f"its key {record.key} does not follow from its configuration (expected {expected})"
        if record.solution is None:
            if record.status == "ok" and record.solution_sha256 is None:
                yield "status is ok but no solution is stored"
            self.unscored += record.status == "ok" and record.solution_sha256 is not None
            return
        solution = self._run.solution(record)
        found = solution_sha256(solution_bytes(solution))
        if found != record.solution_sha256:
            yield f"the stored solution has hash {found}, the record says {record.solution_sha256}"
        dataset = self._dataset(cell)
        if not isinstance(dataset, str):
            yield from self._check_cost(record, cell, dataset, solution)

    def _check_cost(self, record: Record, cell: Cell, dataset: Dataset, solution: object) -> Iterator[str]:
        if not 0 <= record.instance < len(dataset):
            yield f"instance {record.instance} is not in {dataset.name}"
            return
        if not dataset.holds(record.instance, record.instance_sha256):
            content = dataset.instance_hashes[record.instance]
            yield f"the instance has hash {content}, the record says {record.instance_sha256}"
            return
        instance, module = dataset.instances[record.instance], problem_module(cell.problem)
        wrong = module.violations(instance, solution)  # type: ignore[arg-type]
        if wrong:
            if record.status != "infeasible":
                yield f"the stored solution is infeasible: {wrong[0]}"
            return
        if record.status != "ok" or record.cost is None:
            yield f"status is {record.status}, but the stored solution is feasible"
            return
        cost = module.score(instance, solution)  # type: ignore[arg-type]
        if abs(cost - record.cost) > COST_TOLERANCE * max(1.0, abs(cost)):
            yield f"the record says cost {record.cost!r}, the stored solution costs {cost!r}"
        counts = counts_of(module, instance, solution) or {}  # type: ignore[arg-type]
        # Records of before there were counts are sound without them.
        for name, stored in (record.counts or {}).items():
            found = counts.get(name)
            if found is None or abs(found - stored) > COST_TOLERANCE * max(1.0, abs(found)):
                yield f"the record counts {name} {stored!r}, the stored solution has {found!r}"
