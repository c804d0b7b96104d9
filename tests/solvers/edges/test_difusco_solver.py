"""DIFUSCO as a solver: official checkpoints, tours of any instance, seeds, batches, limits, options refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nco_bench.datasets.dataset import Dataset, Origin
from nco_bench.datasets.kool import kool_tsp, kool_vrp
from nco_bench.errors import BadInputError, BadWeightsError, NcoBenchError
from nco_bench.problems import problem
from nco_bench.problems.tsp import TSPInstance
from nco_bench.solvers.edges.solver import DifuscoSolver
from nco_bench.solvers.protocol import Outcome, Solved, SolverOptions
from nco_bench.weights.importing import import_checkpoint


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))


def official(layers: int = 2, width: int = 32, channels: int = 2) -> dict[str, torch.Tensor]:
    """Random weights under the official names, as the Lightning module holds them."""
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes.update({f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)})

    def norm(name: str) -> None:
        shapes.update({f"{name}.weight": (width,), f"{name}.bias": (width,)})

    for name in ("node_embed", "edge_embed"):
        linear(name, width, width)
    linear("time_embed.0", width // 2, width)
    linear("time_embed.2", width // 2, width // 2)
    norm("out.0")
    shapes.update({"out.2.weight": (channels, width, 1, 1), "out.2.bias": (channels,)})
    for k in range(layers):
        for name in "UVABC":
            linear(f"layers.{k}.{name}", width, width)
        norm(f"layers.{k}.norm_h")
        norm(f"layers.{k}.norm_e")
        linear(f"time_embed_layers.{k}.1", width, width // 2)
        norm(f"per_layer_out.{k}.0")
        linear(f"per_layer_out.{k}.2", width, width)
    generator = torch.Generator().manual_seed(0)
    return {f"model.{key}": torch.randn(shape, generator=generator) * 0.3 for key, shape in shapes.items()}


def checkpoint(folder: Path, **sizes: int) -> Path:
    """A file as Lightning writes it: the state dict among loops, callbacks and the optimiser's state."""
    path = folder / "epoch=49-step=500.ckpt"
    torch.save(
        {
            "epoch": 49,
            "global_step": 500,
            "pytorch-lightning_version": "1.7.7",
            "state_dict": official(**sizes),
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"ready": 50}}}},
            "callbacks": {
                "ModelCheckpoint{'monitor': 'val/solved_cost'}": {"best_model_score": torch.tensor(5.8)}
            },
            "optimizer_states": [{"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": [{"lr": 2e-4}]}],
            "lr_schedulers": [{"base_lrs": [2e-4], "last_epoch": 500, "_get_lr_called_within_step": False}],
        },
        path,
    )
    return path


def ready(dataset: Dataset, decoding: str = "greedy", **params: str) -> DifuscoSolver:
    given: dict[str, str] = {"steps": "2", **params}
    solver = DifuscoSolver(SolverOptions(solver="difusco", decoding=decoding, params=given))
    solver.prepare(dataset)
    return solver


def solve(
    solver: DifuscoSolver, instances: Any, seed: int = 1, limit: float | None = None
) -> list[list[int]]:
    found = solver.solve(instances, seed=seed, time_limit=limit, progress=lambda _: None)
    for instance, outcome in zip(instances, found, strict=True):
        assert problem("tsp").violations(instance, tour(outcome)) == ()
    return [tour(outcome).tolist() for outcome in found]


def tour(outcome: Outcome) -> np.ndarray[Any, Any]:
    return np.asarray(outcome.solution if isinstance(outcome, Solved) else outcome)


def test_without_weights_the_message_says_what_gets_them() -> None:
    with pytest.raises(
        BadWeightsError, match=r"drive\.google\.com.*nco-bench weights import difusco FILE.*random"
    ):
        DifuscoSolver(SolverOptions(solver="difusco")).prepare(kool_tsp(20, count=1))
    with pytest.raises(
        BadWeightsError, match=r"called 'other' for difusco.*weights import difusco FILE --name other"
    ):
        DifuscoSolver(SolverOptions(solver="difusco", weights="other")).prepare(kool_tsp(20, count=1))


