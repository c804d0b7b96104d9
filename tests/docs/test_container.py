"""The Dockerfile installs what there is: its extras, files, script and stages; hadolint reads it where it is installed."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """Instructions and their arguments, continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in lines if line)
    ]


def arguments(instructions: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for found, rest in instructions if found == word]


def test_extras_and_script_are_those_of_the_package(
    instructions: list[tuple[str, str]], project: Any
) -> None:
    given = dict(rest.split("=", 1) for rest in arguments(instructions, "ARG"))
    extras = given["EXTRAS"].split(",")
    assert set(extras) <= set(project["optional-dependencies"])
    assert {"neural", "weights"} <= set(extras)
    (entry,) = arguments(instructions, "ENTRYPOINT")
    assert entry == '["nco-bench"]'
    assert "nco-bench" in project["scripts"]


def test_torch_is_the_version_that_the_makefile_installs(instructions: list[tuple[str, str]]) -> None:
    (torch,) = [rest for rest in arguments(instructions, "ARG") if rest.startswith("TORCH=")]
    assert f"TORCH ?= {torch.partition('=')[2]}\n" in (ROOT / "Makefile").read_text()


def test_there_is_a_stage_for_each_kind_of_device(instructions: list[tuple[str, str]]) -> None:
    stages = [rest.split(" AS ") for rest in arguments(instructions, "FROM")]
    names = [name for _, name in stages]
    assert {"cpu", "cuda"} <= set(names)
    assert names[-1] == "cpu", "what a build without --target makes"
    for source, _ in stages:
        assert source in names or source == "python:${PYTHON}", "an official image, of no other registry"


def test_what_is_copied_is_there_and_not_ignored(instructions: list[tuple[str, str]]) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in lines if line.startswith("!")]
    for rest in arguments(instructions, "COPY"):
        for source in [] if rest.startswith("--from=") else rest.split()[:-1]:
            assert (ROOT / source).exists()
            assert any(fnmatch.fnmatch(source, pattern) for pattern in kept), source


def test_no_host_is_named() -> None:
    assert "://" not in (ROOT / "Dockerfile").read_text()


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
