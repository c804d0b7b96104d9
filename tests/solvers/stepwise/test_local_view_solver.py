"""INViT and DGL as solvers: weights by name, official checkpoints of a mirror, options refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.errors import BadInputError, BadWeightsError, UnknownNameError
from nco_bench.nn.build import build_path_policy
from nco_bench.problems import problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.stepwise.local_solver import LocalViewSolver
from nco_bench.weights.importing import import_checkpoint
from nco_bench.weights.pulling import pull

# Sizes of the fixtures -> those of the published models; 96 is three widths of INViT, and the feed-forward width of DGL.
INVIT_SIZES = {32: 128, 64: 512, 96: 384, 160: 640, 192: 768}
DGL_SIZES = {48: 128, 96: 512}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)


def official(shared: Path, fixture: str, sizes: dict[int, int]) -> dict[str, torch.Tensor]:
    """Random weights under the official names of a fixture, in the published sizes."""
    generator = torch.Generator().manual_seed(0)
    return {
        key.removeprefix("state_dict."): torch.randn(
            [sizes.get(n, n) for n in value.shape], generator=generator
        )
        / 16
        for key, value in load_file(shared / "parity" / f"{fixture}.safetensors").items()
        if key.startswith("state_dict.")
    }


def test_official_weights_of_a_mirror_are_pulled_and_solve(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mirror" / "checkpoints"
    folder.mkdir(parents=True)
    for task, dataset in (("tsp", kool_tsp(20, count=1)), ("cvrp", kool_vrp(20, count=1))):
        for model, fixture, sizes in (("invit-3v", "invit", INVIT_SIZES), ("dgl", "dgl", DGL_SIZES)):
            state = official(shared, f"{fixture}-{task}", sizes)
            save_file(state, folder / f"{model}-{task}100-official.safetensors")
            solver = LocalViewSolver(SolverOptions(solver=fixture))
            monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
            with pytest.raises(BadWeightsError, match=f"nco-bench weights pull {model}-official-{task}100"):
                solver.prepare(dataset)
            monkeypatch.setenv("NCO_BENCH_MIRROR", str(tmp_path / "mirror"))
            pulled = pull(f"{model}-official-{task}100", lambda _: None)
            assert [w.manifest.model for w in pulled] == [model]
            solver.prepare(dataset)
            assert solver.weights_facts()["name"] == f"{model}-official-{task}100"
            (found,) = solver.solve(dataset.instances, seed=1, time_limit=None, progress=lambda _: None)
            assert isinstance(found, np.ndarray)
            assert problem(task).violations(dataset.instances[0], found) == ()
    # Another name of a model pulls what the model has.
    assert {w.manifest.name for w in pull("invit", lambda _: None)} == {
        "invit-3v-official-tsp100", "invit-3v-official-cvrp100",
    }  # fmt: skip


def test_a_checkpoint_as_invit_saves_it_is_imported(shared: Path, tmp_path: Path) -> None:
    state = official(shared, "invit-cvrp", INVIT_SIZES)
    other = {key: value + 1 for key, value in state.items()}
    optimizer = {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 1e-4, "params": [0]}]}
    path = tmp_path / "checkpoint_24.pkl"
    torch.save(
        {"model_baseline": state, "model_train": other, "optimizer": optimizer, "epoch": 249, "time": "t"},
        path,
    )
    made = import_checkpoint("invit", path, "cvrp")
    assert (made.manifest.name, made.manifest.model, made.manifest.parameters) == (
        "invit-3v-cvrp", "invit-3v", 1_736_064,
    )  # fmt: skip
    kept = load_file(made.path)
    # Of the two networks in the file, testing uses the baseline.
    assert torch.equal(kept["pointer.weight"], state["decoder.Wq_final.weight"])
    solver = LocalViewSolver(SolverOptions(solver="invit-3v"))
    solver.prepare(kool_vrp(20, count=1))
    assert solver.weights_facts()["name"] == "invit-3v-cvrp"


def test_weights_of_two_views_are_refused_by_three(shared: Path, tmp_path: Path) -> None:
    save_file(official(shared, "invit-tsp", INVIT_SIZES), tmp_path / "a.safetensors")
    with pytest.raises(BadWeightsError, match="does not fit invit-2v"):
        import_checkpoint("invit-2v", tmp_path / "a.safetensors")


def test_the_solver_finds_the_official_routes(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fixture's instances and weights through the whole solver, but for the weights file."""
    tensors = load_file(shared / "parity" / "invit-cvrp.safetensors")
    config = json.loads((shared / "parity" / "invit-cvrp.json").read_text())["config"]
    policy = build_path_policy(
        "invit-3v", "cvrp", width=config["dim_emb"], heads=config["nb_heads"], ffn=config["dim_ff"],
        candidates=config["action_k"], middle=config["state_k"][0], widest=config["state_k"][1],
    )  # fmt: skip
    from nco_bench.nn.build import load_official

    state = {k.removeprefix("state_dict."): v for k, v in tensors.items() if k.startswith("state_dict.")}
    load_official(policy, "invit-3v", state)
    depot, customers, demand = (tensors[f"input.b.{key}"].numpy() for key in ("depot", "loc", "demand"))
    instances = [
        CVRPInstance(
            f"b{i}", depot[i].astype(float), customers[i].astype(float), demand[i], config["capacity"]
        )
        for i in range(len(depot))
    ]
    solver = LocalViewSolver(SolverOptions(solver="invit", weights="random"))
    solver.policy = policy
    for found, expected in zip(
        solver.solve(instances, seed=1, time_limit=None, progress=lambda _: None),
        (tensors["expected.b.greedy.tours"] + 1).numpy(),
        strict=True,
    ):
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found[1:-1], np.trim_zeros(expected))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"parameter of dgl 'turn'.*'turns'"):
        LocalViewSolver(SolverOptions(solver="dgl", params={"turn": "8"}))
    with pytest.raises(BadInputError, match="turns=8"):
        LocalViewSolver(SolverOptions(solver="dgl", decoding="x8", params={"turns": "8"}))
    with pytest.raises(BadInputError, match="path problems"):
        LocalViewSolver(SolverOptions(solver="invit", decoding="prc:10"))
    with pytest.raises(BadInputError, match="--coordinate-scale"):
        LocalViewSolver(SolverOptions(solver="dgl", coordinate_scale="2"))
    solver = LocalViewSolver(SolverOptions(solver="invit-2v", decoding="greedy,knn=50", weights="random"))
    with pytest.raises(BadInputError, match="knn=50"):
        solver.prepare(kool_tsp(20, count=1))


def test_dgl_sees_as_many_neighbours_as_asked_for() -> None:
    solver = LocalViewSolver(SolverOptions(solver="dgl", decoding="greedy,knn=50", weights="random"))
    solver.prepare(kool_vrp(20, count=1))
    assert solver.policy is not None
    assert (solver.policy.config.neighbours, solver.policy.config.depot_neighbours) == (50, 50)
