"""Help that a person can read: three examples that work, types in words, fast; and what the Tab key offers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import accepted, all_commands

from nco_bench.cli.app import run
from nco_bench.cli.examples import EXAMPLES

PROGRAM = [sys.executable, "-m", "nco_bench"]


@pytest.mark.parametrize("words", [words for words, _ in all_commands()])
def test_help_ends_with_three_examples_that_parse_and_has_types_in_words(
    words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.toml").write_text('solvers = ["lkh3"]\ndata = ["tsp100"]\n')  # an example reads it
    assert run([*words.split(), "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    at = lines.index("  Examples:")
    examples = [line.strip() for line in lines[at + 1 :]]
    assert tuple(examples) == EXAMPLES[words]
    assert len(set(examples)) == 3
    for example in examples:
        assert f"nco-bench {words}".strip() in example
        accepted(example)
    assert max(map(len, lines)) <= 80
    assert not any(
        internal in line for line in lines for internal in ("<list", "<str", "<int", "<path", "[str]")
    )


def test_what_counts_is_no_folder() -> None:
    """calibrate's --instances was a FOLDER, as that of other commands is; a limit that is a number takes no A-B."""
    numbers = {"N", "K", "SECONDS", "FACTOR", "CAPACITY"}
    odd = [
        (words, parameter.opts[0], parameter.metavar)
        for words, command in all_commands()
        for parameter in command.params
        if type(parameter.type).__name__.startswith(("Int", "Float")) and parameter.metavar not in numbers
    ]
    assert odd == []


@pytest.mark.parametrize(
    "words", [["--help"], ["list", "solvers"], ["list", "models"], ["list", "decodings"]]
)
def test_help_and_listings_load_nothing_heavy(words: list[str]) -> None:
    """What keeps them quick; `benchmarks/startup.py` measures how quick."""
    code = (
        f"import sys; from nco_bench.cli.app import run; run({words!r}); "
        "print([name for name in ('torch', 'pandas', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def offered(shell: str, line: str, folder: Path) -> list[str]:
    """Ask as the shell's script does, for what may follow a line; return the values."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, **asked, "_NCO_BENCH_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(PROGRAM, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    text = done.stdout.replace("_arguments '*: :((", "").replace("))'", "") if shell == "zsh" else done.stdout
    return [word.strip('"').replace("\\\\:", ":") for word in text.split()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nco-bench run near", {"nearest-neighbor"}),
        ("nco-bench run lkh3 --data kool-vrp1", {"kool-vrp100", "kool-vrp100:seed=4321"}),
        ("nco-bench report --table ga", {"gaps"}),
        ("nco-bench reproduce pens --table 5", {"5"}),
        ("nco-bench run am --weights am-official-tsp1", {"am-official-tsp100"}),
        ("nco-bench weights show pomo-official-t", {"pomo-official-tsp100"}),
        ("nco-bench reproduce deco", {"decoder-scaling"}),
        ("nco-bench list dis", {"distributions"}),
    ],
)
def test_names_are_completed(shell: str, line: str, expected: set[str], tmp_path: Path) -> None:
    assert set(offered(shell, line, tmp_path)) == expected


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_a_name_with_a_colon(tmp_path: Path) -> None:
    """Bash cuts words at colons and replaces the last piece only; here by the very script that is installed."""
    (tmp_path / "nco-bench").write_text(f'#!/bin/sh\nexec {sys.executable} -m nco_bench "$@"\n')
    (tmp_path / "nco-bench").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = """
    eval "$(_NCO_BENCH_COMPLETE=source_bash nco-bench)"
    COMP_WORDS=(nco-bench run lkh3 --data cvrplib : XX); COMP_CWORD=6
    _nco_bench_completion nco-bench; echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.split() == ["XXL"], done.stderr


@pytest.mark.parametrize("arguments", [[], ["weights"], ["plot"], ["instances"]])
def test_a_command_without_arguments_prints_its_help_as_it_is(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    bare = capsys.readouterr().err
    assert run([*arguments, "-h"]) == 0
    asked = capsys.readouterr().out
    assert bare.strip() == asked.strip()
    assert len(asked.splitlines()) > 8
    assert not bare.startswith("error")


@pytest.mark.parametrize("command", ["run", "report", "train", "plot tour", "weights pull"])
def test_h_is_help_of_every_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for option in ("-h", "--help"):
        run([*command.split(), option])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] != ""


@pytest.mark.parametrize("group", [[], ["weights"], ["instances"], ["plot"]])
def test_the_list_of_commands_fits_80_columns_uncut(
    group: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run([*group, "--help"])
    commands = capsys.readouterr().out.partition("Commands:")[2]
    assert commands
    assert "..." not in commands


def test_help_needs_no_torch() -> None:
    code = (
        "import sys; from nco_bench.cli.app import run; status = run(['--help']); "
        "heavy = {'torch', 'pandas', 'scipy', 'matplotlib'} & sys.modules.keys(); sys.exit(status or bool(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "generate" in done.stdout
