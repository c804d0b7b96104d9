"""An own solver's version covers its file and the modules that it imports from its own folder, and nothing else."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nco_bench.cli.app import run
from nco_bench.runs.finding import find_runs
from nco_bench.solvers import registry
from nco_bench.solvers.own_modules import digest_of, own_modules

SOLVER = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from nco_bench.solvers import register
{imports}

@register("{name}", problems=("tsp",))
class Mine:
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def solve(self, batch, *, seed, time_limit, progress): return [order(i.n) for i in batch]
"""
ORDER = "import numpy as np\ndef order(n): return np.arange(n)\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty folder, and afterwards none of its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def solver(imports: str, name: str = "mine") -> Path:
    path = Path(f"{name}.py").resolve()
    path.write_text(SOLVER.format(imports=imports, name=name))
    return path


def solved(*options: str) -> list[str]:
    """Versions of the records of each run so far."""
    command = ["run", "mine.py", "--data", "tsp9:count=2", "--results", "runs", *options]
    assert run(command) == 0
    return [cell.solver_version for one in find_runs(Path("runs")) for cell in one.cells() if one.count()]


def test_an_edited_module_of_its_own_is_another_solver() -> None:
    solver("from helper import order")
    Path("helper.py").write_text(ORDER)
    first = solved()
    assert solved() == first
    Path("helper.py").write_text(ORDER.replace("np.arange(n)", "np.roll(np.arange(n), 1)"))
    assert len(set(solved())) == 2
    assert len(solved()) == 2
    assert len(solved("--in-process")) == 2


def test_a_file_alone_has_the_hash_of_its_bytes() -> None:
    path = solver(ORDER)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    assert solved() == [f"1-{digest}"]
    assert registry.import_file(path)["mine"].version == f"1-{digest}"


def test_packages_and_what_they_import_are_covered() -> None:
    path = solver("import importlib\nfrom parts import order\nimportlib.import_module('later')")
    Path("parts").mkdir()
    Path("parts", "__init__.py").write_text("from .deep import order")
    Path("parts", "deep.py").write_text(ORDER)
    Path("parts", "unused.py").write_text("")
    Path("later.py").write_text("")
    registry.import_file(path)
    files = [Path(file).relative_to(path.parent).as_posix() for file in registry.made_of(path)]
    assert files == ["mine.py", "later.py", "parts/__init__.py", "parts/deep.py"]


def test_what_another_file_has_loaded_before_is_covered_too() -> None:
    """Whatever the order in which two files of a folder are imported, each has the version that it has alone."""
    Path("helper.py").write_text("from deeper import order")
    Path("deeper.py").write_text(ORDER)
    Path("other.py").write_text("")
    first, second = (
        solver("from helper import order\nimport other", "first"),
        solver("import helper", "second"),
    )
    registry.import_file(first)
    version = registry.import_file(second)["second"].version
    modules = [second.parent / "deeper.py", second.parent / "helper.py"]
    assert version == f"1-{digest_of(second, modules)}"


def test_installed_packages_stay_out(tmp_path: Path) -> None:
    """A virtual environment beside the file is not part of it."""
    site = tmp_path / ".venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "bought.py").write_text(ORDER)
    path = solver(f"sys.path.insert(0, {str(site)!r})\nfrom bought import order")
    registry.import_file(path)
    assert registry.made_of(path) == [str(path)]


def test_nco_bench_and_the_standard_library_stay_out() -> None:
    """Also for a file at the root of a checkout, or of the disk."""
    assert own_modules(Path("/mine.py"), frozenset(sys.modules)) == []
    import nco_bench

    below = own_modules(Path(nco_bench.__file__).resolve().parents[1] / "mine.py", frozenset())
    assert not [file for file in below if "nco_bench" in file.parts]
