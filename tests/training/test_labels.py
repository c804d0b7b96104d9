"""What training reads: every instance once per epoch, from any position, and nothing that is no label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.training.data import LabelStream, content_of, describe
from nco_bench.training.run import train
from nco_bench.training.shards import in_tour_order, read_shard


def _taken(stream: LabelStream, instances: int, batch: int) -> np.ndarray:
    parts, count = [], 0
    while count < instances:
        parts.append(stream.take(batch).ordered)
        count += len(parts[-1])
    return np.concatenate(parts)


def _sorted(rows: np.ndarray) -> np.ndarray:
    flat = rows.reshape(len(rows), -1)
    return flat[np.lexsort(flat.T)]


def test_tour_order_is_applied() -> None:
    coords = np.array([[[0, 0], [1, 1], [1, 0], [0, 1]]], float)
    ordered = in_tour_order(coords, np.array([[0, 2, 1, 3]]), "here")
    assert ordered.tolist() == [[[0, 0], [1, 0], [1, 1], [0, 1]]]


def test_an_epoch_holds_every_instance_once(shards: list[Path]) -> None:
    everything = np.concatenate([read_shard(path).ordered for path in shards])
    stream = LabelStream(shards, seed=7)
    first = _taken(stream, 120, batch=7)
    assert np.array_equal(_sorted(first), _sorted(everything))
    second = _taken(stream, 120, batch=7)
    assert np.array_equal(_sorted(second), _sorted(everything))
    assert not np.array_equal(first, second)


def test_a_saved_position_continues_with_the_next_instance(shards: list[Path]) -> None:
    stream = LabelStream(shards, seed=7)
    _taken(stream, 53, batch=5)
    position = stream.position()
    rest = [stream.take(5).ordered for _ in range(30)]
    other = LabelStream(shards, seed=7)
    other.seek(position)
    for batch in rest:
        assert np.array_equal(other.take(5).ordered, batch)


def test_solved_paths_are_read_as_they_are(tmp_path: Path) -> None:
    paths = np.random.default_rng(0).random((3, 12, 2), dtype=np.float32)
    np.savez(tmp_path / "paths.npz", paths=paths)
    shard = read_shard(tmp_path / "paths.npz")
    assert not shard.tours
    assert np.array_equal(shard.ordered, paths)


def test_held_out_instances_are_never_learned_from(shards: list[Path]) -> None:
    stream = LabelStream(shards, seed=7, hold_out=6)
    held = {row.tobytes() for row in stream.held_out()}
    assert len(held) == 6
    seen = {row.tobytes() for row in _taken(stream, 3 * 114, batch=10)}
    assert len(seen) == 114
    assert not held & seen


def test_other_data_is_refused_and_can_be_adopted(shards: list[Path]) -> None:
    position = LabelStream(shards, seed=7).position()
    other = LabelStream(shards[:2], seed=7)
    with pytest.raises(BadInputError, match="not what this run was started with"):
        other.seek(position)
    other.seek(position, adopt=True)
    assert (other.epoch, other.offset) == (1, 0)


def test_other_labels_of_the_same_name_and_size_are_refused(shards: list[Path]) -> None:
    """Arrays of one shape make files of one size; what is in them is told by the checksums that the file holds."""
    stream = LabelStream([shards[0]], seed=1)
    stream.take(10)
    before = stream.position()
    size, held = shards[0].stat().st_size, dict(np.load(shards[0]))
    np.savez(shards[0], coords=1 - held["coords"], tours=held["tours"])
    assert shards[0].stat().st_size == size
    again = LabelStream([shards[0]], seed=1)
    with pytest.raises(BadInputError, match="not what this run was started with"):
        again.seek(before)
    again.seek(before, adopt=True)
    assert (again.epoch, again.offset) == (1, 0)
    del before["content"]  # as checkpoints of earlier versions have it
    again.seek(before)
    assert (again.epoch, again.offset) == (0, 10)


def test_what_a_text_file_holds_is_told_by_its_ends(tmp_path: Path) -> None:
    found = set()
    for text in ("0 0 1 1 output 1 2 1", "0 0 1 1 output 2 1 2", "9 0 1 1 output 1 2 1"):
        (tmp_path / "labels.txt").write_text(text)
        found.add(content_of([str(tmp_path / "labels.txt")]))
    assert len(found) == 3


def test_a_stored_dataset_is_a_shard_and_tells_where_it_comes_from(tmp_path: Path) -> None:
    square = np.array([[0, 0], [1, 1], [1, 0], [0, 1]], float)
    tour = np.array([0, 2, 1, 3])
    dataset = Dataset(
        "squares",
        "tsp",
        [TSPInstance(f"s{i}", square + i) for i in range(3)],
        [Reference(4.0, "lkh3", tour, params="runs=1") for _ in range(3)],
        Origin("test", "1", "uniform", 5),
    )
    path = save_dataset(dataset, tmp_path / "squares.npz")
    stream = LabelStream([path], seed=0)
    steps = np.diff(stream.take(3).ordered, axis=1)
    assert np.array_equal(np.abs(steps).sum(-1), np.ones((3, 3)))  # the square's sides, never a diagonal
    facts = describe(stream)
    assert (facts.distribution, facts.size, facts.instances) == ("uniform", 4, 3)
    assert (facts.label_solver, facts.label_params, facts.seeds) == ("lkh3", "runs=1", ("5",))
    # A test set of the same content is found by it, whatever it is called.
    assert facts.hashes == (dataset.sha256,)


def test_labels_that_are_no_permutation_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(
        path,
        coords=np.random.default_rng(0).random((3, 4, 2)),
        tours=[[0, 1, 2, 3], [0, 1, 1, 3], [3, 2, 1, 0]],
    )
    with pytest.raises(BadInputError, match=r"bad\.npz: the label of instance 1 is no permutation of 0\.\.3"):
        read_shard(path)


@pytest.mark.parametrize(
    ("arrays", "cause"),
    [
        ({"coords": np.zeros((2, 4, 2))}, "no arrays coords and tours"),
        ({"coords": np.zeros((2, 4, 3)), "tours": np.zeros((2, 4), int)}, "labels do not fit"),
        ({"coords": np.full((1, 3, 2), np.nan), "tours": np.array([[0, 1, 2]])}, "instance 0 has a NaN"),
    ],
)
def test_arrays_that_are_no_labels_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], cause: str
) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(BadInputError, match=cause):
        read_shard(path)


def test_a_truncated_file_is_refused(shards: list[Path]) -> None:
    content = shards[0].read_bytes()
    shards[0].write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInputError, match="not a readable"):
        read_shard(shards[0])


def test_missing_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no such file"):
        read_shard(tmp_path / "none.npz")
    with pytest.raises(BadInputError, match=r"no \.npz files"):
        LabelStream([tmp_path], seed=0)
    with pytest.raises(UnknownNameError):
        read_shard("tps100")


def test_a_dataset_without_reference_tours_is_refused(tmp_path: Path) -> None:
    instance = TSPInstance("a", np.random.default_rng(0).random((5, 2)))
    path = save_dataset(Dataset("plain", "tsp", [instance], [None], Origin("test")), tmp_path / "plain.npz")
    with pytest.raises(BadInputError, match="no reference tour to learn from; add --reference"):
        read_shard(path)


def _routes(tmp_path: Path, solution: list[int] | None) -> Path:
    rng = np.random.default_rng(0)
    instance = CVRPInstance("c", rng.random(2), rng.random((3, 2)), np.array([1, 2, 2]), capacity=3)
    reference = None if solution is None else Reference(1.0, "test", np.array(solution))
    dataset = Dataset("routes", "cvrp", [instance], [reference], Origin("test"))
    return save_dataset(dataset, tmp_path / "routes.npz")


def test_routes_are_read_in_the_order_of_their_solution(tmp_path: Path) -> None:
    shard = read_shard(_routes(tmp_path, [0, 2, 0, 3, 1, 0]))
    assert shard.problem == "cvrp"
    assert shard.ordered[0, :, 2].tolist() == [0, 2, 2, 1]
    assert shard.ordered[0, :, 3].tolist() == [0, 1, 1, 0]
    assert shard.ordered[0, :, 4].tolist() == [3, 3, 3, 3]


def test_routes_that_are_no_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="no reference routes to learn from; add --reference"):
        read_shard(_routes(tmp_path, None))
    with pytest.raises(BadInputError, match="label of instance 0 is no solution: route 1 carries 5"):
        read_shard(_routes(tmp_path, [0, 1, 2, 3, 0]))


def test_labels_of_another_problem_are_refused(tmp_path: Path) -> None:
    path = _routes(tmp_path, [0, 2, 0, 3, 1, 0])
    with pytest.raises(
        BadInputError, match=r"routes.*holds cvrp instances; decoder-6x128 does not solve them"
    ):
        train("decoder-6x128", [path], {"steps": "1"}, out=tmp_path / "w", progress="silent")
    with pytest.raises(BadInputError, match="holds cvrp instances, --problem says tsp"):
        train("bq", [path], {"steps": "1"}, out=tmp_path / "w", progress="silent", problem="tsp")


def test_validation_on_another_problem_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    coords = np.random.default_rng(3).random((10, 6, 2))
    np.savez(tmp_path / "tours.npz", coords=coords, tours=np.tile(np.arange(6), (10, 1)))
    routes = _routes(tmp_path, [0, 2, 0, 3, 1, 0])
    with pytest.raises(
        BadInputError, match=r"--validation .*routes.*: holds cvrp instances; expected solved tsp"
    ):
        train(
            "decoder-6x128", [tmp_path / "tours.npz"], {"steps": "1"}, out=tmp_path / "w", progress="silent",
            validation=routes,
        )  # fmt: skip
    assert not (tmp_path / "w.training").exists()


def test_a_model_without_layers_is_refused(tmp_path: Path) -> None:
    coords = np.random.default_rng(3).random((10, 6, 2))
    np.savez(tmp_path / "tours.npz", coords=coords, tours=np.tile(np.arange(6), (10, 1)))
    with pytest.raises(BadInputError, match=r"model\.depth=0: expected 1 or more"):
        train(
            "decoder-6x128", [tmp_path / "tours.npz"], {"steps": "1", "model.depth": "0"}, out=tmp_path / "w",
            progress="silent",
        )  # fmt: skip
