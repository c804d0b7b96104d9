"""The ledger keeps the best, refuses the unfit, and loses nothing when two processes write."""

from __future__ import annotations

import datetime
import multiprocessing
import os
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.ledger import Candidate, improve, load
from nco_bench.datasets.ledger_file import Entry, costs, costs_at, faults, ledger_path, locked
from nco_bench.datasets.names import whole_of_set
from nco_bench.errors import BadInputError
from nco_bench.problems import tsp
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.runs import offering

# Six points on a line at 0, 3, 1, 4, 2, 5: the best tour is there and back, 10 long.
LINE = np.array([[0.0, 0], [3, 0], [1, 0], [4, 0], [2, 0], [5, 0]])
BEST = np.array([0, 2, 4, 1, 3, 5])
WORSE = np.array([0, 4, 2, 1, 3, 5])  # 2 + 1 + 2 + 1 + 1 + 5 = 12
IDENTITY = np.arange(6)
TODAY = datetime.date(2025, 6, 1)


def lines(count: int, references: list[Reference | None] | None = None) -> Dataset:
    instances = tuple(TSPInstance(str(i), LINE * (i + 1)) for i in range(count))
    return Dataset("lines", "tsp", instances, references or [None] * count, Origin("test"))


def offer(dataset: Dataset, folder: Path, solution: np.ndarray, **more: object) -> str:
    index = int(more.pop("index", 0))  # type: ignore[call-overload]
    return improve(dataset, [Candidate(index, solution, "solver", **more)], folder, TODAY)[0].status  # type: ignore[arg-type]


def test_better_solutions_replace_worse_ones_and_never_the_reverse(tmp_path: Path) -> None:
    dataset = lines(2)
    assert offer(dataset, tmp_path, WORSE, params="runs=1", seconds=2.0) == "improved"
    first = load(dataset, tmp_path).references
    assert first[1] is None
    assert first[0] is not None
    assert (first[0].cost, first[0].params, first[0].seconds, first[0].optimal) == (
        12.0,
        "runs=1",
        2.0,
        False,
    )
    assert offer(dataset, tmp_path, BEST) == "improved"
    assert offer(dataset, tmp_path, WORSE) == "kept"
    assert offer(dataset, tmp_path, np.roll(BEST, 2)) == "kept"
    kept = load(dataset, tmp_path).references[0]
    assert kept is not None
    assert kept.cost == 10.0
    np.testing.assert_array_equal(kept.solution, BEST)


def test_a_proof_of_the_known_cost_is_stored_and_then_defended(tmp_path: Path) -> None:
    dataset = lines(1)
    offer(dataset, tmp_path, WORSE)
    assert offer(dataset, tmp_path, WORSE, optimal=True) == "proved"
    outcome = improve(dataset, [Candidate(0, BEST, "other")], tmp_path)[0]
    assert outcome.status == "refused"
    assert "better than the proven optimum 12" in outcome.reason


@pytest.mark.parametrize(
    ("solution", "insertion", "reason"),
    [
        (IDENTITY, None, "order of the file"),
        (np.array([0, 2, 4, 1, 3, 3]), None, "infeasible: node 3 is visited 2 times"),
        (BEST[:5], None, "infeasible: 5 visits for 6 nodes"),
        (WORSE, 11.0, "more than a random insertion solution"),
        (IDENTITY, 17.0, "with the nodes in the order of the file"),  # it costs 18
    ],
)
def test_the_unfit_is_refused_with_a_reason(
    tmp_path: Path, solution: np.ndarray, insertion: float | None, reason: str
) -> None:
    dataset = lines(1)
    outcome = improve(dataset, [Candidate(0, solution, "x", insertion_cost=insertion)], tmp_path)[0]
    assert outcome.status == "refused"
    assert reason in outcome.reason
    assert load(dataset, tmp_path).references[0] is None


def test_as_good_as_random_insertion_is_good_enough(tmp_path: Path) -> None:
    assert offer(lines(1), tmp_path, WORSE, insertion_cost=12.0) == "improved"


