"""What is compiled is compiled before the clock starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECKED = """
import sys
import numpy as np
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.classical import route_two_opt, savings, two_opt, two_opt_moves

def compiled():
    modules = (route_two_opt, savings, two_opt_moves)
    return {name: len(f.signatures) for m in modules for name, f in vars(m).items() if hasattr(f, "signatures")}

problem, convention = sys.argv[1:]
params = {"neighbors": 10, "longest": 0, "start": "nearest", "backend": object(), "problem": problem}
two_opt.warm_up(params)
before = compiled()
points = np.random.default_rng(1).integers(0, 1000, (30, 2)).astype(float)
of = {"convention": convention}
cvrp = CVRPInstance("c", points[0], points[1:], np.arange(1, 30), 60, **of)
two_opt.solve(TSPInstance("t", points, **of) if problem == "tsp" else cvrp, 0, None, params)
assert sum(before.values()) > 0
assert compiled() == before, (before, compiled())
"""


@pytest.mark.parametrize(
    ("problem", "convention"),
    [("tsp", "euclidean"), ("tsp", "tsplib-nint"), ("cvrp", "euclidean"), ("cvrp", "cvrplib-nint")],
)
def test_two_opt_compiles_nothing_within_its_time(problem: str, convention: str) -> None:
    """Children, which know their backend, were not warmed up for the CVRP: 14 seconds on the clock of a first run."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKED, problem, convention], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