def test_official_checkpoints_are_imported_and_the_nearest_size_is_taken(tmp_path: Path) -> None:
    file = checkpoint(tmp_path)
    for size in (50, 500):
        made = import_checkpoint("difusco", file, name=f"difusco-tsp{size}")
        assert made.manifest.config["layers"] == 2
    assert made.manifest.parameters == sum(t.numel() for t in official().values())
    dataset = kool_tsp(20, count=2)
    solver = ready(dataset)
    assert solver.weights_facts()["name"] == "difusco-tsp50"
    kept = solver.policy.state_dict()["layers.1.time.weight"]
    assert torch.equal(kept, official()["model.time_embed_layers.1.1.weight"])
    solve(solver, dataset.instances)
    named = DifuscoSolver(SolverOptions(solver="difusco", weights="difusco-tsp500"))
    named.prepare(dataset)
    assert named.weights_facts()["name"] == "difusco-tsp500"


def test_one_output_means_gaussian_noise(tmp_path: Path) -> None:
    made = import_checkpoint("difusco", checkpoint(tmp_path, channels=1))
    assert (made.manifest.name, made.manifest.config["kind"]) == ("difusco", "gaussian")
    dataset = kool_tsp(20, count=2)
    solve(ready(dataset), dataset.instances)


def test_other_checkpoints_are_refused_in_one_line(tmp_path: Path) -> None:
    state = official()
    del state["model.layers.1.A.bias"]
    torch.save({"state_dict": state}, tmp_path / "lacking.ckpt")
    torch.save({"state_dict": {"encoder.weight": torch.zeros(3, 3)}}, tmp_path / "foreign.ckpt")
    for name in ("lacking", "foreign"):
        with pytest.raises(BadWeightsError, match="difusco") as caught:
            import_checkpoint("difusco", tmp_path / f"{name}.ckpt")
        assert "\n" not in str(caught.value)


