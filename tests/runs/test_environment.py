"""What a run says of the machine: versions are those that are installed when it starts."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from nco_bench.runs.environment import command_line, package_versions


def test_the_command_of_a_run_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["/usr/bin/nco-bench", "run", "my_sol&50%.py", "--data", "tsp*", "--label", "two words"]
    monkeypatch.setattr("sys.argv", given)
    assert command_line().startswith("nco-bench run 'my_sol&50%.py' ")
    assert shlex.split(command_line()) == ["nco-bench", *given[1:]]
    monkeypatch.setattr("sys.argv", ["/lib/nco_bench/__main__.py", *given[1:]])
    assert shlex.split(command_line()) == ["nco-bench", *given[1:]]


def test_a_package_that_is_installed_while_the_process_lives_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path), str(tmp_path / "absent")])
    assert package_versions() == {}
    (tmp_path / "fast_tsp-0.2.2.dist-info").mkdir()
    (tmp_path / "unknown-1.0.dist-info").mkdir()
    os.utime(tmp_path, ns=(1, 1))  # a clock that is too coarse to tell the two moments apart
    assert package_versions() == {"fast-tsp": "0.2.2"}
    (tmp_path / "fast_tsp-0.2.2.dist-info").rename(tmp_path / "fast_tsp-0.3.dist-info")
    os.utime(tmp_path, ns=(2, 2))
    assert package_versions() == {"fast-tsp": "0.3"}
