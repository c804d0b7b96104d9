"""Recorded steps: solutions are the same, shapes are few, nothing waits while recording, and no other memory is read.

The second device's `Tape` stands in for CUDA's graphs and keeps their rules; no real GPU has recorded these steps yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import second
import torch
from sweep import plain, solved

from nco_bench.api import load
from nco_bench.errors import BadInputError
from nco_bench.nn.build import build_path_policy
from nco_bench.nn.graphs import Recorded
from nco_bench.solvers.path.construct import greedy
from nco_bench.solvers.path.problem import tsp_problem
from nco_bench.solvers.path.replayed import Replayed
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose, create

NODES = 11
PATH = ("bq", "lehd", "sigd", "sigd-lehd", "sit", "decoder-6x128", "pens-a", "pens-r", "coordns")


def replayed(name: str, data: str, decoding: str) -> tuple[list[Any], Recorded, torch.nn.Module]:
    """Solve three batches with recordings; return the solutions, the recordings and the network."""
    options = SolverOptions(decoding=decoding, weights="random", device=second.NAME, params={"graphs": "on"})
    solver = create(choose(name, options))
    dataset = load(f"{data}:count=6")
    solver.prepare(dataset)
    found = []
    for first in (0, 2, 4):
        batch = dataset.instances[first : first + 2]
        found += solver.solve(batch, seed=7 + first, time_limit=None, progress=lambda count: None)
    return [plain(one) for one in found], solver.policy.recorded, solver.policy


@pytest.mark.parametrize(
    ("name", "data", "decoding", "shapes"),
    [
        *((name, f"tsp{NODES}", "greedy", 3) for name in PATH),  # the first step, up to 16, up to 8
        *((name, f"cvrp{NODES}", "greedy", 3) for name in ("bq", "lehd", "sigd", "sigd-lehd", "sit")),
        ("bq", f"tsp{NODES}", "greedy,knn=5", 2),
        ("bq-esf", f"tsp{NODES}", "greedy", 3),
        ("lehd", f"tsp{NODES}", "beam:3", 3),
        ("lehd", f"tsp{NODES}", "prc:2", 3),
        ("am", f"tsp{NODES}", "greedy", 2),
        ("am", f"cvrp{NODES}", "greedy", 2),
        ("pomo", f"tsp{NODES}", "multistart+x8", 1),
        ("pomo", f"cvrp{NODES}", "greedy", 1),
        ("elg", f"tsp{NODES}", "greedy", 1),
        *(
            (name, f"{problem}{NODES}", "greedy", 1)
            for name in ("dgl", "invit-2v")
            for problem in ("tsp", "cvrp")
        ),
        ("dgl", f"tsp{NODES}", "beam:2", 2),
        ("invit-2v", f"tsp{NODES}", "multistart", 1),
    ],
)
def test_solutions_are_those_of_the_cpu_and_shapes_are_few(
    name: str, data: str, decoding: str, shapes: int
) -> None:
    found, recorded, network = replayed(name, data, decoding)
    for ours, theirs in zip(found, solved(name, f"{data}:count=6", "cpu", decoding), strict=True):
        np.testing.assert_array_equal(ours, plain(theirs))
    assert len(recorded.met) <= shapes
    recordings = [one for one in recorded.met.values() if one is not None]
    assert recorded.replays > len(recordings) > 0
    own = [*network.parameters(), *network.buffers()]
    for recording in recordings:
        known = {storage(t) for t in (*own, *recording.given, *recording.seen)}
        assert set(recording.graph.outside) <= known, "memory that may be another's by the next replay"


def test_a_construction_needs_few_recordings_and_the_next_batch_none() -> None:
    """Of 74 nodes: candidates up to 80 (the first step), 72, 64, 56 ... 8."""
    small = {"width": 8, "heads": 2, "head_dim": 4, "ffn": 8, "decoder_layers": 1}
    tours, counts = [], []
    for device in ("cpu", second.NAME):
        torch.manual_seed(5)
        network: Any = build_path_policy("lehd", logit_scale="ssmax", **small).to(device)
        policy = network if device == "cpu" else Replayed(network)
        for _ in range(2):
            found = greedy(policy, tsp_problem(torch.rand(3, 74, 2).to(device)))
            tours.append(found.order.cpu())
            counts.append(0 if device == "cpu" else len(policy.recorded.met))
    assert torch.equal(tours[0], tours[2])
    assert torch.equal(tours[1], tours[3])
    assert counts[2:] == [10, 10]
    assert sum(one is not None for one in policy.recorded.met.values()) == 10
    assert policy.recorded.replays == 2 * 72 - 10, (
        "all but the first of each shape; the last node needs no network"
    )


def storage(tensor: torch.Tensor) -> int:
    return tensor.detach().held.untyped_storage().data_ptr()  # type: ignore[attr-defined, no-any-return]


def test_a_wait_while_recording_is_an_error() -> None:
    recorded = Recorded(lambda nothing, x: x * float(x.sum()))
    x = torch.ones(3, device=second.NAME)
    recorded(None, x)
    with pytest.raises(RuntimeError, match="capturing"):
        recorded(None, x)


def test_inputs_are_left_alone_and_results_are_not_overwritten() -> None:
    recorded = Recorded(lambda table, x: x.mul_(2).add_(table))
    table, results = torch.ones(2, device=second.NAME), []
    for value in (1.0, 2.0, 3.0):
        results.append(recorded(table, torch.full((2,), value, device=second.NAME)))
    results.append(recorded(torch.full_like(table, 5.0), torch.ones(2, device=second.NAME)))
    assert [one.tolist() for one in results] == [[3.0] * 2, [5.0] * 2, [7.0] * 2, [7.0] * 2]
    assert (recorded.replays, len(recorded.met)) == (3, 1)


@pytest.mark.parametrize(
    ("value", "message"), [("on", "cpu records no graphs"), ("yes", "expected on or off")]
)
def test_graphs_that_cannot_be_had_are_refused(value: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        solved("am", "tsp5:count=1", "cpu", "greedy", {"graphs": value})
