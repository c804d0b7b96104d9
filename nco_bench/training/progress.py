"""What a run says: a bar on a terminal, plain lines elsewhere, and a CSV file that a resumed run extends."""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO

from nco_bench.training.checkpoint import write_atomically

COLUMNS = ("step", "samples", "seconds", "loss", "grad_norm", "samples_per_s", "lr", "validation_gap")


class Report(Protocol):
    """Takes what the loop has to tell."""

    def line(self, values: dict[str, Any]) -> None:
        """Take one line of the log: keys are among `COLUMNS`, or ``validation_...`` for what is no gap."""

    def tick(self, fraction: float) -> None:
        """Take the share that is done, after every update."""


class Silent:
    """Tells nothing."""

    def line(self, values: dict[str, Any]) -> None:
        """Ignore a line of the log."""

    def tick(self, fraction: float) -> None:
        """Ignore an update."""


class Lines:
    """Plain lines for pipes and log files.

    Parameters
    ----------
    stream
        Where to; stderr by default.
    every_s
        Shortest time between two lines without a validation gap, in seconds of training.
    """

    def __init__(self, stream: TextIO | None = None, every_s: float = 30.0) -> None:
        self.stream = stream or sys.stderr
        self.every_s = every_s
        self._told = -math.inf

    def line(self, values: dict[str, Any]) -> None:
        """Print a line of the log, unless the last one is too recent."""
        validation = _validation(values)
        if not validation and values["seconds"] - self._told < self.every_s:
            return
        self._told = values["seconds"]
        what = validation or _measures(values)
        head = f"step {values['step']:,}  {values['seconds'] / 60:.1f} min  {values['samples']:,} samples"
        print(f"{head}  {what}", file=self.stream, flush=True)

    def tick(self, fraction: float) -> None:
        """Print nothing per update."""


def _validation(values: dict[str, Any]) -> str:
    """Name what was measured on held-out instances, empty for other lines."""
    if values.get("validation_gap") is not None:
        return f"validation gap {values['validation_gap']:.3f} %"
    named = [
        (key, value) for key, value in values.items() if key.startswith("validation_") and value is not None
    ]
    return ", ".join(f"{key.replace('_', ' ')} {value:.5g}" for key, value in named)


def _measures(values: dict[str, Any]) -> str:
    if "loss" not in values:  # a validation that measures no gap
        return "  ".join(f"{k} {v:.4f}" for k, v in values.items() if k not in ("step", "samples", "seconds"))
    return f"loss {values['loss']:.4f}  gradient {values['grad_norm']:.2f}  {values['samples_per_s']:,.0f} samples/s"


class Bar:
    """A rich progress bar on stderr with loss and validation gap; use as a context manager."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>5.1f} %"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(title, total=1.0, told="")
        self._gap = ""
        self._last = ""

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def line(self, values: dict[str, Any]) -> None:
        """Show the latest measures."""
        if validation := _validation(values):
            self._gap = f"  {validation}"
        else:
            self._last = _measures(values)
        self._progress.update(self._task, told=self._last + self._gap)

    def tick(self, fraction: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=fraction)


def write_log(path: Path, history: Sequence[dict[str, Any]]) -> None:
    """Write the whole log as CSV, in one step.

    The history is part of the checkpoint, so a resumed run writes the same file as an uninterrupted one.
    """
    text = io.StringIO()
    others = sorted({key for line in history for key in line if key.startswith("validation_")} - set(COLUMNS))
    writer = csv.DictWriter(text, [*COLUMNS, *others], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for line in history:
        if "changed" not in line:
            writer.writerow({key: _rounded(value) for key, value in line.items()})
    write_atomically(path, text.getvalue().encode())


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
