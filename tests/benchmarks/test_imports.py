"""What a benchmark or a tool imports of the package is there, and none works before it knows what is asked of it.

Most of them no test runs.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("tools/**/*.py")))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_names_that_a_script_imports_exist(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("nco_bench"):
            continue
        assert node.module is not None
        module = import_module(node.module)
        for name in node.names:
            if not hasattr(module, name.name):
                import_module(f"{node.module}.{name.name}")


CALLED = [path for path in SCRIPTS if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8")]
PARSERS = ("ArgumentParser(", "options_of(", "arguments(", "import arguments", 'not in ([], ["--check"])')
"""What reads the arguments of a script, of its own or of what it shares with others."""


@pytest.mark.parametrize("script", CALLED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_script_does_its_work_for_a_word_that_it_does_not_know(script: Path) -> None:
    """`tools/readme.py --help` wrote the README, and `--chek` did."""
    text = script.read_text(encoding="utf-8")
    assert any(parser in text for parser in PARSERS)


@pytest.mark.parametrize("name", ["readme", "seal_manifests", "lock_demo", "pack_results", "audit"])
def test_a_tool_that_is_asked_for_help_writes_nothing(name: str, tmp_path: Path) -> None:
    command = [sys.executable, ROOT / "tools" / f"{name}.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"usage: {name}.py ")
