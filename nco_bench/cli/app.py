"""The command line: parse, call one function, print. No logic here, and no heavy import before a command runs.

One place turns errors into exit statuses: 0 done, 1 some instances failed, 2 the user's mistake (one line on
stderr), 130 interrupted.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import select
import shlex
import signal
import sys
import warnings
from contextlib import nullcontext
from functools import cache
from typing import Annotated, Any

import typer

from nco_bench import __version__
from nco_bench.cli import COMPLETING
from nco_bench.cli.options import dress
from nco_bench.interrupts import insist
from nco_bench.progress import heartbeat

COMMANDS = (
    "generate", "run", "report", "compare", "runs", "verify", "reference", "train", "list", "show", "score", "parity",
    "convert", "instances", "weights", "calibrate", "plot", "test-solver", "doctor", "reproduce", "site",
    "cluster",
)  # fmt: skip
"""Each is added by the module of `nco_bench.cli` that bears its name; they import nothing heavy at the top."""

MODULES = {"list": "listing", "test-solver": "test_solver"}
"""Of commands whose names cannot be a module's, or would hide a built-in function."""


def _print_version(value: bool) -> None:
    if value:
        from nco_bench.runs.environment import code_revision

        found = code_revision()
        commit = (
            f" (commit {found['commit'][:12]}{', with changes' if found['dirty'] else ''})" if found else ""
        )
        typer.echo(f"nco-bench {__version__}{commit}")
        raise typer.Exit


INTERRUPTED = 130
"""Exit status; newer Typer ends a command so itself."""

GOES_ON = ("run", "reference", "reproduce", "weights pull", "instances pull", "runs merge")
"""Commands that find what an interrupted start of theirs has left."""

MENDABLE = {
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EACCES: "choose another place, or change its permissions",
    errno.EPERM: "choose another place, or change its permissions",
}
"""What the system refuses to look at, and what to do; whoever opens a file says more of it."""

FOLDERS = ("--results", "--instances", "--out")
"""Options that take a place."""

ONLY_READS = (
    "verify", "parity", "convert", "compare", "score", "list", "show", "doctor", "test-solver", "weights verify",
    "instances verify", "cluster check", "runs status",
)  # fmt: skip
"""Commands that write nothing, or one file at their end."""

