"""The log of a run as TensorBoard events, for those who watch training there (the optional extra ``tensorboard``)."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from nco_bench.errors import MissingDependencyError
from nco_bench.training.progress import Report


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
