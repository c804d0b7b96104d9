"""TSPLIB files: published lengths, tsplib95, and every kind of bad input."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets.formats import read_file, write_file
from nco_bench.datasets.formats.tsplib import read_instance, read_tour
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import score, violations

# Published optima with the optimal tour of TSPLIB, one per kind of trap (GEO radius, ATT, nint).
ORACLES = {
    "eil51": 426,
    "berlin52": 7542,
    "st70": 675,
    "eil76": 538,
    "pr76": 108159,
    "kroA100": 21282,
    "a280": 2579,
    "pr2392": 378032,
    "att48": 10628,
    "ulysses16": 6859,
}

HEAD = "NAME : tiny\nTYPE : TSP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\n"
ROWS = "NODE_COORD_SECTION\n1 0 0\n2 3 0\n3 3 4\n4 0 4\n"
TINY = HEAD + ROWS + "EOF\n"
SQUARE_TOUR = np.arange(4)  # 3 + 4 + 3 + 4 = 14


def write(folder: Path, text: str | bytes, name: str = "x.tsp") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", ORACLES)
def test_optimal_tours_cost_the_published_optimum(shared: Path, name: str) -> None:
    folder = shared / "instances" / "tsplib"
    instance = read_instance(folder / f"{name}.tsp.gz")
    tour = read_tour(folder / f"{name}.opt.tour.gz")
    assert violations(instance, tour) == ()
    assert score(instance, tour) == ORACLES[name]


def test_every_instance_is_read_and_every_tour_costs_its_published_value(shared: Path) -> None:
    rules = {"EUC_2D": "tsplib-nint", "CEIL_2D": "ceil", "GEO": "geo", "ATT": "att", "EXPLICIT": "explicit"}
    folder = shared / "instances" / "tsplib"
    scored = 0
    for row in csv.DictReader((folder / "index.csv").open()):
        instance = read_instance(folder / f"{row['name']}.tsp.gz")
        assert (instance.n, instance.convention) == (int(row["dimension"]), rules[row["edge_weight_type"]]), (
            row["name"]
        )
        assert (instance.matrix is not None) == (row["edge_weight_type"] == "EXPLICIT"), row["name"]
        if row["tour_file"]:
            tour = read_tour(folder / row["tour_file"])
            assert violations(instance, tour) == (), row["name"]
            assert score(instance, tour) == float(row["tour_length"]), row["name"]
            scored += 1
    assert scored == 59


def test_linhp318_keeps_its_fixed_edge(shared: Path) -> None:
    instance = read_instance(shared / "instances" / "tsplib" / "linhp318.tsp.gz")
    assert instance.fixed_edges == ((0, 213),)


@pytest.mark.parametrize(
    "name", ["burma14", "att48", "gr17", "gr24", "bayg29", "dsj1000", "eil51", "si175", "brazil58"]
)
def test_distances_agree_with_tsplib95(shared: Path, tmp_path: Path, name: str) -> None:
    tsplib95 = pytest.importorskip("tsplib95")
    packed = shared / "instances" / "tsplib" / f"{name}.tsp.gz"
    plain = write(tmp_path, gzip.decompress(packed.read_bytes()), f"{name}.tsp")
    theirs = tsplib95.load(plain)
    ours = read_instance(plain)
    nodes = list(theirs.get_nodes())
    rng = np.random.default_rng(7)
    for a, b in rng.integers(ours.n, size=(300, 2)):
        if a != b:
            # There and back: twice the distance, since all rules here are symmetric.
            assert score(ours, np.array([a, b])) == 2 * theirs.get_weight(nodes[a], nodes[b]), (name, a, b)


UPPER = [1, 2, 3, 4, 5, 6]  # d(0,1) d(0,2) d(0,3) d(1,2) d(1,3) d(2,3)


@pytest.mark.parametrize(
    ("layout", "numbers"),
    [
        ("UPPER_ROW", "1 2 3 4 5 6"),
        ("LOWER_ROW", "1 2 4 3 5 6"),
        ("UPPER_DIAG_ROW", "0 1 2 3 0 4 5 0 6 0"),
        ("LOWER_DIAG_ROW", "0 1 0 2 4 0 3 5 6 0"),
        ("UPPER_COL", "1 2 4 3 5 6"),
        ("LOWER_COL", "1 2 3 4 5 6"),
        ("UPPER_DIAG_COL", "0 1 0 2 4 0 3 5 6 0"),
        ("LOWER_DIAG_COL", "0 1 2 3 0 4 5 0 6 0"),
        ("FULL_MATRIX", "0 1 2 3 1 0 4 5 2 4 0 6 3 5 6 0"),
    ],
)
def test_every_matrix_layout_gives_the_same_matrix(tmp_path: Path, layout: str, numbers: str) -> None:
    text = f"TYPE: TSP\nDIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {layout}\nEDGE_WEIGHT_SECTION\n"
    matrix = read_instance(write(tmp_path, text + numbers.replace(" ", "\n", 3))).matrix
    assert matrix is not None
    assert matrix[np.triu_indices(4, 1)].tolist() == UPPER
    np.testing.assert_array_equal(matrix, matrix.T)


# A rectangle of 3.6 x 4.6, one short and one long side by hand per rule; ATT: sqrt(d^2 / 10) = 1.14 and 1.45, both up to 2.
SIDES = {"EUC_2D": (4, 5), "CEIL_2D": (4, 5), "MAN_2D": (4, 5), "MAX_2D": (4, 5), "ATT": (2, 2)}


@pytest.mark.parametrize("kind", SIDES)
def test_planar_rules_round_as_tsplib_says(tmp_path: Path, kind: str) -> None:
    rows = "NODE_COORD_SECTION\n1 0 0\n2 3.6 0\n3 3.6 4.6\n4 0 4.6\n"
    instance = read_instance(write(tmp_path, HEAD.replace("EUC_2D", kind) + rows))
    assert score(instance, SQUARE_TOUR) == 2 * sum(SIDES[kind])


@pytest.mark.parametrize(
    "text",
    [
        TINY,
        TINY.replace("\n", "\r\n"),
        TINY.replace("\n", "\r"),
        TINY.removesuffix("EOF\n"),
        TINY.removesuffix("\nEOF\n"),
        "\ufeff" + TINY,
        TINY.replace(" : ", ":").replace("1 0 0", "  1\t0.0  0e0  "),
        TINY.replace("1 0 0\n2 3 0\n", "2 3 0\n1 0 0\n"),
        TINY.replace("EOF", "\n\nEOF\nwhatever follows is not read"),
        "0 0".join(TINY.replace("1 0 0\n2 3 0\n3 3 4\n4 0 4", "0 0 0\n1 3 0\n2 3 4\n3 0 4").split("0 0")),
    ],
    ids=[
        "plain",
        "crlf",
        "cr",
        "no-eof",
        "no-last-newline",
        "bom",
        "spacing",
        "unordered",
        "after-eof",
        "zero-based",
    ],
)
def test_harmless_variants_are_accepted(tmp_path: Path, text: str) -> None:
    assert score(read_instance(write(tmp_path, text)), SQUARE_TOUR) == 14


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TINY.replace("DIMENSION : 4", "DIMENSION : 5"),
            r"x\.tsp:5: NODE_COORD_SECTION has 4 rows, DIMENSION says 5",
        ),
        (
            TINY.replace("DIMENSION : 4", "DIMENSION : 3"),
            r"x\.tsp:5: NODE_COORD_SECTION has 4 rows, DIMENSION says 3",
        ),
        (TINY.replace("DIMENSION : 4", "DIMENSION : 999999999999"), "DIMENSION says 999999999999"),
        (TINY.replace("DIMENSION : 4\n", ""), "DIMENSION is missing"),
        (
            TINY.replace("DIMENSION : 4", "DIMENSION : four"),
            r"x\.tsp:3: DIMENSION is 'four'; expected a number",
        ),
        (TINY.replace("DIMENSION : 4", "DIMENSION : 1"), "at least 2 nodes"),
        (HEAD, "NODE_COORD_SECTION is missing"),
        (TINY.replace("EDGE_WEIGHT_TYPE : EUC_2D\n", ""), "EDGE_WEIGHT_TYPE is missing"),
        (TINY.replace("EUC_2D", "XRAY1"), r"x\.tsp:4: EDGE_WEIGHT_TYPE 'XRAY1' is not supported"),
        (TINY.replace("4 0 4", "3 0 4"), r"x\.tsp:9: node 3 appears twice"),
        (
            TINY.replace("4 0 4", "7 0 4"),
            r"x\.tsp:9: node 7 in NODE_COORD_SECTION; expected whole numbers 1\.\.4",
        ),
        (TINY.replace("4 0 4", "3.5 0 4"), r"x\.tsp:9: node 3\.5"),
        (TINY.replace("3 3 4", "3 3 x4"), r"x\.tsp:8: 'x4' in NODE_COORD_SECTION is not a number"),
        (TINY.replace("3 3 4", "3 3 nan"), r"x\.tsp:8: .*nan"),
        (TINY.replace("3 3 4", "3 inf 4"), r"x\.tsp:8: .*inf"),
        (TINY.replace("3 3 4", "3 1e999 4"), r"x\.tsp:8: .*inf"),
        (TINY.replace("3 3 4", "3 3"), r"x\.tsp:8: NODE_COORD_SECTION has 2 columns in this row; expected 3"),
        (TINY.replace("2 3 0\n3 3 4", "2 3\n0 3 3 4"), r"x\.tsp:7: NODE_COORD_SECTION has 2 columns"),
        (TINY.replace("TYPE : TSP", "TYPE : ATSP"), r"x\.tsp:2: TYPE is 'ATSP'"),
        (TINY.replace("TYPE : TSP", "TYPE : TOUR"), r"x\.tsp:2: this is a tour"),
        (TINY.replace("1 0 0", "rubbish\n1 0 0"), r"x\.tsp:6: 'RUBBISH' is neither a keyword nor a number"),
        ("1 2 3\n" + TINY, r"x\.tsp:2: numbers before any section"),
        (TINY.replace("EOF\n", ROWS), r"x\.tsp:10: NODE_COORD_SECTION appears a second time"),
        ("", "DIMENSION is missing"),
    ],
)
def test_bad_input_names_file_line_and_cause(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message) as caught:
        read_instance(write(tmp_path, text))
    assert "\n" not in str(caught.value)


EXPLICIT = (
    "DIMENSION: 3\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
    "EDGE_WEIGHT_SECTION\n0 1 2\n1 0 3\n2 3 0\n"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            EXPLICIT.replace("2 3 0\n", "2 3\n"),
            r"x\.tsp:4: EDGE_WEIGHT_SECTION holds 8 numbers; FULL_MATRIX .* needs 9",
        ),
        (EXPLICIT.replace("DIMENSION: 3", "DIMENSION: 300000"), "holds 9 numbers"),
        (EXPLICIT.replace("2 3 0\n", "2 9 0\n"), "the distance 2-3 is 3 one way and 9 the other"),
        (EXPLICIT.replace("2 3 0\n", "-2 3 0\n"), r"x\.tsp:7: a negative distance"),
        (EXPLICIT.replace("FULL_MATRIX", "SPIRAL"), r"x\.tsp:3: EDGE_WEIGHT_FORMAT is 'SPIRAL'"),
    ],
)
def test_bad_matrices_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        read_instance(write(tmp_path, text))


def test_two_and_three_nodes_duplicates_and_equal_points_are_accepted(tmp_path: Path) -> None:
    head = "TYPE: TSP\nDIMENSION: {}\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n"
    two = read_instance(write(tmp_path, head.format(2) + "1 0 0\n2 3 4\n"))
    assert score(two, np.array([0, 1])) == 10
    three = read_instance(write(tmp_path, head.format(3) + "1 7 7\n2 7 7\n3 7 7\n"))
    assert score(three, np.array([2, 0, 1])) == 0


def test_a_cut_off_gz_is_reported_as_such(shared: Path, tmp_path: Path) -> None:
    whole = (shared / "instances" / "tsplib" / "a280.tsp.gz").read_bytes()
    for size in (3, 20, len(whole) // 2, len(whole) - 4):
        with pytest.raises(BadInputError, match="gzip data is cut off"):
            read_instance(write(tmp_path, whole[:size], "a280.tsp.gz"))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    with pytest.raises(BadInputError, match="gzip data is damaged"):
        read_instance(write(tmp_path, bytes(flipped), "a280.tsp.gz"))


def test_a_bomb_is_refused_at_the_stated_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nco_bench.datasets.formats.tsplib.read_bytes", lambda path: _limited(path))
    bomb = gzip.compress(TINY.encode() + b" " * (8 << 20))
    assert len(bomb) < 20_000
    with pytest.raises(BadInputError, match="more than 4 MiB when uncompressed"):
        read_instance(write(tmp_path, bomb, "bomb.tsp.gz"))


def _limited(path: Path) -> bytes:
    from nco_bench.datasets.formats.reading import read_bytes

    return read_bytes(path, limit=4 << 20)


def test_tours_say_what_does_not_fit(tmp_path: Path) -> None:
    head = "TYPE : TOUR\nTOUR_SECTION\n"
    assert read_tour(write(tmp_path, head + "3\n1\n2\n-1\n")).tolist() == [2, 0, 1]
    assert read_tour(write(tmp_path, head + "3 1 2 3")).tolist() == [2, 0, 1]
    with pytest.raises(BadInputError, match=r"x\.tsp:4: node 0 in TOUR_SECTION"):
        read_tour(write(tmp_path, head + "3\n0\n-1\n"))


@pytest.mark.parametrize("name", ["berlin52", "ulysses16", "att48", "bayg29", "linhp318", "dsj1000", "gr17"])
def test_real_instances_survive_a_round_trip(shared: Path, tmp_path: Path, name: str) -> None:
    first = read_file(shared / "instances" / "tsplib" / f"{name}.tsp.gz")
    write_file(first, tmp_path / f"{name}.tsp.gz")
    second = read_file(tmp_path / f"{name}.tsp.gz")
    assert second.sha256 == first.sha256
    assert second.instances[0].name == name


def test_sections_longer_than_a_piece_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nco_bench.datasets.formats.keyword_file.PIECE_BYTES", 16)
    assert score(read_instance(write(tmp_path, TINY)), SQUARE_TOUR) == 14
    with pytest.raises(BadInputError, match=r"x\.tsp:8: 'x4'"):
        read_instance(write(tmp_path, TINY.replace("3 3 4", "3 3 x4")))
    with pytest.raises(BadInputError, match=r"x\.tsp:8: NODE_COORD_SECTION"):
        read_instance(write(tmp_path, TINY.replace("3 3 4", "3 3 " + "4" * 40)))
    in_one_line = EXPLICIT.replace("0\n1", "0 1").replace("2\n1", "2 1").replace("3\n2", "3 2")
    matrix = read_instance(write(tmp_path, in_one_line)).matrix
    assert matrix is not None
    assert matrix.tolist() == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
