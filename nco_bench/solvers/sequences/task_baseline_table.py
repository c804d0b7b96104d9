"""The registry's entries of the baselines for the algorithmic tasks."""

from __future__ import annotations

from nco_bench.solvers.registry import SolverInfo

_TARGET = "nco_bench.solvers.sequences.task_baselines:TaskBaseline"
_CLASSES, _NUMBERS = "algorithmic", "algorithmic-regression"

TASK_BASELINES: tuple[SolverInfo, ...] = (
    SolverInfo("all-positive", _TARGET, (_CLASSES,), "heuristic", "Trivial predictor: 1 everywhere"),
    SolverInfo(
        "majority",
        _TARGET,
        (_CLASSES,),
        "heuristic",
        "Trivial predictor: the most frequent label of the training distribution",
    ),
    SolverInfo(
        "mean",
        _TARGET,
        (_NUMBERS,),
        "heuristic",
        "Trivial predictor: the mean label of the training distribution",
    ),
    SolverInfo(
        "exact",
        _TARGET,
        (_CLASSES, _NUMBERS),
        "exact",
        "The labels themselves, a check of referee and report",
    ),
)
