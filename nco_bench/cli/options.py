"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
Results = Annotated[
    Path, typer.Option("--results", envvar="NCO_BENCH_RESULTS", help="Folder of all runs.", show_default=True)
]
Instances = Annotated[
    Path,
    typer.Option("--instances", envvar="NCO_BENCH_INSTANCES", help="Folder of datasets.", show_default=True),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed; the same seed gives the same result.", min=0)]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes at once.", min=1)]
TimeLimit = Annotated[float | None, typer.Option("--time-limit", help="Seconds per instance.", min=0.0)]

DEFAULT_RESULTS = Path("results/runs")
DEFAULT_INSTANCES = Path("instances")
