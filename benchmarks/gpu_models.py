"""
Every network on a GPU: whether it answers as on the CPU, with recorded steps and lower precisions too, and how fast.

    python benchmarks/gpu_models.py [--seconds 100] [--out gpu_models.jsonl] [--only A B C D E] [--device cuda] [--tiny]

A. Correctness: the share of equal solutions, and the mean costs, on the CPU and on the device. Rounding differs between
   them, so some solutions may; `BAD` is an invalid solution, or mean costs that are more than 0.5 % apart.
B. `--param graphs=on` against off, on the device: the same, and seconds (the median of 3 solves after one).
C. tf32 and bf16 against fp32, on the device: the same, and seconds.
D. Seconds on 1,000 x TSP-100, the CPU's once, or extrapolated (`~`) from 32 instances where they would be above 5 s.
E. PENS through compiled FlexAttention against blocks: compiling takes long, so it is last.

A row that fails is told with its exception, and the others go on. `--seconds` is for all: no row starts later, sections have
shares of it, and what is left is named. `--out` gets a JSON line per row at once; `--resume` leaves out rows that stand
there. Once the device itself is lost, the script ends with status 3: `--resume` goes on in a new process. The CPU's answers
of A are kept in the file of `--cpu` and read from it: `--device cpu --only A --cpu FILE` makes it beforehand, elsewhere.
Weights are those that ship, untrained (`random`) for other networks. `--device cpu --tiny` tries the script out.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from gpu_cases import CASES, LARGER, THOUSAND, Answer, Case, answer, compared, middle, solved, solver_of

from nco_bench.errors import NcoBenchError
from nco_bench.nn.device import device_name, on_cpu, peak_memory_mb, reset_peak_memory
from nco_bench.runs.devices import resolve_device

SHARES = {"A": 0.5, "B": 0.65, "C": 0.75, "D": 1.0, "E": 1.0}
"""Part of the time by whose end a section's last row must have begun; what is left of it begins after the others."""
ROW_LIMIT = {"A": 20.0, "B": 40.0, "C": 40.0, "D": 60.0, "E": 200.0}
"""Seconds after which a row is given up."""
FEW = 32
LONG = 5.0


@dataclass(frozen=True)
class Row:
    """A line of the table; `measure` returns its facts."""

    section: str
    label: str
    measure: Callable[[], dict[str, Any]]


def answer_of_cpu(case: Case, kept: Path | None) -> Answer:
    """The CPU's answer, from a file that holds it, or else written to it."""
    label = f"{case.label} {case.params}"
    known = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else {}
    if label in known:
        facts = known[label]
        solutions = [np.array(one) for one in facts["solutions"]]
        costs = np.array(facts["costs"], dtype=np.float64)
        return Answer(solutions, costs, facts["wrong"], facts["weights"], facts["seconds"])
    found = answer(case, "cpu")
    if kept is not None:
        known[label] = vars(found) | {"costs": found.costs.tolist()}
        known[label]["solutions"] = [one.tolist() for one in found.solutions]
        kept.write_text(json.dumps(known), encoding="utf-8")
    return found


def correct(case: Case, device: str, kept: Path | None) -> dict[str, Any]:
    """Row of A."""
    here = answer_of_cpu(case, kept)
    there = here if on_cpu(device) else answer(case, device)
    return {**compared(here, there), "cpu_s": middle(here), "s": middle(there)}


def recorded(case: Case, device: str) -> dict[str, Any]:
    """Row of B."""
    plain = answer(case, device, timed=3)
    graphs = answer(replace(case, params={"graphs": "on"}), device, timed=3)
    facts = compared(plain, graphs)
    facts |= {
        "first_s": graphs.first,
        "off_s": middle(plain),
        "s": middle(graphs),
        "times": round(middle(plain) / middle(graphs), 2),
    }
    return facts | {"recordings": graphs.recordings, "replays": graphs.replays}


@cache
def exact(name: str, data: str, device: str) -> Answer:
    """The answer in float32."""
    return answer(Case(name, data, data, "greedy"), device, timed=3)


def lowered(case: Case, device: str, precision: str) -> dict[str, Any]:
    """Row of C."""
    plain = exact(case.name, case.data, device)
    low = answer(replace(case, params={"precision": precision}), device, timed=3)
    facts = compared(plain, low) | {"first_s": low.first, "fp32_s": middle(plain), "s": middle(low)}
    return facts | {"times": round(middle(plain) / middle(low), 2)}


def fast(case: Case, device: str, few: int) -> dict[str, Any]:
    """Row of D."""
    reset_peak_memory(device)
    there = answer(case, device, timed=3)
    facts: dict[str, Any] = {"status": "BAD" if there.wrong else "ok", "weights": there.weights}
    facts |= {"cost": round(float(there.costs.mean()), 6), "s": middle(there), "mib": peak_memory_mb(device)}
    count = len(there.solutions)
    with solver_of(replace(case, data=case.data.partition(":")[0] + f":count={few}"), "cpu") as (
        solver,
        data,
    ):
        seconds = solved(solver, data, "cpu")[1] * count / few
    guessed = seconds >= LONG
    if not guessed:
        seconds = middle(answer(case, "cpu"))
    facts |= {"cpu_s": round(seconds, 3), "extrapolated": guessed, "times": round(seconds / middle(there), 1)}
    return facts


def flexible(case: Case, device: str) -> dict[str, Any]:
    """Row of E."""
    plain = answer(case, device, timed=1)
    flex = answer(replace(case, params={"attention": "flex"}), device, timed=1)
    return compared(plain, flex) | {"blocks_s": middle(plain), "s": middle(flex)}