EXTRA_OF = {
    "torch": "neural",
    "numba": "classical",
    "matplotlib": "plots",
    "bokeh": "html",
    "submitit": "slurm",
    "tensorboard": "tensorboard",
    "ortools": "ortools",
    "pyarrow": "parquet",
}
"""Optional packages that commands import, with the extra that installs each."""


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Generate, run and report for neural combinatorial optimisation."""


CLICK_ERROR: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException" and issubclass(c, Exception)
)
"""Base of usage errors; newer Typer brings its own copy of click, so it is found through Typer."""


@cache
def build(commands: tuple[str, ...] = COMMANDS) -> typer.Typer:
    """Return the application with some of its commands."""
    app = typer.Typer(
        name="nco-bench",
        help="Generate instances, run published models and classical solvers on them, write the tables of the papers.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in commands:
        importlib.import_module(f"nco_bench.cli.{MODULES.get(name, name)}").add_to(app)
    return app


def commands_of(arguments: list[str]) -> tuple[str, ...]:
    """Return the commands that a line needs: its own, or all where it names none or a shell asks what there is."""
    own = arguments[0] if arguments else ""
    return (own,) if own in COMMANDS and COMPLETING not in os.environ else COMMANDS


def only_shows(arguments: list[str]) -> bool:
    """Whether a line names no command: it asks for help on the whole or the version, or is wrong."""
    return COMPLETING not in os.environ and not {*arguments} & {*COMMANDS}


@cache
def command(commands: tuple[str, ...] = COMMANDS, *, shown: bool = False) -> Any:
    """Return the command line as click's command, with readable types, completion and examples.

    With `shown` commands have no options, see `nco_bench.cli.outline`.
    """
    app = build(commands)
    if shown:
        from nco_bench.cli.outline import outline

        app = outline(app)
    whole = typer.main.get_command(app)
    dress(whole)
    refuse_repeats(whole)
    return whole


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    insist(signal.SIGINT, KeyboardInterrupt)
    prepare_streams()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        status = run(given)
    except KeyboardInterrupt:  # before or after the command itself
        status = INTERRUPTED
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left to do is Python's own end
    # A Ctrl-C within a text that Python ran (a dataclass is made of one) is remembered: `python -m` would end by the signal,
    # whatever the status, had not another such text ended well since.
    eval("0")
    sys.exit(status)


def prepare_streams() -> None:
    """Let closed standard input and error be the null device, and let output in an old encoding miss what it lacks.

    The next file that is opened would else stand in the place of a closed one, and be read or written for it. A table's
    dashes and Greek letters become question marks in ASCII; a run must not end over them.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_null(0, os.O_RDONLY))
    if sys.stderr is None:
        sys.stderr = os.fdopen(_null(2, os.O_WRONLY), "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def _null(number: int, flags: int) -> int:
    """Open the null device under a file's number."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return number


def run(arguments: list[str]) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments
        Without the program's name.

    Returns
    -------
    int
        Exit status.
    """
    from nco_bench.errors import DEBUG

    if "--debug" in arguments:
        os.environ[DEBUG] = "1"
        arguments = [argument for argument in arguments if argument != "--debug"]
    warnings.showwarning = _show_warning
    if COMPLETING in os.environ:
        from nco_bench.cli.completing import rejoin_words

        rejoin_words()
    status = _run(arguments)
    if status == INTERRUPTED:
        print(_interrupted(arguments), file=sys.stderr)
    return status


def _run(arguments: list[str]) -> int:
    from nco_bench.errors import MOST_SHOWN, NcoBenchError, debugging, shown

    try:
        with heartbeat(" ".join(arguments[:1])) if arguments[:1] != ["train"] else nullcontext():
            _refuse_bytes(arguments)
            _refuse_empty(arguments)
            asked = command(commands_of(arguments), shown=only_shows(arguments))
            status = asked.main(arguments, prog_name="nco-bench", standalone_mode=False)
            if sys.stdout is not None:
                sys.stdout.flush()  # what it cannot take is to be said here, not by Python's own end
    except NcoBenchError as error:
        if debugging():
            raise
        if not _another_tells(arguments):
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRA_OF or debugging():
            raise
        remedy = f"pip install 'nco-bench[{EXTRA_OF[module]}]'"
        print(f"error: {module} is not installed, and this needs it: {remedy}", file=sys.stderr)
        return 2
    except typer.Exit as error:
        return error.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except CLICK_ERROR as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(context.get_help() if context is not None else error, file=sys.stderr)
            return 2
        path = context.command_path if context is not None else "nco-bench"
        print(f"error: {_message(error)} See '{path} --help'.", file=sys.stderr)
        return 2
    except (BrokenPipeError, SystemExit) as error:
        # Where a pipe is broken, click ends the command with status 1, which is ours for failed instances.
        broken = isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError)
        if not broken or not _nobody_reads():
            raise
        _drop_output()
        return 0
    except OSError as error:
        if error.errno in MENDABLE and error.filename and not debugging():
            place = f"{shown(str(error.filename), MOST_SHOWN)}: {error.strerror}"
            print(f"error: {place}; {MENDABLE[error.errno]}.", file=sys.stderr)
            return 2
        if error.errno != errno.ENOSPC or debugging():
            raise
        _drop_output()
        place = error.filename or "standard output"
        print(f"error: {place}: cannot be written ({error.strerror}); free some space.", file=sys.stderr)
        return 2
    except RuntimeError as error:
        # Up to Python 3.11, what is raised while a class gets its fields.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        return INTERRUPTED
    return status if isinstance(status, int) else 0


