"""
What a reader has to open: modules that one run loads and calls, circles of imports, lines, the largest file, tables.

    python benchmarks/house.py [--json]

Solvers run with untrained networks on two instances of TSP 20, each in a process of its own and in an empty folder, as a
newcomer's first run does; only modules of `nco_bench` count. An import is one that a module makes anywhere, but for those
under ``if TYPE_CHECKING``; a circle is a set of modules that all reach each other. Files from the command to the record
are those with a function that is called between the call of ``run`` and its last record; what only helps to end and print
the run is not among them.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nco_bench

PACKAGE = Path(nco_bench.__file__).parent
RUNS = ("am", "decoder-6x128")
LOADED = """
import json, sys
from nco_bench.cli import app
status = app.run(sys.argv[1:])
files = {m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "nco_bench" and m.__file__}
print("files", json.dumps(sorted(files)))
sys.exit(status)
"""

CALLED = """
import json, sys, threading
from nco_bench.cli import app
from nco_bench.runs.store import RunWriter
package, seen, upto = sys.argv.pop(1), {}, {}
def called(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(package):  # functions alone
        seen[code.co_filename, code.co_firstlineno] = len({line for *_, line in code.co_lines() if line})
append = RunWriter.append
def appended(*arguments):
    append(*arguments)
    upto.update(seen)
RunWriter.append = appended
sys.setprofile(called)
threading.setprofile(called)
status = app.run(sys.argv[1:])
sys.setprofile(None)
print("files", json.dumps(sorted({file for file, _ in upto})))
print("lines", sum(upto.values()))
sys.exit(status)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    measured = measures()
    if options.json:
        print(json.dumps(measured, indent=2))
        return
    for name, value in measured.items():
        print(f"{name}: {value}")


def measures() -> dict[str, Any]:
    """Return every measure by name."""
    files = sorted(PACKAGE.rglob("*.py"))
    lines = {file: _lines(file) for file in files}
    largest = max(lines, key=lines.__getitem__)
    circles = circles_of(imports(files))
    found: dict[str, Any] = {}
    for solver in RUNS:
        loaded = loaded_by(solver)
        found[f"loaded by run {solver}"] = f"{len(loaded)} files, {sum(map(_lines, loaded)):,} lines"
        opened, called = called_by(solver)
        found[f"from command to record of {solver}"] = (
            f"{len(opened)} files, {sum(map(_lines, opened)):,} lines, of which {called:,} are code that is called"
        )
    found["circles of imports"] = len(circles)
    found["in circles"] = [" ".join(circle) for circle in circles]
    found["lines of nco_bench"] = f"{sum(lines.values()):,} in {len(files)} files"
    found["largest file"] = f"{largest.relative_to(PACKAGE)}, {lines[largest]} lines"
    tables = [str(file.relative_to(PACKAGE)) for file in files if "table" in file.name]
    found["files called table"] = len(tables)
    return found


def loaded_by(solver: str) -> list[Path]:
    """Return the files of the package that are loaded once ``run SOLVER`` has solved two instances of TSP 20."""
    return _files(_told(solver, LOADED))


def called_by(solver: str) -> tuple[list[Path], int]:
    """Return the files with a function that is called before the last record, and the lines of these functions."""
    told = _told(solver, CALLED, str(PACKAGE))
    return _files(told), int(next(line for line in told if line.startswith("lines ")).split()[1])


def _told(solver: str, code: str, *before: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["run", solver, "--weights", "random", "--data", "tsp20:count=2", "--device", "cpu"]
        command = [sys.executable, "-c", code, *before, *arguments, "--results", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.splitlines()


def _files(told: list[str]) -> list[Path]:
    files = next(line for line in told if line.startswith("files "))
    return [Path(file) for file in json.loads(files.removeprefix("files "))]


def imports(files: list[Path]) -> dict[str, set[str]]:
    """Return the modules of the package that each of its modules imports, while loading or later."""
    modules = {_module(file): file for file in files}
    return {name: set(_imported(name, file, modules)) - {name} for name, file in modules.items()}


def circles_of(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the sets of two or more modules that all reach each other, the largest first."""
    reached = {name: _reached(name, graph) for name in graph}
    circles = {tuple(sorted(o for o in reached[name] if name in reached[o])) for name in graph}
    return sorted((list(circle) for circle in circles if len(circle) > 1), key=lambda c: (-len(c), c))


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph[waiting.pop()] - seen:
            seen.add(other)
            waiting.append(other)
    return seen


def _imported(name: str, file: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in _executed(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (each if each in modules else node.module for each in inner)


def _executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk a tree without what stands under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from _executed(node)


def _module(file: Path) -> str:
    parts = ("nco_bench", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    main()
