"""A page per command, from the commands themselves: what ``--help`` says, with every option as something to link to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nco_bench.cli.examples import EXAMPLES
from tools.docs.markdown import facts, plain, shell, toctree

PROGRAM = "nco-bench"


def pages() -> dict[str, str]:
    """Return the pages by name: ``cli/index`` and ``cli/COMMAND``."""
    from nco_bench.cli.app import COMMANDS, command

    whole = command()
    listed = {name: whole.commands[name] for name in COMMANDS}
    made = {f"cli/{name}": f"# {PROGRAM} {name}\n\n" + _body(one, (name,), 2) for name, one in listed.items()}
    lines = [f"[`{name}`]({name}.md)\n: {plain(_summary(one))}\n" for name, one in listed.items()]
    head = (
        "# Command line\n\nMade from the commands themselves: what `--help` prints, with a link for every option. "
        "[Commands](../commands.md) says the same in a page. Options of the program itself:\n\n"
    )
    own = _options(whole, ())
    made["cli/index"] = f"{head}{own}\n## Commands\n\n" + "\n".join(lines) + "\n" + toctree(listed)
    return made


def _summary(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _body(command: Any, words: tuple[str, ...], level: int) -> str:
    """Return what stands below a command's heading, those of its own commands included."""
    line = " ".join((PROGRAM, *words))
    below = getattr(command, "commands", {})
    parts = [*(plain(part) for part in (command.help or "").split("\n\n")), ""]
    parts.append(shell(f"{line} COMMAND ..." if below else " ".join((line, *_usage(command)))))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    parts += (
        [facts({f"`{p.metavar}`": plain(_said(p)) or "as named" for p in arguments})] if arguments else []
    )
    parts.append(_options(command, words))
    examples = EXAMPLES.get(" ".join(words), ())
    if examples:
        parts += ["Examples:", "", shell(*examples)]
    for name, one in below.items():
        parts += [f"{'#' * level} {line} {name}", "", _body(one, (*words, name), level + 1)]
    return "\n".join(parts)


def _usage(command: Any) -> list[str]:
    words = []
    for parameter in command.params:
        value = parameter.metavar or parameter.name.upper()
        many = "..." if parameter.nargs == -1 or getattr(parameter, "multiple", False) else ""
        if parameter.param_type_name == "argument":
            word = f"{value}{many}"
            words.append(word if parameter.required else f"[{word}]")
        elif parameter.required:
            words.append(f"{parameter.opts[0]} {value}{many}")
    return [*words, "[OPTIONS]"]


def _options(command: Any, words: tuple[str, ...]) -> str:
    """Return the options as Sphinx's, so that search and links find each."""
    lines = ["```{program} " + " ".join((PROGRAM, *words)) + "\n```\n"]
    for parameter in command.params:
        if parameter.param_type_name != "option" or getattr(parameter, "hidden", False):
            continue
        value = "" if getattr(parameter, "is_flag", False) else f" {parameter.metavar}"
        names = ", ".join(f"{name}{value}" for name in (*parameter.opts, *parameter.secondary_opts))
        lines += ["````{option} " + names, "", plain(_said(parameter)) or "See above.", "````", ""]
    return "\n".join(lines)


def _said(parameter: Any) -> str:
    """Return the help of a parameter, its choices and its default, as ``--help`` says them."""
    said = [" ".join((getattr(parameter, "help", None) or "").split())]
    if getattr(parameter, "multiple", False) and "repeatable" not in said[0]:
        said.append("Repeatable.")
    default = parameter.default
    if isinstance(default, list) and len(default) == 1:
        default = default[0]
    if isinstance(default, str | int | float | Path) and not isinstance(default, bool) and f"{default}":
        said.append(f"Default: {default}.")
    if getattr(parameter, "envvar", None):
        said.append(f"Also from the variable {parameter.envvar}.")
    return " ".join(part for part in said if part)
