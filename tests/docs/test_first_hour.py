"""The newcomer's first hour runs as it is written: every command, in order, in one empty folder."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from starter import Starter

PAGE = Path(__file__).resolve().parents[2] / "docs" / "first-hour.md"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for kind, text in fenced if kind == language]


def test_the_commands_of_the_first_hour_run_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("torch", "matplotlib", "random_insertion", "elkai", "bokeh"):
        pytest.importorskip(module)
    for source in blocks("python"):
        (tmp_path / source.split("\n", 1)[0].removeprefix("# ")).write_text(source)
    commands = [line for block in blocks("") for line in block.splitlines()]
    assert len(commands) == 30
    for key in [key for key in os.environ if key.startswith("NCO_BENCH_")]:
        monkeypatch.delenv(key)
    printed = tmp_path / "printed.txt"
    starter = Starter()  # a process each, but torch is imported once
    starter.environment = {
        "STARTER_FOLDER": str(tmp_path), "STARTER_OUTPUT": str(printed), "STARTER_ERRORS": str(printed),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    said: dict[str, list[str]] = {}
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "nco-bench"
        printed.write_text("")
        status = starter(*words)
        said.setdefault(command, []).append(printed.read_text())
        assert status == 0, f"{command}\n{said[command][-1]}"
    starter.close()
    again = said["nco-bench run decoder-6x128 --data tsp50:count=16"]
    assert "16 to solve" in again[0]
    assert "16 of 16 stored before" in again[1]
    assert "in-order" in said["nco-bench report --data tsp50:count=16"][0]
    written = {"table.tex", "report.html", "tour.png", "pareto.pdf", "cvrp20.pkl"}
    assert written <= {f.name for f in tmp_path.iterdir()}
