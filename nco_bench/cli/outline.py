"""The command line without the options of its commands: all that help on the whole needs, in half the time."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import typer


def outline(whole: typer.Typer) -> typer.Typer:
    """Return the same application, its commands and groups empty but for names and help; for showing, not for running.

    Reading the options of some sixty commands takes longer than importing all of them.
    """
    slim = copy(whole)
    slim.registered_commands = [_emptied(command) for command in whole.registered_commands]
    slim.registered_groups = [_emptied_group(group) for group in whole.registered_groups]
    return slim


def _emptied(command: Any) -> Any:
    slim = copy(command)
    slim.callback = _without_options(command.callback)
    return slim


def _emptied_group(group: Any) -> Any:
    slim = copy(group)
    slim.typer_instance = copy(group.typer_instance)
    slim.typer_instance.registered_commands = []
    slim.typer_instance.registered_groups = []
    return slim


def _without_options(callback: Callable[..., Any]) -> Callable[[], None]:
    def nothing() -> None:
        raise AssertionError("an outline is for showing")

    nothing.__name__, nothing.__doc__ = callback.__name__, callback.__doc__
    return nothing