def test_nodes_in_file_order_are_judged_by_random_insertion(tmp_path: Path) -> None:
    """A file may have been written along a tour, and a small instance's file order be the best by chance."""
    pytest.importorskip("random_insertion")
    turn = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    mixed = circle[np.random.default_rng(1).permutation(40)]
    along_x = np.random.default_rng(2).random((40, 2))
    along_x = along_x[np.argsort(along_x[:, 0])]
    instances = tuple(TSPInstance(str(i), points) for i, points in enumerate((circle, mixed, along_x)))
    for optimal in (False, True):
        dataset = Dataset("orders", "tsp", instances, [None] * 3, Origin("test"))
        found = {i: Reference(0.0, "x", np.arange(40), optimal=optimal) for i in range(3)}
        outcomes = offering.offer(dataset, found, tmp_path / str(optimal))
        assert [outcome.status for outcome in outcomes] == ["improved", "refused", "refused"]


def test_cvrp_routes_in_file_order_are_refused_as_well(tmp_path: Path) -> None:
    instance = CVRPInstance("c", np.zeros(2), LINE, np.ones(6, dtype=np.int64), 3)
    dataset = Dataset("c", "cvrp", (instance,), (None,), Origin("test"))
    assert offer(dataset, tmp_path, np.array([0, 1, 2, 3, 0, 4, 5, 6, 0])) == "refused"
    assert offer(dataset, tmp_path, np.array([0, 1, 3, 5, 0, 2, 4, 6, 0])) == "improved"


def test_the_ledger_lies_over_the_references_of_the_dataset(tmp_path: Path) -> None:
    better, worse = Reference(9.5, "published"), Reference(99.0, "published")
    dataset = lines(2, [better, worse])
    assert offer(dataset, tmp_path, BEST, index=0) == "kept"
    assert offer(dataset, tmp_path, BEST, index=1) == "improved"
    merged = load(dataset, tmp_path).references
    assert merged[0] is better
    assert merged[1] is not None
    assert (merged[1].cost, merged[1].solver) == (20.0, "solver")


def test_a_published_value_gets_the_first_solution_that_reaches_it(tmp_path: Path) -> None:
    dataset = lines(1, [Reference(10.0, "published", optimal=True)])
    assert offer(dataset, tmp_path, BEST) == "improved"
    reference = load(dataset, tmp_path).references[0]
    assert reference is not None
    assert reference.optimal
    np.testing.assert_array_equal(reference.solution, BEST)


def test_slices_share_the_ledger_of_the_whole_under_whole_indices(tmp_path: Path) -> None:
    whole = lines(4)
    part = whole.slice(2, 4)
    assert offer(part, tmp_path, BEST, index=3) == "improved"
    assert [r is not None for r in load(whole, tmp_path).references] == [False, False, False, True]
    assert [r is not None for r in load(part, tmp_path).references] == [False, True]
    with pytest.raises(BadInputError, match="no instance 0"):
        offer(part, tmp_path, BEST, index=0)


def test_the_same_content_under_another_name_shares_its_references(tmp_path: Path) -> None:
    offer(lines(1), tmp_path, BEST)
    other = Dataset("renamed", "tsp", (TSPInstance("x", LINE),), (None,), Origin("elsewhere"))
    assert load(other, tmp_path).references[0] is not None


def test_an_instance_has_its_reference_in_whatever_set_it_stands(tmp_path: Path) -> None:
    offer(lines(3), tmp_path, BEST, index=1)
    alone = Dataset("one of them", "tsp", (TSPInstance("x", LINE * 2),), (None,), Origin("elsewhere"))
    found = load(alone, tmp_path).references[0]
    assert found is not None
    assert found.cost == 20.0


def test_tables_look_references_up_by_hash_and_by_place(tmp_path: Path) -> None:
    few, many = generate("tsp", 8, 2), generate("tsp", 8, 5)
    tour = np.array([0, 2, 4, 6, 1, 3, 5, 7])
    improve(few, [Candidate(1, tour, "solver", params="runs=1")], tmp_path, TODAY)
    cost = tsp.score(many.instances[1], tour)
    assert costs(many.instance_hashes, tmp_path) == {
        many.instance_hashes[1]: Entry(cost, "solver", "runs=1", "2025-06-01")
    }
    assert costs_at(whole_of_set(many), [], tmp_path) == {1: Entry(cost, "solver", "runs=1", "2025-06-01")}
    assert costs_at(whole_of_set(generate("tsp", 9, 2)), [], tmp_path) == {}