def rows(device: str, tiny: bool, only: Sequence[str], kept: Path | None) -> list[Row]:
    """All rows of the sections that are asked for."""

    def sized(case: Case) -> Case:
        return replace(case, data=case.tiny) if tiny else case

    def row(
        section: str, case: Case, measure: Callable[..., dict[str, Any]], *more: Any, note: str = ""
    ) -> Row:
        case = sized(case)
        return Row(section, f"{case.label}{note}", lambda: measure(case, device, *more))

    made = [row("A", case, correct, kept) for case in CASES]
    made += [
        row("B", LARGER[name], recorded) for name in ("decoder-6x128", "pens-a", "sit", "lehd", "am", "dgl")
    ]
    made += [
        row("C", LARGER[name], lowered, precision, note=f" {precision}")
        for name in ("decoder-6x128", "pens-a")
        for precision in ("tf32", "bf16")
    ]
    made += [row("D", case, fast, 2 if tiny else FEW) for case in THOUSAND]
    made.append(row("E", replace(LARGER["pens-a"], data="tsp100:count=16"), flexible, note=" flex"))
    return [one for one in made if one.section in only]


class RowLimitError(Exception):
    """A row took too long."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Give up after some seconds, between two steps of Python."""

    def stop(_: int, frame: FrameType | None) -> None:
        while frame is not None:
            if "numba" in frame.f_code.co_filename or "llvmlite" in frame.f_code.co_filename:
                signal.setitimer(signal.ITIMER_REAL, 1.0)  # a compiler that is interrupted stays broken
                return
            frame = frame.f_back
        raise RowLimitError(f"given up after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def measured(row: Row) -> dict[str, Any]:
    """The facts of a row, or its exception."""
    begun = time.perf_counter()
    try:
        with limited(ROW_LIMIT[row.section]):
            facts = row.measure()
    except Exception as error:
        lines = str(error).splitlines() or [""]
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        root = f"{Path(__file__).resolve().parents[1]}/"
        places = [f"{frame.filename.removeprefix(root)}:{frame.lineno} {frame.name}" for frame in frames]
        facts = {"status": "error", "error": f"{type(error).__name__}: {lines[0]}", "frames": places}
    took = round(time.perf_counter() - begun, 2)
    return {"section": row.section, "row": row.label, **facts, "row_s": took}


def is_lost(device: str) -> bool:
    """Whether the device refuses everything, as CUDA does after an illegal access."""
    try:
        return float(torch.ones(2, device=device).sum()) != 2.0
    except Exception:
        return True


def line_of(facts: Mapping[str, Any]) -> str:
    """A row of the table."""
    head = f"{facts['section']} {facts['status']:5} {facts['row']:46}"
    if facts["status"] == "error":
        return f"{head} {facts['error'][:160]} @ {facts['frames'][-1]}"
    left_out = ("section", "status", "row", "frames")
    told = {key: "~" if value is True else value for key, value in facts.items() if key not in left_out}
    return head + " ".join(f"{key}={value}" for key, value in told.items() if value not in (None, False))


def environment(device: str) -> dict[str, Any]:
    return {
        "device": device_name(device) or "cpu",
        "torch": torch.__version__,
        "cuda_toolkit": torch.version.cuda,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
    }


def tell(facts: Mapping[str, Any], out: Path | None) -> None:
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(facts, default=str) + "\n")


def standing(out: Path) -> set[tuple[str, str]]:
    """Rows that a file holds."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    found = [json.loads(line) for line in lines]
    return {(facts["section"], facts["row"]) for facts in found if "row" in facts}


def work(
    todo: Sequence[Row], device: str, seconds: float, out: Path | None
) -> tuple[list[str], list[Row], bool]:
    """Measure rows until the time is over; return statuses, the rows that are left, and whether the device is lost."""
    begun = time.perf_counter()
    statuses: list[str] = []
    later: list[Row] = []
    rest = list(todo)
    for last in (False, True):
        while rest:
            passed = (time.perf_counter() - begun) / seconds
            row = rest.pop(0)
            if passed > (1.0 if last else SHARES[row.section]):
                later.append(row)
                continue
            facts = measured(row)
            tell(facts, out)
            print(line_of(facts), flush=True)
            statuses.append(str(facts["status"]))
            if facts["status"] == "error" and is_lost(device):
                return statuses, [*later, *rest], True
        rest, later = later, []
    return statuses, rest, False


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--cpu", type=Path)
    parser.add_argument("--only", nargs="+", choices=tuple(SHARES), default=tuple(SHARES))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    try:
        device = resolve_device(given.device)
    except NcoBenchError as error:
        raise SystemExit(f"gpu_models.py: {error}") from None
    told = standing(given.out) if given.resume and given.out is not None else set()
    todo = [
        row for row in rows(device, given.tiny, given.only, given.cpu) if (row.section, row.label) not in told
    ]
    tell(environment(device), given.out)
    print(" ".join(f"{key}={value}" for key, value in environment(device).items()), flush=True)
    statuses, left, lost = work(todo, device, given.seconds, given.out)
    print(", ".join(f"{statuses.count(one)} {one}" for one in ("ok", "BAD", "error")), flush=True)
    for row in left:
        print(f"left: {row.section} {row.label}", flush=True)
    if lost:
        print("The device is lost; go on with --resume.", flush=True)
        raise SystemExit(3)


if __name__ == "__main__":
    main()
