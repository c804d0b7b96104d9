"""`benchmarks/official.py`: what it counts, what it writes, and that both sides of its pairs choose the same.

Pairs with the authors' code run where ``NCO_BENCH_OFFICIAL`` names a folder with their checkouts, on small instances.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CHECKOUTS = os.environ.get("NCO_BENCH_OFFICIAL", "")


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def test_the_products_of_torchs_own_attention_and_encoder_layer_are_counted() -> None:
    from official.engine import recorded

    count, tokens, width, hidden = 2, 5, 16, 32
    x = torch.rand(count, tokens, width)
    attention = torch.nn.MultiheadAttention(width, 4, batch_first=True).eval()
    layer = torch.nn.TransformerEncoderLayer(width, 4, hidden, batch_first=True).eval()
    with torch.no_grad():
        _, _, alone = recorded(lambda: attention(x, x, x, need_weights=False))
        _, _, whole = recorded(lambda: layer(x))
    # Four maps of D x D, scores and their weighted sums; the layer has two maps of D x F on top.
    mixed = 2 * count * tokens * (4 * width**2 + 2 * tokens * width)
    assert alone == mixed
    assert whole == mixed + 2 * count * tokens * 2 * width * hidden


def test_our_side_is_timed_in_a_process_of_its_own() -> None:
    from official.engine import Apart, Case, prepared

    case = Case("attend2pack", "bpp3d", 12, "greedy", 3)
    pair = prepared("attend2pack", case, None)
    apart = Apart(partial(prepared, "attend2pack", case, None))
    assert pair.same is not None
    assert pair.same(pair.theirs[0](), apart.found) == 1.0
    assert apart.operations > 0
    assert all(len(apart.timed(name)) == 2 for name in ("ours", "floor"))
    apart.close()
    with pytest.raises(EOFError):  # its traceback is on the terminal
        Apart(partial(prepared, "no such family", case, None))


def row(**changed: object) -> dict[str, object]:
    known = {
        "model": "difusco", "problem": "tsp", "size": 100, "decoding": "merge+2opt", "batch": 1, "points": 0, "same": 1.0,
        "theirs_cpu": 0.6, "ours_cpu": 0.1, "floor_cpu": 1e-5, "theirs_gflop": 0.0, "ours_gflop": 0.0, "peak_gflops": 100.0,
        "machine": {"processor": "P", "cores": 2, "threads": 1, "load": 1.0, "torch": "2", "day": "2026-01-01"},
    }  # fmt: skip
    return known | changed


def test_the_page_has_a_floor_only_where_there_are_products(tmp_path: Path) -> None:
    from official.page import write_page

    rows = [row(), row(model="sigd", decoding="greedy", floor_cpu=0.09, ours_gflop=1.0, theirs_gflop=2.0)]
    (tmp_path / "some.json").write_text(json.dumps(rows))
    write_page(tmp_path, tmp_path / "speed.md")
    page = (tmp_path / "speed.md").read_text()
    assert "| difusco | tsp | 100 | 1 | merge+2opt | 0.1 | 0.6 | 6.00 | none |  |  | 1 |" in page
    assert "| sigd | tsp | 100 | 1 | greedy | 0.1 | 0.6 | 6.00 | 0.09 | 90% | 2.00 | 1 |" in page
    assert page.index("| sigd |") < page.index("| difusco |")
    assert "2 rows: 2 at 2 times or more, 0 below 1" in page


def test_the_page_that_is_shipped_is_made_of_the_measurements_that_are_shipped(tmp_path: Path) -> None:
    from official.page import write_page

    write_page(BENCHMARKS / "official" / "measured", tmp_path / "speed.md")
    shipped = BENCHMARKS.parent / "docs" / "speed.md"
    assert (tmp_path / "speed.md").read_text() == shipped.read_text(), (
        "run `python benchmarks/official.py --page`"
    )


def test_an_update_of_ours_returns_the_loss_that_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    from official import updates
    from official.engine import Case

    from nco_bench.nn.build import build_path_policy
    from nco_bench.solvers.path.policy import PathNodes, PathState

    monkeypatch.setattr(updates, "load_official", lambda policy, name, state: policy.load_state_dict(state))
    twin = build_path_policy("sit").train()

    def loss(coords: torch.Tensor) -> torch.Tensor:
        nodes = PathNodes(coords, None, 10)
        scores = twin.scores(PathState(twin.embed(nodes), coords, None, None, False, 10))
        return torch.nn.functional.cross_entropy(scores, torch.zeros(len(coords), dtype=torch.int64))

    pair = updates.supervised_pair(Case("sit", "tsp", 10, "update", 2), twin, loss)
    first = (pair.theirs[0](), pair.ours())
    second = (pair.theirs[0](), pair.ours())
    assert pair.same is not None
    assert pair.same(*first) == pair.same(*second) == 1.0
    assert first[0] != second[0]


def test_the_plain_peer_of_attend2pack_packs_alike() -> None:
    from official import attend2pack
    from official.engine import Case

    pair = attend2pack.pair(Case("attend2pack", "bpp3d", 12, "greedy", 3), None)
    assert pair.same is not None
    assert pair.same(pair.theirs[0](), pair.ours()) == 1.0


def test_routes_in_the_order_of_customers_are_feasible() -> None:
    from official.instances import drawn
    from official.rebuilding import filled

    from nco_bench.solvers.path.reconstruction_segments import CvrpInstance

    some = drawn("cvrp", 20, 3)
    assert some.demand is not None
    assert some.capacity is not None
    order, via = filled(CvrpInstance(some.coords, some.demand, some.capacity))
    for demand, capacity, visits, flags in zip(some.demand, some.capacity, order, via, strict=True):
        assert visits.tolist() == list(range(1, 21))
        assert flags[0]
        loads = [0]
        for node, flag in zip(visits, flags, strict=True):
            loads = [*loads, int(demand[node])] if flag else [*loads[:-1], loads[-1] + int(demand[node])]
        assert max(loads) <= capacity


SMALL = [
    ("sigd", {"problem": "tsp", "decoding": "greedy", "size": 20, "batch": 2, "points": 2}),
    ("sigd", {"problem": "cvrp", "decoding": "greedy", "size": 20, "batch": 2, "points": 2}),
    ("sigd", {"problem": "tsp", "decoding": "beam:16", "size": 10, "batch": 2, "points": 0}),
    ("htsp", {"problem": "tsp", "decoding": "fragment=20", "size": 60, "batch": 1, "points": 0}),
    ("difusco", {"problem": "tsp", "decoding": "merge+2opt", "size": 60, "batch": 1, "points": 0}),
    ("difusco", {"problem": "tsp", "decoding": "mcts", "size": 60, "batch": 1, "points": 0}),
    ("dgl", {"problem": "cvrp", "decoding": "greedy", "size": 20, "batch": 1, "points": 0}),
    ("esf", {"problem": "tsp", "decoding": "multistart", "size": 20, "batch": 2, "points": 0}),
    ("invit", {"problem": "tsp", "decoding": "greedy+x8", "size": 20, "batch": 1, "points": 0}),
    ("invit", {"problem": "cvrp", "decoding": "greedy+x8", "size": 20, "batch": 1, "points": 0}),
    ("lehd", {"problem": "cvrp", "decoding": "rrc:3", "size": 100, "batch": 1, "points": 0}),
]
PROGRAM = """
import dataclasses, importlib, json, sys
from pathlib import Path
import torch
from official.checkouts import checkout_of
torch.set_num_threads(1)
torch.manual_seed(0)
name, changed, folder = sys.argv[1], json.loads(sys.argv[2]), Path(sys.argv[3])
family = importlib.import_module(f"official.{name}")
case = next(c for c in family.CASES if (c.problem, c.decoding) == (changed["problem"], changed["decoding"])
            or changed["decoding"].startswith("fragment"))
pair = family.pair(dataclasses.replace(case, **changed), checkout_of(name, family, folder))
print("same", pair.same(pair.theirs[0](), pair.ours()))
"""


@pytest.mark.skipif(not CHECKOUTS, reason="NCO_BENCH_OFFICIAL names no folder with the official repositories")
@pytest.mark.parametrize(("name", "changed"), SMALL)
def test_both_sides_choose_the_same(name: str, changed: dict[str, object]) -> None:
    """In a process of its own: the authors' modules have names like `utils`, which each repository has."""
    folders = os.pathsep.join([str(BENCHMARKS), str(BENCHMARKS.parent)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, json.dumps(changed), CHECKOUTS],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": folders},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "same 1.0"
