"""What a caption must say: convention, gap definition, reference solver, hardware, seed, repeats."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from nco_bench.datasets.names import parse_generated, stream_of
from nco_bench.errors import NcoBenchError, counted
from nco_bench.reports.frame.best_known import Source
from nco_bench.reports.frame.summary import CellSummary
from nco_bench.reports.tables.table import GAP_DEFINITIONS, GAP_DEFINITIONS_MAX
from nco_bench.runs.records import Cell

FORMATS_OF_ONE = ("tsplib", "cvrplib", "elg")
"""File formats that hold one instance: all of it was run."""

BEST = "Best in bold, second underlined"
"""A sentence of captions, which plain text leaves out."""


def caption(title: str, summaries: list[CellSummary], gap: str, *, timed: bool = True) -> str:
    """Put a caption together.

    Parameters
    ----------
    title
        First sentence, without full stop.
    summaries
        The cells of the table.
    gap
        A gap definition, or empty where the columns name it.
    timed
        Whether a column holds times.
    """
    sentences = [f"{title}; instances in brackets"]
    if gap and any(s.gap_instances for s in summaries):
        sentences.append(f"Gap: {gap_definition(gap, summaries)}")
    elif any(s.group.cell.objective == "max" and s.gap_instances for s in summaries):
        sentences.append("A positive gap is worse than the reference, also where higher is better")
    found = references(summaries)
    sentences.append(_fact("Reference", summaries, lambda s: found[by_dataset(s)], by_dataset))
    sentences.append(_fact("Scoring", summaries, lambda s: s.group.cell.convention, by_dataset))
    if timed:
        sentences.append("Time in seconds for one pass over the instances in brackets")
    sentences.append(_fact("Hardware", summaries, lambda s: s.hardware, by_method))
    sentences.append(_fact("Seed", summaries, lambda s: str(s.group.cell.seed), by_method))
    repeats = {s.repeats for s in summaries}
    if repeats != {1}:
        sentences.append(
            _fact("Means over repeats per instance", summaries, lambda s: s.repeats_said, by_method)
        )
    sentences.append(BEST)
    return ". ".join(sentences) + "."


def brief(summaries: list[CellSummary], gap: str, *, timed: bool = True) -> str:
    """Say in one line what a reader must know; `caption` says the rest."""
    parts = []
    if any(s.gap_instances for s in summaries):
        how = {"mean-of-gaps": "mean over instances, ", "gap-of-means": "of the means, "}.get(gap, "")
        known = set(references([s for s in summaries if s.gap_instances]).values())
        to = next(iter(known)) if len(known) == 1 else "each set's reference"
        parts.append(f"Gap: {how}to {to}")
    if gap:
        parts += _without_gaps(summaries)
    parts += ["Time: for the instances in brackets"] * timed + [BEST]
    return ". ".join(parts) + ". More: --notes."


def _without_gaps(summaries: list[CellSummary]) -> list[str]:
    """Say why routing sets have no gap at all: the first without references with what makes them."""
    sets: dict[str, list[CellSummary]] = {}
    for summary in summaries:
        if summary.group.cell.problem in ("tsp", "cvrp"):
            sets.setdefault(by_dataset(summary), []).append(summary)
    bare, failed = [], []
    for name, column in sets.items():
        if all(s.all_failed for s in column):
            failed.append(name)
        elif not any(s.gap_instances or s.undefined_gaps for s in column):
            which = " for what was solved" if any(s.references for s in column) else ""
            named = _askable(column[0].group.cell)
            asked = f"{shlex.quote(named)}{_limit(named, column)}"
            made = f"nco-bench reference {asked} --solver lkh3 makes them"
            bare.append(f"Gap: {name} has no references{which}; {made}")
    return bare[:1] + [f"Gap: every solve on {', '.join(failed)} failed"] * bool(failed)


def _askable(cell: Cell) -> str:
    """Return a set by the name or path that commands take; a file's set and one with an alias print another."""
    try:
        printed = not cell.source or parse_generated(cell.dataset) is not None
    except NcoBenchError:  # such as an alias tsp-A
        printed = False
    return cell.dataset if printed else cell.source


