"""Write the parts of README.md that come from records and weights: ``python tools/readme.py [--check] [--picture]``.

With ``--check`` nothing is written, and the exit status says whether they are current.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
RECORDS = ROOT / "results" / "readme"
PICTURE = ROOT / "docs" / "images" / "tour.png"
PART = "<!-- {name}: made by tools/readme.py -->\n"
END = "<!-- end -->"


def table() -> str:
    """Return the table of the stored run as Markdown: method, length, gap, time."""
    from nco_bench.reports.frame.load import load_frame
    from nco_bench.reports.tables.table import Value, build_table

    made = build_table("main", load_frame(RECORDS))
    title = made.columns[1].group
    lines = [f"| {title} | {' | '.join(c.title for c in made.columns[1:])} |", "|---|---:|---:|---:|"]

    def text(cell: Value) -> str:
        return f"{cell.text}{getattr(cell, 'suffix', '')}"

    lines += [f"| {' | '.join(text(cell) for cell in row.cells)} |" for row in made.rows]
    return "\n".join(lines) + "\n"


def solvers() -> str:
    """Return what is ready, and the command that makes the rest ready, as Markdown."""
    from nco_bench.cards import cards
    from nco_bench.solvers.readiness import readiness

    infos = cards().values()
    states = {info.name: readiness(info) for info in infos if info.kind == "neural"}
    classical = [info.name for info in infos if info.kind != "neural"]
    lines = ["| | solvers | made ready by |", "|---|---|---|"]
    lines.append(
        f"| classical, baselines | {_names(classical)} | the extra `classical`, and what `nco-bench doctor` names |"
    )
    for state, how in (
        ("ready", "weights of ours ship"),
        ("pull", "`nco-bench weights pull NAME`: the authors' weights"),
        ("import", "`nco-bench weights import NAME FILE` (`glop`: its folder): the authors' files"),
        ("train", "`nco-bench train NAME`; `show NAME` prints the commands"),
    ):
        names = [name for name, known in states.items() if next(iter(known.states.values())) == state]
        lines.append(f"| {state} | {_names(names)} | {how} |")
    return "\n".join(lines) + "\n"


def _names(names: Iterable[str]) -> str:
    """Names in code; decoders, of which there are fourteen, as one."""
    shown = [name for name in names if not name.startswith("decoder-")]
    decoders = [name.removeprefix("decoder-") for name in names if name.startswith("decoder-")]
    if decoders:
        shown.append(f"decoder-{{{','.join(decoders)}}}")
    return ", ".join(f"`{name}`" for name in shown)


PARTS: dict[str, Callable[[], str]] = {"table": table, "solvers": solvers}


def filled(text: str) -> str:
    """Return a README with every part made anew."""
    for name, make in PARTS.items():
        begin = PART.format(name=name)
        pattern = re.compile(f"({re.escape(begin)}).*?({re.escape(END)})", re.DOTALL)
        text, count = pattern.subn(lambda found, make=make: found[1] + make() + found[2], text)
        if count != 1:
            raise SystemExit(f"README.md: expected {begin.strip()} once, found it {count} times")
    return text


def draw() -> None:
    """Draw the first instance's tour by the first neural row."""
    command = [
        sys.executable,
        "-m",
        "nco_bench",
        "plot",
        "tour",
        "--solver",
        "decoder-6x128",
        "--results",
    ]
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, str(RECORDS), "--data", "tsp100:count=128", "--out", str(PICTURE)], check=True)


def main(arguments: list[str]) -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; status 1 where it is not current"
    )
    parser.add_argument("--picture", action="store_true", help="draw the tour anew, too")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as empty:  # no weights of this machine, only those that ship
        os.environ["XDG_CACHE_HOME"] = empty
        before = README.read_text()
        after = filled(before)
    if given.check:
        if after != before:
            print("README.md is not current; run: python tools/readme.py", file=sys.stderr)
        return int(after != before)
    README.write_text(after)
    if given.picture:
        draw()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
