"""Every model against its authors' code: same weights, same instances, same choices, in one run.

    python benchmarks/official.py --checkouts FOLDER [MODEL ...] [--problem tsp] [--size N] [--decoding greedy]
    python benchmarks/official.py --page

FOLDER holds checkouts of the official repositories under their own names (``POMO``, ``bq-nco``, ...), each at the commit
that the model's card names; one that is missing is skipped with a line. Each side of a case has a process of its own with
one thread, so that none has the memory that another case left; both are timed in turns, theirs first and last; processor
time is compared, since other work on the machine moves wall time.
Results are kept in ``benchmarks/official/measured``, one file per model, and ``--page`` writes ``docs/speed.md`` from them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAMILIES = (
    "am",
    "pomo",
    "lehd",
    "bq",
    "sit",
    "elg",
    "invit",
    "dgl",
    "tropical",
    "difusco",
    "glop",
    "htsp",
    "sigd",
    "esf",
    "decoder",
    "pens",
    "attend2pack",
)
MEASURED = HERE / "official" / "measured"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(families())}; all if none")
    parser.add_argument("--checkouts", type=Path, default=Path("official"))
    parser.add_argument("--problem")
    parser.add_argument("--size", type=int)
    parser.add_argument("--decoding", help="as the table calls it; `update` is a step of training")
    parser.add_argument("--seconds", type=float, help="that the rounds of a case may take")
    parser.add_argument("--any-commit", action="store_true", help="take other commits than the pinned ones")
    parser.add_argument("--dry", action="store_true", help="print, do not keep")
    parser.add_argument("--page", action="store_true", help="only write docs/speed.md")
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.of:
        this_one(options)
        return
    if not options.page:
        for name in options.models or families():
            if name not in families():
                parser.error(f"no model {name!r}; there are {', '.join(families())}.")
            run(name, options)
    if not options.dry:
        from official.page import write_page

        write_page(MEASURED, HERE.parent / "docs" / "speed.md")


def families() -> list[str]:
    """Models that there is a file for."""
    return [name for name in FAMILIES if (HERE / "official" / f"{name}.py").is_file()]


def run(name: str, options: argparse.Namespace) -> None:
    """Measure the cases of one model, each in a process of its own, and keep what was found."""
    from official.checkouts import checkout_of

    family = importlib.import_module(f"official.{name}")
    try:
        checkout_of(name, family, options.checkouts, options.any_commit)
    except LookupError as error:
        print(f"{name}: skipped, {error}")
        return
    chosen: list[Any] = []
    for case in family.CASES:
        wanted = (
            (options.problem, case.problem), (options.size, case.size), (options.decoding, case.decoding)
        )  # fmt: skip
        if any(asked not in (None, is_) for asked, is_ in wanted):
            continue
        chosen.append(case)
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    for case in chosen:
        command = [sys.executable, __file__, name, "--checkouts", str(options.checkouts), "--of", case.key]
        command += ["--any-commit"] * options.any_commit
        command += [] if options.seconds is None else ["--seconds", str(options.seconds)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if not line.startswith('{"model"'):
                    continue  # what the authors' code prints
                row = json.loads(line)
                print(line_of(row), flush=True)
                if not options.dry:
                    keep(MEASURED / f"{name}.json", row)
        if child.returncode:
            print(f"{case.key}: failed, see above.", flush=True)


def this_one(options: argparse.Namespace) -> None:
    """Measure a case of one model, theirs in this process, and print it as JSON."""
    from official.checkouts import checkout_of
    from official.engine import SECONDS, measure, prepared

    name = options.models[0]
    family = importlib.import_module(f"official.{name}")
    checkout = checkout_of(name, family, options.checkouts, options.any_commit)
    seconds = SECONDS if options.seconds is None else options.seconds
    case = next(one for one in family.CASES if one.key == options.of)
    print(json.dumps(measure(case, partial(prepared, name, case, checkout), seconds)), flush=True)


def line_of(row: dict[str, Any]) -> str:
    """Return a row in one line."""
    floor = f"floor {row['floor_cpu']:.3f} s ({row['floor_cpu'] / row['ours_cpu']:.0%} reached)"
    cpu, wall = row["theirs_cpu"] / row["ours_cpu"], row["theirs_wall"] / row["ours_wall"]
    return (
        f"{row['model']:8} {row['problem']}{row['size']} x{row['batch']} {row['decoding']}: ours {row['ours_cpu']:.3f} s,"
        f" theirs {row['theirs_cpu']:.3f} s, {cpu:.2f}x (wall {wall:.2f}x);"
        f" {floor}; products {row['theirs_gflop']:.2f} to {row['ours_gflop']:.2f} GFLOP; same {row['same']}"
    )


def keep(file: Path, row: dict[str, Any]) -> None:
    """Put a row in place of an earlier one of its case."""
    rows = json.loads(file.read_text()) if file.is_file() else []
    keys = ("model", "problem", "size", "decoding")
    rows = [old for old in rows if any(old[key] != row[key] for key in keys)] + [row]
    rows.sort(key=lambda one: [one[key] for key in keys])
    file.parent.mkdir(exist_ok=True)
    file.write_text("[\n" + ",\n".join(json.dumps(one) for one in rows) + "\n]\n")


if __name__ == "__main__":
    main()
