"""The shipped neural solver keeps the rules that every solver must keep."""

from __future__ import annotations

from nco_bench.runs.conformance import check_solver
from nco_bench.solvers.base import SolverOptions
from nco_bench.solvers.registry import choose


def test_decoder_6x128_is_feasible_deterministic_and_independent_of_batches() -> None:
    broken = [check for check in check_solver(choose("decoder-6x128", SolverOptions())) if not check.ok]
    assert broken == []
