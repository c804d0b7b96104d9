"""Every format: real instances out and in again, detected by content, nothing changed but what the format cannot hold."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nco_bench.datasets import ledger
from nco_bench.datasets.convert import convert_file
from nco_bench.datasets.dataset import Dataset, Origin, Reference
from nco_bench.datasets.formats import (
    FORMATS,
    FileWarning,
    detect,
    format_for,
    read_file,
    testset,
    write_file,
)
from nco_bench.datasets.formats.pomo import torch_bytes
from nco_bench.datasets.generate import generate
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import problem
from nco_bench.problems.cvrp import CVRPInstance
from nco_bench.problems.tsp import TSPInstance

WITH_SOLUTIONS = {"nco-bench", "concorde-line", "lehd-cvrp", "gumbeldore"}
WITH_COSTS = {"bq"}
SINGLE = {"tsplib", "cvrplib"}
FLOAT32 = {"rl4co", "pomo"}


@pytest.fixture(scope="module")
def sets() -> dict[str, Dataset]:
    """Three instances with solutions per problem; CVRP with several routes."""
    return {"tsp": solved("tsp", 500), "cvrp": solved("cvrp", 200)}


def solved(kind: str, n: int) -> Dataset:
    """Instances with what stands for solutions: random orders, cut where the vehicle is full."""
    drawn, references, rng = generate(kind, n, 3, seed=5), [], np.random.default_rng(5)
    for instance in drawn.instances:
        order = rng.permutation(n)
        if kind == "cvrp":
            demand, routes, left = instance.arrays()["demand"], [0], float(instance.arrays()["capacity"])
            full = left
            for customer in order + 1:
                if demand[customer - 1] > left:
                    routes, left = [*routes, 0], full
                routes, left = [*routes, customer], left - demand[customer - 1]
            order = np.array([*routes, 0])
        cost = problem(kind).score(instance, order)
        references.append(Reference(cost, "drawn", order))
    return drawn.with_references(references)


@pytest.fixture(scope="module")
def real(shared: Path) -> dict[str, Dataset]:
    """Three instances per problem of sets that the field uses."""
    folder = shared / "instances" / "testsets"
    return {
        "tsp": testset.read(folder / "fu_tsp500.npz").slice(0, 3),
        "cvrp": testset.read(folder / "lehd_cvrp200.npz").slice(0, 3),
    }


def cases() -> list[tuple[str, str, str]]:
    """Format, problem, and how the file is packed; our own npz is compressed already."""
    return [
        (entry.name, kind, packed)
        for entry in FORMATS.values()
        if entry.read and entry.write
        for kind in entry.problems
        if entry.name not in ("elg", "lehd-lib")
        for packed in (("",) if entry.name == "nco-bench" else ("", ".gz"))
    ]


@pytest.mark.parametrize(("fmt", "kind", "packed"), cases())
def test_out_and_in_again(sets: dict[str, Dataset], tmp_path: Path, fmt: str, kind: str, packed: str) -> None:
    out_and_in(sets, tmp_path, fmt, kind, packed)


def test_sets_that_the_field_uses_go_out_and_in_again(real: dict[str, Dataset], tmp_path: Path) -> None:
    for fmt, kind, packed in cases():
        (tmp_path / f"{fmt}-{kind}{packed}").mkdir()
        out_and_in(real, tmp_path / f"{fmt}-{kind}{packed}", fmt, kind, packed)


def out_and_in(sets: dict[str, Dataset], tmp_path: Path, fmt: str, kind: str, packed: str) -> None:
    before = sets[kind].slice(1, 2) if fmt in SINGLE else sets[kind]
    path = tmp_path / f"again{FORMATS[fmt].suffixes[0]}{packed}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FileWarning)
        write_file(before, path, fmt)
    assert detect(path) == fmt
    after = read_file(path)
    assert (after.problem, len(after)) == (kind, len(before))
    for old, new in zip(before.instances, after.instances, strict=True):
        for key, array in old.arrays().items():
            other = new.arrays()[key]
            if fmt in FLOAT32 and key in ("coords", "depot", "customers"):
                np.testing.assert_array_equal(other, array.astype(np.float32).astype(np.float64))
            else:
                np.testing.assert_array_equal(other, array)
                assert other.dtype == array.dtype
    for old, new in zip(before.references, after.references, strict=True):
        assert old is not None
        if fmt in WITH_SOLUTIONS | WITH_COSTS:
            assert new is not None
            assert new.cost == pytest.approx(old.cost, rel=1e-12)
        if fmt in WITH_SOLUTIONS:
            assert new is not None
            np.testing.assert_array_equal(new.solution, old.solution)


def library_sets(shared: Path) -> list[tuple[str, Dataset]]:
    folder = shared / "instances"
    tsp = read_file(folder / "tsplib" / "berlin52.tsp.gz").with_references([Reference(7542.0, "TSPLIB95")])
    cvrp = read_file(folder / "cvrplib" / "A" / "A-n32-k5.vrp.gz").with_references(
        [Reference(784.0, "CVRPLIB")]
    )
    return [("elg", tsp), ("lehd-lib", tsp), ("lehd-lib", cvrp)]


@pytest.mark.parametrize("case", range(3))
def test_library_formats_keep_convention_and_published_value(shared: Path, tmp_path: Path, case: int) -> None:
    fmt, before = library_sets(shared)[case]
    path = tmp_path / f"{before.name}{FORMATS[fmt].suffixes[0]}"
    write_file(before, path, fmt)
    assert detect(path) == fmt
    after = read_file(path)
    assert after.sha256 == before.sha256
    assert after.instances[0].name == before.instances[0].name
    assert after.references[0] is not None
    assert after.references[0].cost == before.references[0].cost  # type: ignore[union-attr]


def test_bq_training_files_give_the_solution_they_are_ordered_by(tmp_path: Path) -> None:
    square = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]], dtype=float)
    np.savez(tmp_path / "tsp.npz", coords=square[None], tour_lens=np.array([4.0]), reorder=np.array(True))
    reference = read_file(tmp_path / "tsp.npz").references[0]
    assert reference is not None
    assert reference.cost == 4.0
    line = np.array([[0, 0], [1, 0], [2, 0], [-3, 0], [0, 0]], dtype=float)  # two routes: 4 + 6
    np.savez(
        tmp_path / "cvrp.npz",
        coords=line[None],
        demands=np.array([[0, 1, 1, 2, 0]]),
        capacities=np.array([2]),
        via_depots=np.array([[0, 1, 0, 1, 0]]),
        tour_lens=np.array([10.0]),
        reorder=np.array(True),
    )
    dataset = read_file(tmp_path / "cvrp.npz")
    assert dataset.references[0] is not None
    assert dataset.references[0].solution is not None
    assert dataset.references[0].solution.tolist() == [0, 1, 2, 0, 3, 0]
    assert dataset.references[0].cost == 10.0


@pytest.mark.parametrize("ending", ["1 2 3 1", "1 2 3 1 ", "1 2 3 1 \t ", "1 2 3"])
def test_the_closing_node_is_recognised_by_value(tmp_path: Path, ending: str) -> None:
    (tmp_path / "a.txt").write_text(f"0 0 3 0 3 4 output {ending}\n")
    dataset = read_file(tmp_path / "a.txt")
    assert dataset.references[0] is not None
    assert dataset.references[0].solution is not None
    assert dataset.references[0].solution.tolist() == [0, 1, 2]
    assert dataset.references[0].cost == 12.0


def test_lehd_lines_are_read_with_and_without_the_demand_of_the_depot(tmp_path: Path) -> None:
    line = "depot,0,0,customer,3,4,0,5,6,8,capacity,10,demand,{}4,6,5,cost,30,node_flag,1,3,2,1,0,1"
    for zero in ("", "0,"):
        (tmp_path / "a.txt").write_text(line.format(zero) + "\n")
        dataset = read_file(tmp_path / "a.txt")
        assert dataset.instances[0].arrays()["demand"].tolist() == [4, 6, 5]
        assert dataset.references[0] is not None
        assert dataset.references[0].cost == 30.0
        assert dataset.references[0].solution is not None
        assert dataset.references[0].solution.tolist() == [0, 1, 3, 0, 2, 0]


def test_a_stated_cost_that_disagrees_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("depot,0,0,customer,3,4,capacity,10,demand,4,cost,9,node_flag,1,1\n")
    with pytest.warns(FileWarning, match="states cost 9, its solution costs 10"):
        dataset = read_file(tmp_path / "a.txt")
    assert dataset.references[0] is not None
    assert dataset.references[0].cost == 10.0


def test_an_infeasible_solution_is_left_out_and_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 0 3 0 3 4 output 1 2 2 1\n")
    with pytest.warns(FileWarning, match="infeasible and left out"):
        dataset = read_file(tmp_path / "a.txt")
    assert dataset.references[0] is None


def test_kool_tells_four_points_from_a_cvrp_tuple(tmp_path: Path) -> None:
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    four = Dataset("four", "tsp", (TSPInstance("four", square),), (None,), Origin("test"))
    write_file(four, tmp_path / "four.pkl")
    assert read_file(tmp_path / "four.pkl").sha256 == four.sha256
    two = CVRPInstance("two", np.zeros(2), square[1:3], np.array([1, 2]), 5)
    pair = Dataset("pair", "cvrp", (two,), (None,), Origin("test"))
    write_file(pair, tmp_path / "pair.pkl")
    assert read_file(tmp_path / "pair.pkl").sha256 == pair.sha256


def test_what_a_format_cannot_hold_is_refused(sets: dict[str, Dataset], shared: Path, tmp_path: Path) -> None:
    tsp, cvrp = sets["tsp"], sets["cvrp"]
    bare = tsp.with_references([None] * len(tsp))
    matrix = read_file(shared / "instances" / "tsplib" / "gr17.tsp.gz")
    limited = read_file(shared / "instances" / "cvrplib" / "Golden" / "Golden_1.vrp.gz")
    for dataset, fmt, message in [
        (tsp, "tsplib", "holds one instance, the dataset has 3"),
        (cvrp, "concorde-line", "holds tsp, not cvrp"),
        (bare, "concorde-line", "instance 0 has no reference solution"),
        (bare, "bq", "instance 0 has no reference cost"),
        (matrix, "kool", "holds coordinates only"),
        (limited, "invit", "no route length limit"),
        (tsp, "testset", "read only"),
    ]:
        with pytest.raises(BadInputError, match=message):
            write_file(dataset, tmp_path / "out.x", fmt)
    assert list(tmp_path.iterdir()) == []


def test_formats_that_are_advised_take_the_dataset(sets: dict[str, Dataset], tmp_path: Path) -> None:
    """Of three instances without references .vrp advised tsplib, elg, bq and others, each of which refused them."""
    for name in ("tsp", "cvrp"):
        for dataset in (sets[name], sets[name].with_references([None] * len(sets[name]))):
            for count in (1, len(dataset)):
                part = dataset.slice(0, count)
                wrong = {"tsp": "cvrplib", "cvrp": "tsplib"}[name]
                with pytest.raises(BadInputError, match=r"another format with --to: (.*)\.") as told:
                    write_file(part, tmp_path / "x", wrong)
                advised = str(told.value).rpartition(": ")[2].removesuffix(".").split(", ")
                for entry in FORMATS.values():
                    if entry.reader and name in entry.problems and entry.name != "nco-bench":
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore", FileWarning)
                            assert _written(part, tmp_path / entry.name, entry.name) == (
                                entry.name in advised
                            )
    with pytest.raises(BadInputError, match=r"\.txt can be concorde-line, lehd-lib, invit; name one"):
        write_file(sets["tsp"], tmp_path / "x.txt")


def _written(dataset: Dataset, path: Path, fmt: str) -> bool:
    try:
        write_file(dataset, path, fmt)
    except BadInputError:
        return False
    return True


def test_what_a_file_lacks_is_taken_from_the_ledger(sets: dict[str, Dataset], tmp_path: Path) -> None:
    """What an error calls the remedy is one; a solution of the file is converted even where a better one is known."""
    bare, known = sets["tsp"].with_references([None] * 3), sets["tsp"].references
    worse = Reference(99.0, "worse", np.roll(known[0].solution, 1)[::-1], optimal=False)  # type: ignore[union-attr]
    offered = [ledger.Candidate(i, r.solution, r.solver) for i, r in enumerate(known) if r is not None]
    ledger.improve(bare, offered, tmp_path)  # type: ignore[arg-type]
    write_file(bare.with_references([worse, None, None]), tmp_path / "a.npz", "nco-bench")
    target = tmp_path / "a.txt"
    with pytest.raises(BadInputError, match="compute one with 'nco-bench reference'"):
        convert_file(tmp_path / "a.npz", target, None, "concorde-line")
    convert_file(tmp_path / "a.npz", target, None, "concorde-line", instances=tmp_path)
    found = [r.solution for r in read_file(target).references if r is not None]
    for mine, expected in zip(found, [worse, *known[1:]], strict=True):
        assert expected is not None
        np.testing.assert_array_equal(mine, expected.solution)


def test_a_lost_convention_is_said(shared: Path, tmp_path: Path) -> None:
    berlin = read_file(shared / "instances" / "tsplib" / "berlin52.tsp.gz")
    with pytest.warns(FileWarning, match="'tsplib-nint' is lost"):
        write_file(berlin, tmp_path / "b.pkl", "kool")


def test_unknown_names_and_suffixes_are_refused(sets: dict[str, Dataset], tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown file format 'kol'\. Did you mean 'kool'"):
        write_file(sets["tsp"], tmp_path / "a.pkl", "kol")
    with pytest.raises(UnknownNameError, match=r"Unknown file suffix '\.xyz'"):
        write_file(sets["tsp"], tmp_path / "a.xyz")
    with pytest.raises(BadInputError, match="name one with --to"):
        write_file(sets["tsp"], tmp_path / "a.txt")
    (tmp_path / "a.dat").write_text("hello world\n")
    # Not every command that reads files has --from: the command that has it is named.
    with pytest.raises(UnknownNameError, match=r"nco-bench convert \S*a\.dat OUT\.npz --from FORMAT$"):
        read_file(tmp_path / "a.dat")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"coords": 1}))
    with pytest.raises(BadInputError, match=r"nco-bench convert \S*a\.pkl OUT\.npz --from kool$"):
        read_file(tmp_path / "a.pkl")
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(BadInputError, match="the file is empty"):
        read_file(tmp_path / "empty.txt")
    with pytest.raises(BadInputError, match="no such file"):
        read_file(tmp_path / "nothing.tsp")


def test_a_solution_file_is_not_taken_for_instances(tmp_path: Path) -> None:
    (tmp_path / "a.tour").write_text("TYPE : TOUR\nTOUR_SECTION\n1\n2\n-1\n")
    with pytest.raises(BadInputError, match="holds a solution"):
        read_file(tmp_path / "a.tour")


@pytest.mark.parametrize(
    ("name", "fmt"),
    [("a.npz", "nco-bench"), ("a.tsp.gz", "tsplib"), ("a.pkl", "kool"), ("a.pt", "pomo"), ("a.sol", "sol")],
)
def test_suffixes_that_mean_one_format(name: str, fmt: str) -> None:
    assert format_for(Path(name)) == fmt


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_lists_that_begin_with_an_array_are_told_apart(tmp_path: Path, protocol: int) -> None:
    points = np.array([[0.0, 0], [3, 0], [3, 4]])
    (tmp_path / "eil3.pkl").write_bytes(pickle.dumps([points, 12], protocol))
    single = read_file(tmp_path / "eil3.pkl")
    assert detect(tmp_path / "eil3.pkl") == "elg"
    assert single.convention == "tsplib-nint"
    assert single.references[0] is not None
    assert single.references[0].cost == 12
    (tmp_path / "two.pkl").write_bytes(pickle.dumps([points, points + 1], protocol))
    assert detect(tmp_path / "two.pkl") == "kool"
    assert len(read_file(tmp_path / "two.pkl")) == 2


def test_half_a_coordinate_pair_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0.5,0.5 ,1.0 0.25,0.5 0.75,0.5\n")
    with pytest.raises(BadInputError, match=r"a\.txt:1: expected nodes as"):
        read_file(tmp_path / "a.txt", "invit")


@pytest.mark.parametrize("suffix", [".pt", ".npz"])
def test_nodes_without_depot_and_demand_are_a_tsp(tmp_path: Path, suffix: str) -> None:
    """They were refused as a CVRP that lacks a depot."""
    nodes = np.random.default_rng(0).random((3, 5, 2)).astype(np.float32)
    depot, demand = nodes[:, :1], np.full((3, 5), 0.5, np.float32)

    def read(**arrays: NDArray[np.float32]) -> Dataset:
        path = tmp_path / f"a{suffix}"
        if suffix == ".pt":
            path.write_bytes(torch_bytes(arrays))
        else:
            np.savez(path, **arrays)
        return read_file(path)

    alone = read(node_xy=nodes)
    assert alone.problem == "tsp"
    np.testing.assert_array_equal([i.coords for i in alone], nodes)
    assert read(node_xy=nodes, depot_xy=depot, node_demand=demand).problem == "cvrp"
    with pytest.raises(BadInputError, match="'depot_xy' is missing"):
        read(node_xy=nodes, node_demand=demand)
    with pytest.raises(BadInputError, match="'node_demand' is missing"):
        read(node_xy=nodes, depot_xy=depot)


def test_a_file_without_instances_is_said_to_be_empty(tmp_path: Path) -> None:
    """It was told that (0, 5, 2) has not three axes."""
    np.savez(tmp_path / "a.npz", locs=np.zeros((0, 5, 2)))
    with pytest.raises(BadInputError, match=r"'locs' is empty, of shape \(0, 5, 2\)"):
        read_file(tmp_path / "a.npz")


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(
    "line",
    [
        b"0 0 1 0 0 1 output 1 2 3 1",
        b"0,0 1,0 0,1",  # where all of the file was one line, two instances were one of six nodes
        b"0,0 .|. 1,1 2,2 .|. 3 4 .|. 10",
        b"depot,0,0,customer,1,1,2,2,capacity,10,demand,3,4,node_flag,1,2,1,0",
    ],
)
def test_lines_end_as_they_like(tmp_path: Path, line: bytes, mark: bytes, end: bytes) -> None:
    (tmp_path / "x.txt").write_bytes(mark + end.join([line, line]) + end)
    assert len(read_file(tmp_path / "x.txt")) == 2


@pytest.mark.parametrize("tour", ["1 3 2 4 1", "0 2 1 3 0", "0 2 1 3"])
def test_concorde_lines_may_number_nodes_from_0(tmp_path: Path, tour: str) -> None:
    """Its reference was lost: "node -1", a number that the file does not hold."""
    (tmp_path / "a.txt").write_text(f"0 0 1 1 1 0 0 1 output {tour}\n")
    reference = read_file(tmp_path / "a.txt").references[0]
    assert reference is not None
    assert reference.solution is not None
    assert reference.solution.tolist() == [0, 2, 1, 3]
    assert reference.cost == 4.0