def test_a_ledger_of_before_is_read_and_improved(tmp_path: Path) -> None:
    """As 0.1.0 wrote it: one file per dataset content, keyed by index."""
    dataset = lines(3)
    path = tmp_path / "ledger" / f"{dataset.sha256[:16]}.npz"
    path.parent.mkdir()
    old = {
        "format": np.array(1), "sha256": np.array(dataset.sha256), "dataset": np.array("lines"), "index": np.array([0, 2]),
        "cost": np.array([12.0, 30.0]), "optimal": np.array([False, True]), "seconds": np.array([np.nan, 2.0]),
        "solver": np.array(["old", "old"]), "params": np.array(["", ""]), "date": np.array(["2025-01-01"] * 2),
        "length": np.array([6, 6]), "solution": np.concatenate([WORSE, BEST]).astype(np.int32),
    }  # fmt: skip
    np.savez(path, **old)
    assert [r and r.cost for r in load(dataset, tmp_path).references] == [12.0, None, 30.0]
    assert costs_at("any", [dataset.sha256], tmp_path)[2] == Entry(30.0, "old", "", "2025-01-01")
    assert offer(dataset, tmp_path, WORSE) == "kept"
    assert offer(dataset, tmp_path, BEST) == "improved"
    assert [r and r.cost for r in load(dataset, tmp_path).references] == [10.0, None, 30.0]


def test_a_writer_that_was_killed_leaves_an_empty_file_that_is_no_damage(tmp_path: Path) -> None:
    ledger_path(tmp_path).parent.mkdir()
    ledger_path(tmp_path).touch()
    assert load(lines(1), tmp_path).references[0] is None
    assert offer(lines(1), tmp_path, BEST) == "improved"


def _die_in_the_first_commit(folder: Path) -> None:
    with locked(ledger_path(folder)) as ledger:
        ledger.execute("PRAGMA cache_size = 1")  # so that pages reach the file before the commit
        row = "x", 1.0, 0, "x", "", 1.0, "2026-01-01", bytes(9000)
        for number in range(40):
            ledger.execute(
                "INSERT INTO reference VALUES (?, ?, ?, ?, ?, ?, ?, ?, '')", (f"{number}", *row[1:])
            )
        os._exit(0)


def test_a_writer_that_was_killed_in_the_first_commit_leaves_no_damage_either(tmp_path: Path) -> None:
    for look in (
        lambda: [r and r.cost for r in load(lines(1), tmp_path).references] == [None],
        lambda: costs(["x"], tmp_path) == {},
        lambda: costs_at("x", [], tmp_path) == {},
        lambda: list(faults(tmp_path)) == [],
        lambda: offer(lines(1), tmp_path, BEST) == "improved",
    ):
        ledger_path(tmp_path).unlink(missing_ok=True)
        dying = multiprocessing.get_context("fork").Process(target=_die_in_the_first_commit, args=(tmp_path,))
        dying.start()
        dying.join()
        assert ledger_path(tmp_path).stat().st_size > 0  # with a journal that takes it back
        assert look()


def test_a_damaged_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    dataset = lines(1)
    offer(dataset, tmp_path, WORSE)
    path = ledger_path(tmp_path)
    path.write_bytes(b"no ledger" + path.read_bytes()[9:])
    before = path.read_bytes()
    with pytest.raises(BadInputError, match="not a readable"):
        load(dataset, tmp_path)
    with pytest.raises(BadInputError, match="not a readable"):
        offer(dataset, tmp_path, BEST)
    assert path.read_bytes() == before


def _write_share(folder: Path, indices: list[int]) -> None:
    dataset = lines(40)
    for index in indices:
        improve(dataset, [Candidate(index, BEST, f"p{index % 2}")], folder)


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    shares = [list(range(0, 40, 2)), list(range(1, 40, 2))]
    workers = [context.Process(target=_write_share, args=(tmp_path, share)) for share in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    references = load(lines(40), tmp_path).references
    assert [r.cost for r in references if r] == [10.0 * (i + 1) for i in range(40)]
    assert [r.solver for r in references if r] == [f"p{i % 2}" for i in range(40)]
