"""What a benchmark or a tool imports of the package is there; most of them no test runs."""

from __future__ import annotations

import ast
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
