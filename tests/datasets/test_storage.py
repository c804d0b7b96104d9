"""A stored dataset comes back bit for bit, or is refused with the place and the remedy."""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.dataset import Dataset, Origin, Reference, content_sha256
from nco_bench.datasets.generate import generate
from nco_bench.datasets.names import whole_of_set
from nco_bench.datasets.storage import load_saved, save_dataset
from nco_bench.errors import BadInputError
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance
from nco_bench.seals import unseal_document


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    return save_dataset(generate("tsp", 12, 6, "uniform", 5), tmp_path / "set.npz")


@pytest.mark.parametrize("problem", ["tsp", "cvrp"])
def test_a_set_comes_back_as_it_was(problem: str, tmp_path: Path) -> None:
    made = generate(problem, 15, 4, "clustered", 5)
    back = load_saved(save_dataset(made, tmp_path / "set.npz"))
    assert back.sha256 == made.sha256 == content_sha256(problem, back.instances)
    assert (back.name, back.origin) == (made.name, made.origin)
    for a, b in zip(made.instances, back.instances, strict=True):
        assert a.name == b.name
        for key, array in a.arrays().items():
            assert np.array_equal(array, b.arrays()[key])


def test_a_stored_slice_does_not_bear_the_name_of_its_whole(tmp_path: Path) -> None:
    whole = generate("tsp", 9, 5)
    back = load_saved(save_dataset(whole.slice(2, 4), tmp_path / "slice.npz"))
    assert back.name == "tsp9:count=5 3-4"
    assert whole_of_set(back) == back.sha256 != whole.sha256
    assert back.instance_hashes == whole.instance_hashes[2:4]


def test_mixed_sizes_matrices_and_partial_references_come_back(tmp_path: Path) -> None:
    matrix = np.array([[0.0, 2.0, 3.0], [2.0, 0.0, 4.0], [3.0, 4.0, 0.0]])
    instances = (
        TSPInstance("four", np.eye(4)[:, :2], "tsplib-nint"),
        TSPInstance("matrix", None, "explicit", matrix, fixed_edges=((0, 1),)),
        TSPInstance("five", np.arange(10.0).reshape(5, 2), "ceil"),
    )
    references = (
        None,
        Reference(9.0, "by hand", np.array([0, 1, 2]), optimal=True, seconds=0.5, params="x=1"),
        None,
    )
    made = Dataset("mixed", "tsp", instances, references, Origin("hand"))
    back = load_saved(save_dataset(made, tmp_path / "mixed.npz"))
    assert back.sha256 == made.sha256
    assert back.convention == "mixed"
    assert back.references[0] is None
    known = back.references[1]
    assert known is not None
    assert (known.cost, known.solver, known.optimal, known.seconds, known.params) == (
        9.0,
        "by hand",
        True,
        0.5,
        "x=1",
    )
    assert known.solution is not None
    assert known.solution.tolist() == [0, 1, 2]
    assert back.instances[1].fixed_edges == ((0, 1),)  # type: ignore[attr-defined]


def test_whole_and_real_demands_of_one_set_stay_what_they_are(tmp_path: Path) -> None:
    points = np.arange(6.0).reshape(3, 2)
    demands = (np.array([1, 2, 3]), np.array([0.5, 2.0, 3.0]), np.array([3, 2, 1, 4]))
    instances = [
        CVRPInstance(str(i), np.zeros(2), np.resize(points, (len(d), 2)), d, 10.0)
        for i, d in enumerate(demands)
    ]
    for number in (2, 3):  # of one size, and of two
        made = Dataset("both", "cvrp", instances[:number], (None,) * number, Origin("hand"))
        back = load_saved(save_dataset(made, tmp_path / "both.npz"))
        assert back.sha256 == made.sha256
        assert [one.demand.dtype.kind for one in back.instances] == list("ifi")[:number]  # type: ignore[attr-defined]
        assert [one.demand.tolist() for one in back.instances] == [d.tolist() for d in demands[:number]]  # type: ignore[attr-defined]


def test_hash_depends_on_content_and_convention_only() -> None:
    coords = np.array([[0.0, 0.0], [3.0, 4.0]])
    one = content_sha256("tsp", [TSPInstance("a", coords)])
    assert one == content_sha256("tsp", [TSPInstance("b", coords.copy())])
    assert one != content_sha256("tsp", [TSPInstance("a", coords, "ceil")])
    assert one != content_sha256("tsp", [TSPInstance("a", coords + 1e-12)])