def _nobody_reads() -> bool:
    """Whether standard output is a pipe whose reader has gone, as that of ``nco-bench report | head -1`` has."""
    if sys.stdout is None or not hasattr(select, "poll"):  # Windows has none
        return False
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_output() -> None:
    """Send what is left of standard output nowhere: at its end Python would complain of it once more."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _refuse_bytes(arguments: list[str]) -> None:
    """Refuse the name of a file that is no UTF-8, as of an old archive: records are, and hold the command."""
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            from nco_bench.errors import BadInputError, shown

            raise BadInputError(f"{shown(argument)}: the name is not UTF-8; rename the file or folder.")


def _refuse_empty(arguments: list[str]) -> None:
    """Refuse an empty argument, as a shell gives for a variable that is not set: as a folder it would be the one here."""
    for before, argument in zip(["", *arguments], arguments, strict=False):
        name, equals, value = argument.partition("=")
        empty = argument == "" and (before in FOLDERS or not before.startswith("-"))
        if empty or (name in FOLDERS and equals and not value):
            from nco_bench.errors import BadInputError

            what = name or (before if before in FOLDERS else "an argument")
            raise BadInputError(f"{what} is empty; name something, or leave it out.")


def _another_tells(arguments: list[str]) -> bool:
    """Whether torchrun started this process beside another of the machine, which reads the same arguments and files."""
    together = arguments[:1] == ["train"] and os.environ.get("WORLD_SIZE", "1") != "1"
    return together and os.environ.get("LOCAL_RANK", "0") != "0"


def _interrupted(arguments: list[str]) -> str:
    """Say what an interrupted command leaves, and how to go on."""
    line = shlex.join(["nco-bench", *arguments])
    if arguments[:1] == ["train"]:
        if "--campaign" in arguments:
            return f"interrupted; the last checkpoints are kept. To go on: {line}"
        again = shlex.join(["nco-bench", *_without_branch(arguments)])
        if "--resume" in arguments:
            return f"interrupted; the last checkpoint is kept. To go on: {again}"
        anew = "leave --resume out" if again == line else line
        return (
            f"interrupted; the last checkpoint is kept. To go on: {again} --resume (where that finds none, training had not "
            f"begun: {anew})"
        )
    words = {" ".join(arguments[:1]), " ".join(arguments[:2])}
    with_reference = any(one.partition("=")[0] == "--reference" for one in arguments)
    if words & {*GOES_ON} or ("generate" in words and with_reference):
        return f"interrupted; what was done is kept. The same command goes on from there: {line}"
    if words & {*ONLY_READS, "generate"}:
        return f"interrupted; nothing was written. To start again: {line}"
    if "calibrate" in words:
        return f"interrupted; the factors that were said are kept. For the other sizes, give --sizes: {line}"
    return "interrupted; what was written before is kept"


def _without_branch(arguments: list[str]) -> list[str]:
    """Return the arguments of a training without ``--branch``, which says where it began and is refused with --resume."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != "--branch" and not argument.startswith("--branch="):
            kept.append(argument)
        skip = argument == "--branch"
    return kept


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: object = None, line: object = None
) -> None:  # fmt: skip
    """Print a warning of ours as one line; those of libraries are not the user's business, unless they are debugging."""
    from nco_bench.errors import debugging

    if category.__module__.startswith("nco_bench."):
        print(f"note: {message}", file=sys.stderr)
    elif debugging():
        print(warnings.formatwarning(message, category, filename, lineno), file=sys.stderr, end="")


def refuse_repeats(whole: Any) -> None:
    """Let a command and all below it refuse options that are given twice and would keep the last value alone.

    Flags may be repeated, they say the same; options that take several values take them.
    """
    for below in getattr(whole, "commands", {}).values():
        refuse_repeats(below)
    make_parser = whole.make_parser

    def make_strict_parser(context: Any) -> Any:
        parser = make_parser(context)
        parse = parser.parse_args

        def parse_args(args: list[str]) -> Any:
            from nco_bench.errors import BadInputError

            values, rest, order = parse(args=args)
            for option in order:
                single = not (getattr(option, "is_flag", True) or option.multiple)
                if single and order.count(option) > 1 and not context.resilient_parsing:
                    raise BadInputError(
                        f"{option.opts[0]} is given {order.count(option)} times; give it once."
                    )
            return values, rest, order

        parser.parse_args = parse_args
        return parser

    whole.make_parser = make_strict_parser


def _message(error: BaseException) -> str:
    """Return a usage error's message on one line, as a sentence."""
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    parameter = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and getattr(parameter, "help", None):
        text = f"{text.rstrip('.')}: {parameter.help}"  # type: ignore[union-attr]
    line = " ".join(text.split())
    return line if line.endswith((".", "?", ")")) else f"{line}."