def _limit(named: str, column: list[CellSummary]) -> str:
    """Return the option that restricts a command to what was run of a set; empty for all of it or where nothing says it."""
    if column[0].group.cell.origin.get("params", {}).get("format") in FORMATS_OF_ONE:
        return ""
    asked = [bounds for summary in column for bounds in summary.group.asked]
    stream = stream_of(named)
    if not asked:
        return ""
    first, last = min(first for first, _, _ in asked), max(last for _, last, _ in asked)
    if first:
        return f" --limit {first + 1}-{last}"
    return "" if stream is not None and last >= stream[1] else f" --limit {last}"


def gap_definition(gap: str, summaries: list[CellSummary]) -> str:
    """Say how gaps are computed: by objective, where cells with gaps differ in it."""
    objectives = {s.group.cell.objective for s in summaries if s.gap_instances}
    if objectives == {"min"}:
        return GAP_DEFINITIONS[gap]
    if objectives == {"max"}:
        return f"{GAP_DEFINITIONS_MAX[gap]} (higher is better, a positive gap is worse)"
    higher = list(dict.fromkeys(s.group.cell.dataset for s in summaries if s.group.cell.objective == "max"))
    return (
        f"{GAP_DEFINITIONS[gap]}; where higher is better ({', '.join(higher)}) {GAP_DEFINITIONS_MAX[gap]}, "
        "so that a positive gap is worse everywhere"
    )


def references(summaries: list[CellSummary]) -> dict[str, str]:
    """Say of every dataset who found its references, how and when."""
    counts: dict[str, dict[Source, int]] = {}
    for summary in summaries:
        known = counts.setdefault(by_dataset(summary), {})
        for source, count in summary.references:
            known[source] = max(count, known.get(source, 0))
    return {dataset: _who_and_when(known) for dataset, known in counts.items()}


def _who_and_when(counts: dict[Source, int]) -> str:
    alike: dict[tuple[str, bool], list[Source]] = {}
    for source in counts:
        alike.setdefault((source.who, source.in_ledger), []).append(source)
    numbers = {key: sum(counts[source] for source in sources) for key, sources in alike.items()}
    texts = []
    for key in sorted(alike, key=lambda key: (-numbers[key], key)):
        days = sorted({source.date for source in alike[key] if source.date})
        between = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
        when = f", {'found' if key[1] else 'as of'} {between}" if days else ""
        of = f" on {counted(numbers[key], 'instance')}" if len(alike) > 1 else ""
        texts.append(f"{key[0]}{when}{of}")
    return " and ".join(texts) or "none"


def by_dataset(summary: CellSummary) -> str:
    """Whose fact it is: the dataset's."""
    return summary.group.cell.dataset


def by_method(summary: CellSummary) -> str:
    """Whose fact it is: the method's."""
    return summary.method


def _fact(
    name: str,
    summaries: list[CellSummary],
    value: Callable[[CellSummary], str],
    owner: Callable[[CellSummary], str],
) -> str:
    """Say one fact, once where all agree, else with the datasets or methods it holds for."""
    owners: dict[str, list[str]] = {}
    for summary in summaries:
        holders = owners.setdefault(value(summary), [])
        if owner(summary) not in holders:
            holders.append(owner(summary))
    if len(owners) == 1:
        return f"{name}: {next(iter(owners))}"
    return f"{name}: " + "; ".join(f"{v} ({', '.join(holders)})" for v, holders in owners.items())


def remarks(summaries: list[CellSummary], notes: tuple[str, ...]) -> list[str]:
    """Notes below a table: how records were put together, negative gaps, and what solvers had to say."""
    found = list(notes)
    whole = {
        (s.group.cell.config_sha256, s.group.cell.seed, s.group.whole.key): s.group.repeated
        for s in summaries
    }
    repeated = sum(whole.values())
    if repeated:
        what = "1 record was" if repeated == 1 else f"{repeated} records were"
        found.append(f"{what} computed more than once; the latest counts.")
    for summary in summaries:
        if summary.mean_gap_percent is not None and summary.mean_gap_percent < -1e-6:
            found.append(
                f"{summary.method} beats the reference of {summary.group.cell.dataset} "
                f"({summary.reference_solver}) on average: the reference is not optimal."
            )
        weights = summary.group.cell.weights or {}
        share = weights.get("share_of_paper")
        if share is not None and share < 0.995:
            percent = f"{100 * share:.3g}" if share else "less than 0.001"  # manifests round to that
            found.append(
                f"{summary.group.cell.label}: the weights {weights.get('name')} have seen {percent} % of the "
                "training samples of the paper."
            )
        found.extend(f"{summary.method}: {note}" for note in summary.group.cell.notes)
    return list(dict.fromkeys(found))
