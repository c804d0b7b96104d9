"""Solvers by name. To add one from outside, decorate a class and give the file's path as the solver's name::

    from nco_bench.solvers import register

    @register("my-solver", problems=("tsp",), paper="Me (2026)")
    class MySolver:
        def __init__(self, options): ...
        def unsupported(self, dataset): return None
        def prepare(self, dataset): ...
        def solve(self, batch, *, seed, time_limit, progress): return [np.arange(i.n) for i in batch]

An installed package does the same through the entry-point group ``nco_bench.solvers``.
"""

from nco_bench.cards import Card
from nco_bench.solvers.protocol import Failure, Solved, Solver, SolverOptions, read_params
from nco_bench.solvers.registry import register

__all__ = ["Card", "Failure", "Solved", "Solver", "SolverOptions", "read_params", "register"]
