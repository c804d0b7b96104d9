"""Options that several commands share, what reads the values that Typer cannot, and what all of them need for help."""

from __future__ import annotations

import math
import os
import re
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from nco_bench.cli import COMPLETING
from nco_bench.errors import BadInputError
from nco_bench.files import is_in_a_file, leads_nowhere
from nco_bench.settings import pairs


def positive_seconds(value: float | None) -> float | None:
    """Check ``--time-limit`` as an option's callback: a positive, finite number of seconds.

    Raises
    ------
    BadInputError
        For anything else; zero would end a solver before it starts, and no clock waits for ever.
    """
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise BadInputError(
            f"--time-limit {value:g}: expected a positive number of seconds; leave it out for no limit."
        )
    return value


Place = TypeVar("Place", Path, list[Path])
"""Value of an option that takes a folder, or several."""


def existing_or_new(context: typer.Context, parameter: typer.CallbackParam, value: Place) -> Place:
    """Check folders of ``--results`` and ``--instances`` as the options' callback: no link that leads nowhere.

    Such a folder is neither there nor can it be made: readers would call it absent, and writers say that it exists.

    Raises
    ------
    BadInputError
        With the link and what it leads to.
    """
    for folder in _folders(context, value):
        if cause := leads_nowhere(folder):
            raise BadInputError(
                f"{parameter.opts[0]} {folder}: {cause}; mend the link, or name another folder."
            )
    return value


def results_place(context: typer.Context, parameter: typer.CallbackParam, value: Place) -> Place:
    """Check ``--results`` as its callback: a folder, an archive, or a folder that can be made.

    Raises
    ------
    BadInputError
        For any other file, also among the folders above, and as `existing_or_new`.
    """
    existing_or_new(context, parameter, value)
    for folder in _folders(context, value):
        if folder.is_file() and folder.suffix != ".parquet":
            raise BadInputError(
                f"--results {folder}: is neither a folder of runs nor an archive (.parquet); correct the name."
            )
        if cause := is_in_a_file(folder):
            raise BadInputError(f"--results {folder}: cannot be a folder ({cause}); correct the name.")
    return value


def instances_place(context: typer.Context, parameter: typer.CallbackParam, value: Path) -> Path:
    """Check ``--instances`` as its callback: a folder, or one that can be made; raises as `results_place`."""
    existing_or_new(context, parameter, value)
    for folder in _folders(context, value):
        if cause := is_in_a_file(folder / "datasets"):
            raise BadInputError(f"--instances {folder}: cannot be a folder ({cause}); correct the name.")
    return value