@pytest.fixture
def weights(tmp_path: Path) -> None:
    import_checkpoint("difusco", checkpoint(tmp_path))


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("neighbours", ["dense", "7"])
@pytest.mark.parametrize(
    ("decoding", "params"),
    [
        ("greedy", {}),
        ("sample:3", {"improve": "two-opt"}),
        ("greedy", {"improve": "mcts", "mcts_restarts": "1"}),
    ],
)
def test_tours_depend_on_the_seed_and_not_on_the_batch(
    decoding: str, params: dict[str, str], neighbours: str
) -> None:
    dataset = kool_tsp(20, count=3)
    solver = ready(dataset, decoding, neighbours=neighbours, **params)
    whole = solve(solver, dataset.instances)
    assert whole == solve(solver, dataset.instances)
    assert whole == [solve(solver, [one], seed=1 + j)[0] for j, one in enumerate(dataset.instances)]
    assert solve(solver, dataset.instances[1:], seed=2) == whole[1:]


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("together", [2, 7, 100])
def test_heat_maps_made_together_as_on_a_gpu_give_the_same_tours(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = kool_tsp(20, count=3)
    solver = ready(dataset, "sample:3", neighbours="8", steps="1")
    alone = solve(solver, dataset.instances)
    monkeypatch.setattr(solver, "_rows", lambda n: together)
    assert solve(solver, dataset.instances) == alone


@pytest.mark.usefixtures("weights")
def test_more_samples_and_two_opt_never_lengthen_a_tour() -> None:
    dataset = kool_tsp(30, count=2)

    def costs(decoding: str, **params: str) -> list[float]:
        tours = solve(ready(dataset, decoding, **params), dataset.instances)
        return [
            float(np.hypot(*(points[t] - points[np.roll(t, -1)]).T).sum())
            for points, t in zip(
                (i.arrays()["coords"] for i in dataset.instances), map(np.array, tours), strict=True
            )
        ]

    greedy, best = costs("greedy"), costs("sample:4")
    improved = costs("greedy", improve="two-opt")
    assert all(b <= a for a, b in zip(greedy, best, strict=True))
    assert all(b < a for a, b in zip(greedy, improved, strict=True))
    few = costs("greedy", improve="two-opt", two_opt_moves="1")
    assert all(a > b >= c for a, b, c in zip(greedy, few, improved, strict=True))


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("improve", ["none", "two-opt", "mcts"])
def test_any_instance_gets_a_tour(improve: str) -> None:
    random = np.random.default_rng(0)
    points = [
        random.random((2, 2)), random.random((3, 2)), random.random((4, 2)), np.full((9, 2), 0.5),
        np.repeat(random.random((3, 2)), 8, axis=0), random.random((12, 2)) * 1e6 - 5e5,
        np.stack([np.arange(10.0), np.zeros(10)], axis=1), random.random((230, 2)),
    ]  # fmt: skip
    instances = [TSPInstance(f"i{k}", p) for k, p in enumerate(points)]
    dataset = Dataset("mixed", "tsp", instances, [None] * len(instances), Origin("test"))
    solver = ready(dataset, improve=improve, mcts_seconds="0.0001")
    assert solver.unsupported(dataset) is None
    solve(solver, instances)
    fixed = TSPInstance("fixed", random.random((12, 2)), fixed_edges=((2, 9),))
    solve(solver, [fixed])


@pytest.mark.usefixtures("weights")
def test_a_time_limit_that_is_over_still_gives_tours() -> None:
    dataset = kool_tsp(20, count=2)
    for decoding, improve in (("sample:1000000", "two-opt"), ("greedy", "mcts")):
        solve(ready(dataset, decoding, improve=improve), dataset.instances, limit=1e-6)


def test_an_untrained_network_is_the_same_everywhere() -> None:
    dataset = kool_tsp(20, count=1)
    found = []
    for _ in range(2):
        solver = DifuscoSolver(SolverOptions(solver="difusco", weights="random", params={"steps": "1"}))
        solver.prepare(dataset)
        found.append(solve(solver, dataset.instances))
        assert solver.weights_facts()["sha256"] == "random"
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("decoding", "params", "message"),
    [
        ("beam:4", {}, "use greedy or sample:K"),
        ("x8", {}, "use greedy or sample:K"),
        ("greedy", {"step": "5"}, "parameter of difusco 'step'.*'steps'"),
        ("greedy", {"steps": "0"}, "steps=0: expected at least 1"),
        ("greedy", {"steps": "ten"}, "steps is 'ten'; expected a whole number"),
        ("greedy", {"schedule": "sine"}, "parameter schedule"),
        ("greedy", {"improve": "2opt"}, "parameter improve"),
        ("greedy", {"neighbours": "1"}, "neighbours='1': expected auto or dense, or a number of at least 2"),
        ("greedy,knn=9", {"neighbours": "9"}, "give either"),
        ("greedy", {"mcts_seconds": "nan"}, "mcts_seconds is .nan."),
        ("greedy", {"two_opt_moves": "0"}, "two_opt_moves='0'"),
        ("sample:4", {"improve": "mcts"}, "one heat map"),
    ],
)
def test_wrong_options_are_refused(decoding: str, params: dict[str, str], message: str) -> None:
    with pytest.raises(NcoBenchError, match=message):
        DifuscoSolver(SolverOptions(solver="difusco", decoding=decoding, params=params))


def test_more_steps_than_times_and_scales_are_refused() -> None:
    with pytest.raises(BadInputError, match="--coordinate-scale"):
        DifuscoSolver(SolverOptions(solver="difusco", coordinate_scale="2"))
    solver = DifuscoSolver(SolverOptions(solver="difusco", weights="random", params={"steps": "1001"}))
    with pytest.raises(BadInputError, match="steps=1001"):
        solver.prepare(kool_tsp(20, count=1))


def test_graphs_are_those_of_the_paper_unless_asked_otherwise() -> None:
    def degrees(decoding: str = "greedy", **params: str) -> list[int]:
        solver = DifuscoSolver(SolverOptions(solver="difusco", decoding=decoding, params=params))
        return [solver._degree(n) for n in (20, 100, 500, 1000, 10_000)]

    assert degrees() == [20, 100, 50, 100, 100]
    assert degrees(neighbours="30") == degrees("greedy,knn=30") == [20, 30, 30, 30, 30]
    assert degrees(neighbours="dense") == [20, 100, 500, 1000, 10_000]


def test_routing_with_vehicles_and_matrices_are_not_supported() -> None:
    from nco_bench.cards import cards

    assert cards()["difusco"].problems == ("tsp",)
    assert kool_vrp(20, count=1).problem not in cards()["difusco"].problems
    matrix = TSPInstance("m", None, "explicit", np.ones((5, 5)))
    solver = DifuscoSolver(SolverOptions(solver="difusco"))
    assert "distance matrix" in str(solver.unsupported(Dataset("d", "tsp", [matrix], [None], Origin("test"))))
