"""The shipped neural solver keeps the rules that every solver must keep."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from nco_bench.datasets.generate import generate
from nco_bench.errors import BadWeightsError
from nco_bench.nn.build import build_path_policy, count_parameters, model_config
from nco_bench.nn.logit_scale import esf
from nco_bench.runs.conformance import check_solver
from nco_bench.solvers.path.solver import PathSolver
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose
from nco_bench.weights.choice import default_weights
from nco_bench.weights.manifest import Manifest, TrainingData
from nco_bench.weights.shelf import export
from nco_bench.weights.store import cache_folder


def test_decoder_6x128_is_feasible_deterministic_and_independent_of_batches() -> None:
    broken = [check for check in check_solver(choose("decoder-6x128", SolverOptions())) if not check.ok]
    assert broken == []


def test_bq_esf_runs_with_weights_of_bq_and_its_own_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PENS, Table 2: BQ-NCO + ESF is BQ-NCO's network, scaled at test time."""
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    assert default_weights("bq-esf", "tsp", 100) == "bq-official-tsp100"
    config = dataclasses.asdict(dataclasses.replace(model_config("bq"), layers=1))
    policy = build_path_policy("bq", **config)
    manifest = Manifest(
        "bq", "bq", config, "tsp", count_parameters(policy), "", 0, 0, TrainingData("uniform", 100, 0), {}, 0, 0.0, {},
        "test",
    )  # fmt: skip
    file = export(policy.state_dict(), manifest, cache_folder() / "bq.safetensors")
    assert default_weights("bq-esf", "tsp", 100) == "bq"
    solver = PathSolver(SolverOptions(solver="bq-esf", weights=str(file.path)))
    solver.prepare(generate("tsp", 8, 1, "uniform", 3))
    assert solver.policy is not None
    assert solver.policy.logit_scale is esf
    with pytest.raises(BadWeightsError, match="weights of bq, not of lehd"):
        PathSolver(SolverOptions(solver="lehd", weights=str(file.path))).prepare(
            generate("tsp", 8, 1, "uniform", 3)
        )