def _folders(context: typer.Context, value: Path | list[Path]) -> list[Path]:
    """List what is to be checked: nothing while a shell completes."""
    if context.resilient_parsing:
        return []
    return value if isinstance(value, list) else [value]


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
        callback=results_place,
    ),
]
ResultFolders = Annotated[
    list[Path],
    typer.Option(
        "--results",
        envvar="NCO_BENCH_RESULTS",
        help="Folder of all runs, or an archive; repeatable.",
        show_default=True,
        callback=results_place,
    ),
]
ResultsFolder = Annotated[
    Path,
    typer.Option(
        "--results",
        envvar="NCO_BENCH_RESULTS",
        help="Folder of all runs.",
        show_default=True,
        callback=existing_or_new,
    ),
]
"""Of commands that bring or remove runs, or look for those of jobs: an archive holds none of these."""
Instances = Annotated[
    Path,
    typer.Option(
        "--instances",
        envvar="NCO_BENCH_INSTANCES",
        help="Folder of datasets.",
        show_default=True,
        callback=instances_place,
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", help="Seed; the same seed gives the same result.", min=0, max=2**32 - 1)
]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes at once.", min=1)]
AllJobs = Annotated[int | None, typer.Option("--jobs", help="Processes at once; default: all cores.", min=1)]
Limit = Annotated[str | None, typer.Option("--limit", help="First K instances, or A-B counted from 1.")]
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


def key_values(option: str, items: list[str] | None) -> dict[str, str]:
    """Parse repeated ``KEY=VALUE`` options.

    Raises
    ------
    BadInputError
        For an item without ``=``, or a key that is given twice.
    """
    return pairs(option, items or [])


def parse_aliases(items: list[str] | None) -> dict[str, str]:
    """Parse ``--alias NAME=SHORT``; the last ``=`` divides, since names hold some.

    Raises
    ------
    BadInputError
        For an item without ``=``, or a name that is given twice.
    """
    out: dict[str, str] = {}
    for item in items or []:
        name, equals, short = item.rpartition("=")
        if not equals or not name or not short.strip():
            raise BadInputError(f"--alias {item!r}: expected NAME=SHORT, for instance tsp100:count=16=T100.")
        if name in out:
            raise BadInputError(f"--alias {item!r}: {name} is given twice; keep one.")
        out[name] = short
    return out


def parse_duration(text: str | None) -> float | None:
    """Parse a wall time such as ``90s``, ``9m`` or ``2h`` to seconds.

    Raises
    ------
    BadInputError
        For anything else.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if not match or float(match[1]) <= 0:
        raise BadInputError(f"--budget {text!r}: expected a positive number with s, m or h, for instance 9m.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def one_of(**flags: bool) -> str | None:
    """Return the name of the one flag that is set, or None.

    Raises
    ------
    BadInputError
        When several are set.
    """
    given = [name for name, value in flags.items() if value]
    if len(given) > 1:
        raise BadInputError(f"--{given[0]} and --{given[1]} exclude each other; give one of them.")
    return given[0] if given else None


FORMS = {".tex": "latex", ".md": "markdown", ".csv": "csv", ".html": "html", ".json": "json", ".txt": None}
"""Ending of a report's file to its format; None is plain text."""


def form_of(out: Path, asked: str | None = None) -> str | None:
    """Return the format that was asked for, or that the ending of a report's file stands for.

    Raises
    ------
    BadInputError
        For an ending that stands for none, or for another than was asked for; ``.txt`` holds any.
    """
    meant = FORMS.get(out.suffix)
    if asked is not None:
        if meant not in (None, asked):
            raise BadInputError(
                f"--out {out}: the ending stands for {meant}, and {asked} was asked for; change one of them."
            )
        return asked
    if out.suffix not in FORMS:
        raise BadInputError(
            f"--out {out}: end the name in {', '.join(FORMS)}, or name a format, such as --latex."
        )
    return FORMS[out.suffix]


def whole_numbers(option: str, text: str, *, least: int) -> list[int]:
    """Parse a comma-separated list of whole numbers.

    Raises
    ------
    BadInputError
        For anything else, or a number below `least`.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(_is_whole(part) and int(part) >= least for part in parts):
        raise BadInputError(f"{option} {text!r}: expected whole numbers >= {least}, separated by commas.")
    return [int(part) for part in parts]


def factors(option: str, text: str) -> list[float]:
    """Parse ``FROM:TO:STEP`` to factors from the first to the second.

    Raises
    ------
    BadInputError
        For anything but three positive numbers that make 3 to 1,000 factors.
    """
    try:
        first, last, step = (float(part) for part in text.split(":"))
        count = round((last - first) / step) + 1 if step > 0 else 0
    except (ValueError, OverflowError):
        first, count = 0.0, 0
    if not (math.isfinite(first) and first > 0 and 3 <= count <= 1000):
        raise BadInputError(
            f"{option} {text!r}: expected FROM:TO:STEP with 3 to 1,000 positive factors, for instance 0.8:3:0.05."
        )
    return [round(first + k * step, 6) for k in range(count) if first + k * step <= last + 1e-9]


def _is_whole(text: str) -> bool:
    """Tell whether `int` reads the text as a number >= 0; `str.isdigit` alone also takes the superscripts."""
    return text.isascii() and text.isdigit()


TYPES = {
    "data": "DATASET", "solvers": "SOLVER", "solver_a": "SOLVER", "solver_b": "SOLVER", "reference": "SOLVER",
    "check": "SOLVER", "start": "WEIGHTS", "param": "KEY=VALUE", "config": "KEY=VALUE", "limit": "K|A-B",
    "time_limit": "SECONDS", "budget": "TIME", "results": "FOLDER", "instances": "FOLDER", "out": "FILE", "log": "FILE",
    "validation": "DATASET", "campaign": "FILE", "tensorboard": "FOLDER", "pack": "FOLDER", "unpack": "FOLDER",
    "from_format": "FORMAT", "to_format": "FORMAT", "bin_base": "LxW", "sizes": "N,N,...", "batch_size": "N|auto",
    "count": "N", "seed": "N", "repeats": "N", "jobs": "N", "shards": "N", "instance": "N", "length": "N", "step": "N",
    "coordinate_scale": "FACTOR", "scale": "FACTOR", "n": "N", "what": "KIND", "gap": "DEFINITION", "figure": "NUMBER",
    "table": "NAME", "reproduce table": "NUMBER", "reproduce scale": "SCALE", "reproduce limit": "K", "reproduce least": "K",
    "reproduce out": "FOLDER", "plot sightedness limit": "K", "plot repeats limit": "K", "calibrate instances": "N",
    "timeout": "SECONDS", "patience": "SECONDS", "instance_file": "INSTANCE", "solution_file": "SOLUTION",
    "runs": "RUN", "fixtures": "FILE", "run config": "FILE", "alias": "NAME=SHORT", "sources": "FOLDER",
    "site build out": "FOLDER", "solutions_up_to": "N",
}  # fmt: skip
"""What stands for a value in help, by a parameter's name, or by command and name; else the name itself in capitals."""


def dress(command: Any, words: tuple[str, ...] = ()) -> None:
    """Add to a command, and to those below it, what help and completion need: readable types, completion, examples.

    Parameters
    ----------
    command
        Of click, or of the copy of it that newer Typer brings.
    words
        The command's words without the program's name.
    """
    path = " ".join(words)
    command.format_epilog = partial(_examples, path, command.format_epilog)
    for parameter in command.params:
        if not getattr(parameter, "is_flag", False):
            typed = TYPES.get(f"{path} {parameter.name}") or TYPES.get(parameter.name)
            parameter.metavar = parameter.metavar or typed or parameter.name.upper().replace("_", "-")
            if parameter.param_type_name == "argument":  # its name stands there already
                parameter.display_type_rich = lambda **_: ""
        if COMPLETING in os.environ:
            from nco_bench.cli.completing import completer

            found = completer(path, parameter.name)
            if found is not None:
                parameter._custom_shell_complete = found
    for name, below in getattr(command, "commands", {}).items():
        dress(below, (*words, name))


def _examples(path: str, own: Any, context: Any, formatter: Any) -> None:
    """Write the examples of a command at the end of its help, which is when they are read."""
    from nco_bench.cli.examples import EXAMPLES

    if path in EXAMPLES:
        lines = "\n".join(f"  {line}" for line in EXAMPLES[path])
        context.command.epilog = f"\b\nExamples:\n{lines}"
    own(context, formatter)
