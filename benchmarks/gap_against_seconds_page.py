"""The page of `gap_against_seconds`: a table for each problem and size, and a picture of all."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from nco_bench.files import replacing
from nco_bench.reports.figures.plots import pareto_front
from nco_bench.reports.figures.style import (
    figure,
    gap_scale,
    legend,
    solver_look,
    solver_looks,
    wide_log_scale,
)

PAGE = "gap-against-seconds.md"
PICTURE = "images/gap-against-seconds.svg"


@dataclass(frozen=True)
class Solve:
    """What one solve took and gave; `cost` is None where it failed, and `message` then says why."""

    problem: str
    n: int
    instance: int
    solver: str
    limit: float | None
    cost: float | None
    cpu: float
    wall: float
    message: str = ""
    processor: str = ""
    load: float = 0.0
    date: str = ""

    @property
    def key(self) -> tuple[str, int, int, str, float | None]:
        return self.problem, self.n, self.instance, self.solver, self.limit


@dataclass(frozen=True)
class Row:
    """Means over the instances of one size that a solver solved."""

    name: str
    solver: str
    solved: int
    cost: float
    gap: float
    cpu: float
    wall: float


def rows_of(solves: list[Solve]) -> tuple[list[Row], list[Solve]]:
    """Return a row per solver and limit, fastest first, and what failed."""
    best: dict[int, float] = {}
    for one in solves:
        if one.cost is not None:
            best[one.instance] = min(one.cost, best.get(one.instance, one.cost))
    groups: dict[tuple[str, float | None], list[Solve]] = defaultdict(list)
    for one in solves:
        if one.cost is not None:
            groups[one.solver, one.limit].append(one)
    rows = [
        Row(
            solver if limit is None else f"{solver} ({limit:g} s)",
            solver.partition(":")[0],
            len(group),
            mean(one.cost or 0.0 for one in group),
            mean(100 * ((one.cost or 0.0) / best[one.instance] - 1) for one in group),
            mean(one.cpu for one in group),
            mean(one.wall for one in group),
        )
        for (solver, limit), group in groups.items()
    ]
    return sorted(rows, key=lambda row: row.cpu), [one for one in solves if one.cost is None]


def write_page(solves: list[Solve], docs: Path) -> None:
    """Write the page and its picture into the folder of the documentation."""
    tables = {
        (problem, n): rows_of([one for one in solves if (one.problem, one.n) == (problem, n)])
        for problem in NODES
        for n in sorted({one.n for one in solves})
    }
    draw({key: rows for key, (rows, _) in tables.items() if rows}, docs / PICTURE)
    lines = [HEAD.format(**conditions(solves))]
    for (problem, n), (rows, failed) in tables.items():
        if not rows:
            continue
        count = max((row.solved for row in rows), default=0)
        instances = "instance" if count == 1 else "instances"
        lines.append(f"## {problem.upper()}, {n:,} {NODES[problem]}, {count} {instances}\n")
        lines.append(
            "| solver (limit) | length | gap | processor s | wall s |\n| --- | --- | --- | --- | --- |"
        )
        for row in rows:
            part = "" if row.solved == count else f", {row.solved} of {count}"
            lines.append(
                f"| {row.name}{part} | {row.cost:.3f} | {row.gap:.2f} % | {row.cpu:.3g} | {row.wall:.3g} |"
            )
        lines.extend(f"\n{one.solver}: {one.message}" for one in failed)
        lines.append("")
    with replacing(docs / PAGE) as temporary:
        temporary.write_text("\n".join(lines).rstrip() + "\n")


def conditions(solves: list[Solve]) -> dict[str, str]:
    loads = [one.load for one in solves] or [0.0]
    return {
        "picture": PICTURE,
        "machine": " and ".join(sorted({one.processor for one in solves})),
        "load": f"{min(loads):g} to {max(loads):g}",
        "dates": " and ".join(sorted({one.date for one in solves})),
    }


def draw(tables: dict[tuple[str, int], list[Row]], target: Path) -> None:
    """Draw a panel per problem and size; a line joins what nothing beats."""
    looks = solver_looks({row.solver: row.solver for rows in tables.values() for row in rows}, [])
    with figure(len(tables), target) as (fig, axes):
        for axis, ((problem, n), rows) in zip(axes, tables.items(), strict=False):
            for row in rows:
                style = solver_look(*looks[row.solver])
                axis.plot(
                    row.cpu, row.gap, style.marker, color=style.colour, label=row.solver, linestyle="none", zorder=3
                )  # fmt: skip
            front = pareto_front([(row.cpu, row.gap) for row in rows])
            axis.step(*zip(*front, strict=True), where="post", color="#888888", linewidth=0.9, zorder=1)
            wide_log_scale(axis, [row.cpu for row in rows])
            gap_scale(axis, [row.gap for row in rows])
            axis.set(
                title=f"{problem.upper()}, {n:,} {NODES[problem]}", xlabel="processor s", ylabel="gap (%)"
            )
        legend(fig, axes)


NODES = {"tsp": "cities", "cvrp": "customers"}
HEAD = """# Gap against seconds at scale

Made by `python benchmarks/gap_against_seconds.py`. Uniform instances with seed 1234 (`tsp1000:count=3` and so on; CVRP
with the literature's capacities), one solve each in a process of its own, one thread. Processor seconds are those of the
solve, without imports and compiling; wall seconds depend on what else the machine did. A limit in brackets is in processor
seconds, as near as the solver lets itself be stopped. Lengths are recomputed from the solutions.

**The gap** is to the shortest solution that any solver of the same table found for the instance, not to the optimum. So
the best row has about 0 by definition, and true gaps are larger at 10,000 and above, where nobody had the time to come near
the optimum. One instance tells whole percents from each other, not tenths.

Some solvers exceeded their limit since they could not be stopped before. HGS, PyVRP, fast-tsp and OR-Tools fill a matrix of
distances first, which ends the last three at 10,000 to 20,000 nodes, and HGS and PyVRP make a first population. AILS-II (the
package `ailsii`, which the script calls and which needs Java 21; no solver of ours) had its limit in wall time while the
machine became less busy. LKH-3 for the CVRP is the package LKHpy, which bears 5,000 customers and vehicles together; for the
TSP it has quadrant candidates from 10,000 cities on. A solver without a row was not run at that size.

Machine: {machine}, shared with other work (load average {load}), {dates}.

![Gap against processor seconds]({picture})
"""
