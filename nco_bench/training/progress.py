"""What a run says: a bar on a terminal, plain lines elsewhere, TensorBoard events for those who watch there, and a CSV file
that a resumed run extends.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TextIO

from nco_bench.errors import MissingDependencyError
from nco_bench.files import write
from nco_bench.training.learner import GAP, said

COLUMNS = ("step", "samples", "seconds", "loss", "grad_norm", "samples_per_s", "lr")
"""Of every log; what the course measures on held-out instances follows under its own name."""

NO_MEASURES = {*COLUMNS, "unit", "changed"}


class Report(Protocol):
    """Takes what the loop has to tell."""

    def line(self, values: dict[str, Any]) -> None:
        """Take one line of the log: keys are among `COLUMNS`, or a measure's name beside its ``unit``."""

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
        Shortest time between two lines without a validation, in seconds of training.
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
    """Say what was measured on held-out instances, empty for other lines."""
    unit = values.get("unit", "")
    return ", ".join(said(name, values[name], unit) for name in measures_of([values]))


def measures_of(history: Sequence[dict[str, Any]]) -> list[str]:
    """Return the names of what the lines of a log measure on held-out instances, in order of appearance."""
    names = (key for line in history if "changed" not in line for key in line if line[key] is not None)
    return list(dict.fromkeys(name for name in names if name not in NO_MEASURES))


def _measures(values: dict[str, Any]) -> str:
    return f"loss {values['loss']:.4f}  gradient {values['grad_norm']:.2f}  {values['samples_per_s']:,.0f} samples/s"


class Bar:
    """A rich progress bar on stderr with loss and validation; use as a context manager."""

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
        self._measured = ""
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
            self._measured = f"  {validation}"
        else:
            self._last = _measures(values)
        self._progress.update(self._task, told=self._last + self._measured)

    def tick(self, fraction: float) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=fraction)


class Board:
    """Passes everything on to another report, and writes each number of the log as an event; use as a context manager.

    Parameters
    ----------
    folder
        Where events go.
    report
        The report that goes on as it was.

    Raises
    ------
    MissingDependencyError
        Without the package ``tensorboard``.
    """

    def __init__(self, folder: Path, report: Report) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingDependencyError(
                "--tensorboard needs the package tensorboard: pip install 'nco-bench[tensorboard]'."
            ) from None
        self.report = report
        self._writer = SummaryWriter(str(folder))

    def __enter__(self) -> Board:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def line(self, values: dict[str, Any]) -> None:
        """Write a line of the log."""
        for key, value in values.items():
            if key != "step" and isinstance(value, int | float):
                self._writer.add_scalar(f"train/{key}", value, values["step"])
        self.report.line(values)

    def tick(self, fraction: float) -> None:
        """Pass the share on."""
        self.report.tick(fraction)


def write_log(path: Path, history: Sequence[dict[str, Any]]) -> None:
    """Write the whole log as CSV, in one step.

    The history is part of the checkpoint, so a resumed run writes the same file as an uninterrupted one.
    """
    text = io.StringIO()
    measures = measures_of(history) or [GAP]  # a log always has a column for one
    writer = csv.DictWriter(text, [*COLUMNS, *measures], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for line in history:
        if "changed" not in line:
            writer.writerow({key: _rounded(value) for key, value in line.items()})
    write(path, text.getvalue())


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
