"""What doctor says about each solver, on machines where things are missing."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from nco_bench.cards import cards
from nco_bench.cli.inventory import diagnose
from nco_bench.solvers.availability import availability, find_concorde

CLASSICAL = [c for c in cards().values() if c.family in ("classical", "packing") and c.kind != "neural"]


def test_every_solver_has_a_licence_and_a_command_or_needs_nothing():
    for found in map(availability, CLASSICAL):
        assert found.licence
        assert found.install or "built-in" in found.where


def test_lkh_and_concorde_say_that_they_are_for_academic_use():
    licences = {found.solver: found.licence for found in map(availability, CLASSICAL)}
    assert "academic" in licences["lkh3"]
    assert "academic" in licences["concorde"]


def test_a_static_site_generator_called_concorde_is_not_the_solver(tmp_path, monkeypatch):
    """PyPI's package `concorde` has nothing to do with the TSP."""
    package = tmp_path / "concorde"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    found = find_concorde()
    assert found is None or str(tmp_path) not in found.path


def test_a_wrong_variable_is_reported_and_does_not_stop_the_list(monkeypatch):
    monkeypatch.setenv("NCO_BENCH_CONCORDE", "/nowhere/concorde")
    found = {a.solver: a for a in map(availability, CLASSICAL)}
    assert not found["concorde"].available
    assert "/nowhere/concorde" in found["concorde"].missing


def test_doctor_gives_the_command_also_for_what_is_there_and_names_what_is_missing_of_a_part(monkeypatch):
    monkeypatch.setattr("nco_bench.solvers.availability.find_spec", without("LKHpy"))
    monkeypatch.setenv("PATH", "")
    solvers = {solver["name"]: solver for solver in diagnose()["solvers"]}
    assert solvers["hgs"]["install"] == "pip install hygese"
    assert solvers["lkh3"]["install"].startswith("pip install elkai LKHpy")
    assert "cvrp" in solvers["lkh3"]["fix"]


def without(module):
    """Return find_spec as on a machine that lacks this module."""
    return lambda name: None if name == module else find_spec(name)


def test_looking_imports_no_native_package():
    packages = [
        "elkai",
        "LKHpy",
        "hygese",
        "pyvrp",
        "ortools",
        "fast_tsp",
        "random_insertion",
        "numba",
        "torch",
        "scipy",
    ]
    code = (
        "import sys; from nco_bench.solvers.availability import availability; "
        "from nco_bench.cards import cards; list(map(availability, cards().values())); "
        f"print([p for p in {packages!r} + ['ml4co_kit', 'concorde'] if p in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_names_are_unique_and_targets_exist():
    from importlib.util import find_spec

    assert len({info.name for info in CLASSICAL}) == len(CLASSICAL)
    for info in CLASSICAL:
        assert find_spec(info.target.partition(":")[0]) is not None
        assert availability(info).solver == info.name
