"""What is added to every command once all are there: readable types, completion, three examples."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from nco_bench.cli.options import COMPLETING

TYPES = {
    "data": "DATASET", "solvers": "SOLVER", "solver_a": "SOLVER", "solver_b": "SOLVER", "reference": "SOLVER",
    "check": "SOLVER", "start": "WEIGHTS", "param": "KEY=VALUE", "config": "KEY=VALUE", "limit": "K|A-B",
    "time_limit": "SECONDS", "budget": "TIME", "results": "FOLDER", "instances": "FOLDER", "out": "FILE", "log": "FILE",
    "validation": "DATASET", "campaign": "FILE", "tensorboard": "FOLDER", "pack": "FOLDER", "unpack": "FOLDER",
    "from_format": "FORMAT", "to_format": "FORMAT", "bin_base": "LxW", "sizes": "N,N,...", "batch_size": "N|auto",
    "count": "N", "seed": "N", "repeats": "N", "jobs": "N", "shards": "N", "instance": "N", "length": "N", "step": "N",
    "coordinate_scale": "FACTOR", "scale": "FACTOR", "n": "N", "what": "KIND", "gap": "DEFINITION", "figure": "NUMBER",
    "table": "NAME", "reproduce table": "NUMBER", "reproduce scale": "SCALE", "reproduce limit": "K",
    "reproduce out": "FOLDER", "plot sightedness limit": "K", "plot repeats limit": "K", "calibrate instances": "N",
    "timeout": "SECONDS", "patience": "SECONDS", "instance_file": "INSTANCE", "solution_file": "SOLUTION",
    "runs": "RUN", "fixtures": "FILE", "run config": "FILE", "alias": "NAME=SHORT", "sources": "FOLDER",
    "site build out": "FOLDER",
}  # fmt: skip
"""What stands for a value in help, by a parameter's name, or by command and name; else the name itself in capitals."""


def dress(command: Any, words: tuple[str, ...] = ()) -> None:
    """Add to a command, and to those below it, what help and completion need.

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