def test_what_makes_another_problem_of_the_same_places_moves_the_hash_and_comes_back(tmp_path: Path) -> None:
    """An edge that a tour must have, a matrix's entry, a vehicle's capacity, the longest route that is allowed."""
    square, places = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0], [1.0, 0.0]]), (np.zeros(2), np.eye(2))
    tours = [TSPInstance("t", square), TSPInstance("t", square, fixed_edges=((0, 2),))]
    tours += [TSPInstance("t", None, "explicit", 1.0 - np.diag([0, 0, last])) for last in (0, 1)]
    routes = [
        CVRPInstance("r", *places, np.array([1, 1]), capacity, max_route_length=limit)
        for capacity, limit in ((2, None), (3, None), (2, 5.0), (2, 6.0))
    ]
    sets = (("tsp", tours), ("cvrp", routes))
    for problem, instances in sets:
        made = Dataset("set", problem, instances, (None,) * 4, Origin("hand"))
        assert len(set(made.instance_hashes)) == 4
        back = load_saved(save_dataset(made, tmp_path / f"{problem}.npz"))
        assert back.instance_hashes == made.instance_hashes
    assert [one.max_route_length for one in back.instances] == [None, None, 5.0, 6.0]  # type: ignore[attr-defined]


def test_a_truncated_npz_is_refused(stored: Path) -> None:
    stored.write_bytes(stored.read_bytes()[:-200])
    with pytest.raises(BadInputError, match=r"set\.npz: not a readable"):
        load_saved(stored)


def test_a_flipped_byte_is_refused(stored: Path) -> None:
    raw = bytearray(stored.read_bytes())
    raw[len(raw) // 2] ^= 1
    stored.write_bytes(raw)
    with pytest.raises(BadInputError, match=r"set\.npz"):
        load_saved(stored)


def test_changed_coordinates_are_refused(stored: Path) -> None:
    arrays = dict(np.load(stored))
    arrays["x_coords"][2, 3, 0] += 0.25
    np.savez(stored, **arrays)
    with pytest.raises(BadInputError, match="was changed after it was made"):
        load_saved(stored)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "damaged manifest"),  # not JSON
        ("[]", "damaged manifest"),  # not an object
        ('{"format": 1}', "lacks"),  # keys missing
    ],
)
def test_a_damaged_manifest_is_refused(stored: Path, text: str, message: str) -> None:
    stored.with_suffix(".json").write_text(text)
    with pytest.raises(BadInputError, match=message):
        load_saved(stored)


def test_a_missing_manifest_and_another_format_are_refused(stored: Path) -> None:
    manifest = unseal_document(stored.with_suffix(".json").read_bytes())
    stored.with_suffix(".json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(BadInputError, match="format 99"):
        load_saved(stored)
    stored.with_suffix(".json").unlink()
    with pytest.raises(BadInputError, match="manifest is missing"):
        load_saved(stored)


def test_non_finite_coordinates_are_refused() -> None:
    with pytest.raises(BadInputError, match="node 1 are not finite"):
        TSPInstance("bad", np.array([[0.0, 0.0], [np.nan, 1.0]]))


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from nco_bench.datasets.generate import generate
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import NcoBenchError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_dataset(generate("tsp", 100, 50, "uniform", 1), Path(sys.argv[1]))
except NcoBenchError as error:
    print(error)
    sys.exit(2)
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path) -> None:
    target = tmp_path / "big.npz"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(target)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written" in done.stdout
    assert list(tmp_path.iterdir()) == []


def referenced(cost: float) -> Dataset:
    made = generate("tsp", 9, 4)
    return made.with_references([Reference(cost, f"by {cost}")] * len(made))


def _write(path: Path, cost: float, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        save_dataset(referenced(cost), path)


def test_two_writers_of_a_set_are_never_mixed_nor_read_between_its_files(tmp_path: Path) -> None:
    path = save_dataset(referenced(1.0), tmp_path / "set.npz")
    start = multiprocessing.get_context("spawn").Process
    writers = [start(target=_write, args=(path, cost, 2.0)) for cost in (2.0, 3.0)]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen |= {r.cost for r in load_saved(path).references if r is not None}
    assert {2.0, 3.0} <= seen
    assert {file.name for file in tmp_path.iterdir()} == {"set.npz", "set.json"}
