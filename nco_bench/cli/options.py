"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nco_bench.cli.parsing import positive_seconds

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")
]
Results = Annotated[
    Path,
    typer.Option(
        "--results",
        envvar="NCO_BENCH_RESULTS",
        help="Folder of all runs, or an archive.",
        show_default=True,
    ),
]
ResultFolders = Annotated[
    list[Path],
    typer.Option(
        "--results",
        envvar="NCO_BENCH_RESULTS",
        help="Folder of all runs, or an archive; repeatable.",
        show_default=True,
    ),
]
Instances = Annotated[
    Path,
    typer.Option("--instances", envvar="NCO_BENCH_INSTANCES", help="Folder of datasets.", show_default=True),
]
Seed = Annotated[
    int, typer.Option("--seed", help="Seed; the same seed gives the same result.", min=0, max=2**32 - 1)
]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes at once.", min=1)]
AllJobs = Annotated[int | None, typer.Option("--jobs", help="Processes at once; default: all cores.", min=1)]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", help="Seconds per instance.", callback=positive_seconds)
]
Executor = Annotated[str, typer.Option("--executor", help="local or slurm.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", help="Profile for --executor slurm: its name, or cluster.toml.")
]
SlurmSettings = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="KEY=VALUE over the profile: partition, time, gpus, ...; repeatable."),
]
Detach = Annotated[
    bool,
    typer.Option("--detach", help="Return once the jobs are submitted; see 'runs status' and 'runs wait'."),
]

DEFAULT_RESULTS = Path("results/runs")
DEFAULT_FOLDERS = [DEFAULT_RESULTS]
DEFAULT_INSTANCES = Path("instances")

COMPLETING = "_NCO_BENCH_COMPLETE"
"""Set by the shell's script when it asks for completions, to ``complete_bash`` and so on."""
