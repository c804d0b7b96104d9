"""What a user's file is made of: itself and the modules that it imports from below its own folder."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import nco_bench

State = tuple[tuple[str, int, int], ...]
"""Path, time and size of files."""

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages, of whichever environment."""


def own_modules(path: Path, before: Collection[str]) -> list[Path]:
    """Return the files of the modules that importing a file has loaded from below its folder, in the order of their names.

    What was loaded before, for another file of the folder, belongs to it as well where its text imports it. The standard
    library, installed packages and nco-bench itself stay out.

    Parameters
    ----------
    path
        The file, without symbolic links; it has been imported.
    before
        Names of the modules that were loaded before.
    """
    below = {
        name: file
        for name, module in tuple(sys.modules.items())
        if (file := _file_of(module)) is not None and _is_own(file, path)
    }
    found = {name for name in below if name not in before}
    seen, waiting = set[str](), list(_imports(path, ""))
    waiting += found
    while waiting:
        name = waiting.pop()
        if name in below and name not in seen:
            seen.add(name)
            waiting += _imports(below[name], getattr(sys.modules[name], "__package__", None) or "")
    return sorted({below[name] for name in seen})


def digest_of(path: Path, modules: Iterable[Path]) -> str:
    """Return eight hex digits of the hash of a file, and of its modules with their places below its folder."""
    content = hashlib.sha256(path.read_bytes())
    for file in modules:
        place = file.relative_to(path.parent).as_posix()
        content.update(b"\0" + place.encode(errors="surrogateescape") + b"\0")
        content.update(hashlib.sha256(file.read_bytes()).digest())
    return content.hexdigest()[:8]


def state_of(files: Iterable[str]) -> State:
    """Return what shows that one of some files was edited; one that is gone has no size."""
    found = []
    for file in files:
        try:
            facts = Path(file).stat()
            found.append((file, facts.st_mtime_ns, facts.st_size))
        except (OSError, ValueError):
            found.append((file, 0, -1))
    return tuple(found)


def _file_of(module: ModuleType) -> Path | None:
    """Return a module's file, its folder without symbolic links; None where it has none."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    path = Path(file)
    try:
        return path.parent.resolve() / path.name if path.is_file() else None
    except (OSError, ValueError):
        return None


def _is_own(file: Path, path: Path) -> bool:
    folder = path.parent
    if file == path or not file.is_relative_to(folder) or INSTALLED & set(file.relative_to(folder).parts):
        return False
    paths: Mapping[str, str] = sysconfig.get_paths()
    places = [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not any(map(file.is_relative_to, [*places, Path(nco_bench.__file__).resolve().parent]))


def _imports(file: Path, package: str) -> Iterator[str]:
    """Yield the names of the modules that a file may import when it is imported; none of what is no Python text."""
    try:
        waiting: list[ast.AST] = [ast.parse(file.read_bytes())]
    except (OSError, SyntaxError, ValueError):
        return
    while waiting:
        node = waiting.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)] if base else []
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _absolute(node: ast.ImportFrom, package: str) -> str:
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:  # a relative import beyond its package
        return ""
