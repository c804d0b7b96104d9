"""How a command ended, and that it refused what it was given in one line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    returncode: int
    stdout: str
    stderr: str


def assert_refused(done: Done, *fragments: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for fragment in fragments:
        assert fragment in lines[0]
    assert done.stdout == ""
