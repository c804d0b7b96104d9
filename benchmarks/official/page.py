"""From stored measurements to ``docs/speed.md``: every figure on the page comes from a row."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HEAD = """# Speed against the official code

One table of every model that has official code: the authors' code and ours, with the same weights and the same instances,
timed in turns in one run; decoder-6x128, PENS and attend2pack, which have none, beside a plain peer
(`benchmarks/official/plain.py`, `attend2pack.py`).
Made by `python benchmarks/official.py --checkouts FOLDER`, which writes this page from
`benchmarks/official/measured`.

{conditions}

- **ours**, **theirs**: processor seconds of one call on the whole batch, the median of all turns; steps of long
  constructions are measured at evenly spread lengths of the partial solution and add up to the whole (marked ≈).
- **ratio**: theirs by ours. Each side has a process of its own, and memory as its users have it: ours keeps what a step
  frees, as `nco-bench run` does, theirs what glibc's allocator keeps by itself (it maps large tensors anew and zeroes them).
  Updates share a process, which keeps all.
- **floor**: the matrix products that our side makes, made again alone, in the same run; **reached** is floor by ours. The
  floor shows what is left to gain without leaving products out. Products within compiled loops (the steps of AM and POMO,
  but for many short TSP tours of AM) are in neither floor nor products; for attention in a compiled loop (PENS from 128
  nodes on) PyTorch's stands there, so that more than all of the floor may be reached.
- **products**: theirs by ours, counted in operations. Where this is 1 and theirs is near its own products, a ratio above
  ours by floor cannot be had. Ours are oneDNN's on AMD's processors with 512-bit vectors (`nco_bench/nn/products.py`),
  theirs those that PyTorch takes by itself, MKL's.
- **mcts**: DIFUSCO's tree search stops by the clock. Here that counts how often it is asked, twice per city, so that both
  sides make the same search from the same random numbers.
- **same**: share of solutions (for steps and updates: of choices) that agree; the rest are ties that rounding decides.
  Sampling draws on both sides from other random numbers, and has none.
"""
TAIL = """## Other processors

- **Without 512-bit vectors** (an AMD EPYC, 2026-11-23 to 29) both sides multiply with MKL: LEHD, SIT, SIGD and PENS were at
  1.0 to 1.5 times on up to 100 nodes, near their floors; POMO, ELG and DGL, made faster since, at 2.0 to 3.7.
- **oneDNN compiles code** for every number of rows, some 0.3 ms each; these are filled up to 16 between two powers of two,
  so that a construction soon repeats them. The first seconds of a process pay for that.

## What has no row

- **Training of DGL, GLOP and H-TSP**: there is none here to compare.
- **TSP-100 of GLOP as in its README** draws nodes at random on both sides; the row has the likeliest ones.
- **RRC and PRC on the CVRP**: the authors' code cuts the segments on a GPU alone; here both sides cut with ours, and the
  network and loop that rebuild are each side's own.
"""
COLUMNS = (
    "model",
    "problem",
    "size",
    "batch",
    "decoding",
    "ours",
    "theirs",
    "ratio",
    "floor",
    "reached",
    "products",
    "same",
)


def write_page(measured: Path, page: Path) -> None:
    """Write the page from all rows; without rows nothing is written."""
    order = (
        "am",
        "pomo",
        "pomo + esf",
        "elg",
        "invit-3v",
        "invit-2v",
        "dgl",
        "lehd",
        "bq",
        "sit",
        "sigd",
        "sigd-lehd",
        "tropical",
        "difusco",
        "glop",
        "h-tsp",
        "decoder-6x128",
        "pens-a",
        "attend2pack",
    )
    rows = [row for file in sorted(measured.glob("*.json")) for row in json.loads(file.read_text())]
    if not rows:
        return
    place = {name: i for i, name in enumerate(order)}
    rows.sort(
        key=lambda row: (
            place.get(row["model"], 99),
            row["model"],
            row["decoding"],
            row["problem"] != "tsp",
            row["size"],
        )
    )
    parts = [HEAD.format(conditions=conditions(rows))]
    solving = [row for row in rows if row["decoding"] != "update"]
    training = [row for row in rows if row["decoding"] == "update"]
    for title, some in (("Solving", solving), ("One training update", training)):
        if some:
            parts.append(f"## {title}\n\n{summary(some)}\n\n{table(some)}\n")
    page.write_text("\n".join([*parts, TAIL]))


def conditions(rows: list[dict[str, Any]]) -> str:
    """Say in one paragraph on what machine, and in what state, this was measured."""
    machines = [row["machine"] for row in rows]
    loads = [machine["load"] for machine in machines]
    peaks = [row["peak_gflops"] for row in rows]
    load = " to ".join(dict.fromkeys(f"{one:.0f}" for one in (min(loads), max(loads))))
    return (
        f"Machine: {_one_of(machines, 'processor')}, {_one_of(machines, 'cores')} cores shared with other work (load average"
        f" {load} while measuring, so processor time is compared and wall time left out),"
        " one thread,"
        f" PyTorch {_one_of(machines, 'torch')}, {_one_of(machines, 'day')}. A product of two 1024 x 1024 matrices reached"
        f" {min(peaks):.0f} to {max(peaks):.0f} GFLOP/s between the turns (median {statistics.median(peaks):.0f})."
    )


def summary(rows: list[dict[str, Any]]) -> str:
    """Count rows by their ratio."""
    ratios = [_ratio(row) for row in rows]
    slow = [row for row in rows if _ratio(row) < 2]
    bound = [row for row in slow if row["floor_cpu"] / row["ours_cpu"] >= 0.85]
    text = f"{len(rows)} rows: {sum(r >= 2 for r in ratios)} at 2 times or more, {sum(r < 1 for r in ratios)} below 1;"
    text = f"{text} the median is {statistics.median(ratios):.1f}."
    return f"{text} Of the {len(slow)} below 2, {len(bound)} are at 85 % of their floor or above."


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown."""
    lines = [_line(COLUMNS), _line("---" for _ in COLUMNS)]
    return "\n".join(lines + [_line(cells(row)) for row in rows])


def cells(row: dict[str, Any]) -> list[str]:
    """Return one row as text."""
    about = "≈ " if row["points"] else ""
    floor = row["floor_cpu"]
    products = row["theirs_gflop"] / row["ours_gflop"] if row["ours_gflop"] else 0.0
    return [
        row["model"], row["problem"], f"{row['size']:,}", str(row["batch"]), row["decoding"],
        about + _seconds(row["ours_cpu"]), about + _seconds(row["theirs_cpu"]), f"{_ratio(row):.2f}",
        about + _seconds(floor) if products else "none", f"{floor / row['ours_cpu']:.0%}" if products else "",
        f"{products:.2f}" if products else "", "" if row["same"] is None else f"{row['same']:.3g}",
    ]  # fmt: skip


def _ratio(row: dict[str, Any]) -> float:
    return float(row["theirs_cpu"] / row["ours_cpu"])


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def _line(some: Iterable[str]) -> str:
    return "| " + " | ".join(some) + " |"


def _one_of(machines: list[dict[str, Any]], key: str) -> str:
    return " and ".join(sorted({str(machine[key]) for machine in machines}))
