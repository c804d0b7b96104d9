"""Help on the whole reads no options of commands, and is the same as if it had read them."""

from __future__ import annotations

from typing import Any

import pytest

from nco_bench.cli.app import COMMANDS, command, only_shows, run
from nco_bench.cli.options import COMPLETING


def page(whole: Any) -> str:
    with whole.make_context("nco-bench", [], resilient_parsing=True) as context:
        text: str = whole.get_help(context)
    return text


def test_the_outline_has_the_help_of_the_whole() -> None:
    assert page(command(shown=True)) == page(command())


def test_the_outline_knows_every_command_and_group_without_its_options() -> None:
    whole, slim = command(), command(shown=True)
    assert list(slim.commands) == list(whole.commands)
    assert {*slim.commands} == {*COMMANDS}
    for name, below in slim.commands.items():
        assert below.get_short_help_str() == whole.commands[name].get_short_help_str()
        assert not [p.name for p in below.params if p.name != "help"]
    assert whole.commands["run"].params
    assert whole.commands["runs"].commands


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], True), (["-h"], True), (["rum"], True), (["--", "run"], False), (["runs", "list"], False)],
)
def test_a_line_with_a_command_in_it_never_meets_the_outline(arguments: list[str], expected: bool) -> None:
    assert only_shows(arguments) is expected


def test_a_shell_that_completes_never_meets_the_outline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPLETING, "complete_bash")
    assert not only_shows([])


def test_a_mistyped_command_is_still_told_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generat"]) == 2
    assert "generate" in capsys.readouterr().err
