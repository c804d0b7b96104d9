"""The child's side of `foreign.ForeignProcess`: make one object, answer calls of its methods, die with the parent."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from nco_bench.errors import NcoBenchError, SolverFailedError
from nco_bench.isolation.foreign import message_of, packed
from nco_bench.isolation.main import die_with_parent
from nco_bench.isolation.transport import receive, send_rest

WRITES = frozenset(
    {"os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.chown", "os.link", "os.symlink", "os.mkdir",
     "os.utime", "shutil.rmtree", "shutil.move", "shutil.copyfile", "sqlite3.connect"}
)  # fmt: skip
RECORDS = frozenset(
    {"records.jsonl", "cells.jsonl", "solutions.bin", "traces.jsonl", "run.json", "references.sqlite"}
)
ARCHIVES = ".parquet"
"""`RECORDS` and files of this ending hold what others found: they are not to be read either."""


def serve(connection_fd: int, lifeline_fd: int, parent: int, from_main_thread: bool) -> None:
    """Answer calls until the parent is gone."""
    die_with_parent(lifeline_fd, parent if from_main_thread else None)
    connection = Connection(connection_fd)
    maker, argument, guarded = receive(connection)
    made: Any = None
    problem: BaseException | None = None
    keep_out(guarded)
    try:
        module, _, function = maker.partition(":")
        made = getattr(importlib.import_module(module), function)(argument)
    except BaseException as error:  # a stranger's module may raise anything, SystemExit as well
        problem = error
    while True:
        try:
            method, arguments = receive(connection)
        except (EOFError, OSError):  # the parent is gone, or the solver has closed what was not its own
            os._exit(0)
        try:
            if problem is not None:
                raise problem
            value, blob = packed(_answer(made, method, arguments, connection))
            answer = message_of("value", value, blob)
        except BaseException as error:
            answer = message_of(*_described(error))
        try:
            send_rest(connection, memoryview(answer))
        except OSError:
            os._exit(0)


def _answer(made: Any, method: str, arguments: Sequence[Any], connection: Connection) -> Any:
    if method == "solve":
        return made.solve(
            *arguments, lambda done: send_rest(connection, memoryview(message_of("progress", int(done))))
        )
    return getattr(made, method)(*arguments)


def _described(error: BaseException) -> tuple[str, str]:
    if isinstance(error, MemoryError):
        return "oom", f"MemoryError: {error}"
    if isinstance(error, NcoBenchError):
        return "failed" if isinstance(error, SolverFailedError) else "input", str(error)
    traceback.print_exc()  # ours, since a stranger's were described before: it goes to the log
    return "failed", f"{type(error).__name__} in the solver's process"


def keep_out(folders: Sequence[str]) -> None:
    """Refuse to change files in these folders, or to read records there, as far as Python's own functions do it.

    Best effort: native code and programs that the solver starts are not held back.
    """
    if not folders:
        return
    inside = tuple(folder.rstrip(os.sep) + os.sep for folder in folders)

    def forbidden(path: Any) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(inside)

    def holds_records(path: Any) -> bool:
        name = os.path.basename(os.fsdecode(path)) if isinstance(path, str | bytes) else ""
        return name in RECORDS or name.endswith(ARCHIVES)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND) if mode is None else (
                set("wax+") & set(mode)
            )  # fmt: skip
            refused = (writes or holds_records(path)) and forbidden(path)
        else:
            refused = event in WRITES and any(map(forbidden, arguments))
        if refused:
            raise PermissionError(
                f"a solver may not touch records or references ({event} in {', '.join(folders)})"
            )

    sys.addaudithook(hook)
