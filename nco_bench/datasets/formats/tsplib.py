"""TSPLIB 95 files: .tsp instances and .tour solutions (Reinelt 1995).

Read: EUC_2D, CEIL_2D, GEO, ATT, MAN_2D, MAX_2D, EXPLICIT in every EDGE_WEIGHT_FORMAT, FIXED_EDGES and
DISPLAY_DATA. CRLF, a missing EOF and unordered nodes are accepted. Coordinate types never build a matrix.

TSPLIB has no name for unrounded Euclidean distances. An instance under ``euclidean`` is written as EUC_2D with
the comment ``nco-bench convention=euclidean``, which our reader honours and other programs do not know.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nco_bench.datasets.dataset import Dataset
from nco_bench.datasets.formats import keyword_file
from nco_bench.datasets.formats.assemble import the_only_instance, the_only_solution, whole
from nco_bench.datasets.formats.keyword_file import FloatArray, KeywordFile
from nco_bench.datasets.formats.reading import read_bytes, stem, write_bytes
from nco_bench.errors import BadInputError
from nco_bench.problems.tsp import TSPInstance

CONVENTIONS = {
    "EUC_2D": "tsplib-nint",
    "CEIL_2D": "ceil",
    "GEO": "geo",
    "ATT": "att",
    "MAN_2D": "manhattan",
    "MAX_2D": "maximum",
    "EXPLICIT": "explicit",
}
"""EDGE_WEIGHT_TYPE to distance convention."""

MARKER = "nco-bench convention="
"""Comment by which we keep a convention that the file format has no word for."""
MATRIX_FORMATS = (
    "FULL_MATRIX",
    "UPPER_ROW",
    "UPPER_COL",
    "UPPER_DIAG_ROW",
    "UPPER_DIAG_COL",
    "LOWER_ROW",
    "LOWER_COL",
    "LOWER_DIAG_ROW",
    "LOWER_DIAG_COL",
)


def read_instance(path: Path, name: str | None = None, convention: str | None = None) -> TSPInstance:
    """Read a .tsp file.

    Parameters
    ----------
    path
        The file, plain or .gz.
    name
        Name of the instance; by default the file's (NAME is wrong in some files of TSPLIB).
    convention
        Distance rule to use in place of the file's own (for a file of coordinates).

    Raises
    ------
    BadInputError
        Naming file and line.
    """
    file = keyword_file.parse(read_bytes(path), str(path))
    _check_type(file)
    n = file.dimension()
    if n < 2:
        raise BadInputError(
            f"{file.where('DIMENSION')}: a TSP instance needs at least 2 nodes, DIMENSION says {n}."
        )
    rule = edge_weight_convention(file)
    if rule == "tsplib-nint" and file.text("COMMENT") == f"{MARKER}euclidean":
        rule = "euclidean"
    coords = _coordinates(file, rule)
    return TSPInstance(
        name=name or stem(path),
        coords=coords,
        convention=convention or rule,
        matrix=distance_matrix(file, n) if rule == "explicit" else None,
        fixed_edges=_fixed_edges(file, n),
    )


def read(path: Path) -> Dataset:
    """Read a .tsp file as a dataset of one instance; see `read_instance`."""
    return whole(path, "tsplib", [read_instance(path)])


def _check_type(file: KeywordFile) -> None:
    kind = file.text("TYPE", "TSP").upper().split("(")[0].strip()
    if kind == "TOUR":
        raise BadInputError(
            f"{file.where('TYPE')}: this is a tour, not an instance; use 'nco-bench score INSTANCE TOUR'."
        )
    if kind != "TSP":
        raise BadInputError(f"{file.where('TYPE')}: TYPE is {kind[:40]!r}; expected TSP (symmetric) here.")


def edge_weight_convention(file: KeywordFile) -> str:
    """Return the distance convention of EDGE_WEIGHT_TYPE; raises `BadInputError` for one we do not have."""
    kind = file.text("EDGE_WEIGHT_TYPE").upper()
    if not kind:
        raise BadInputError(
            f"{file.source}: EDGE_WEIGHT_TYPE is missing; add for example 'EDGE_WEIGHT_TYPE : EUC_2D'."
        )
    if kind not in CONVENTIONS:
        raise BadInputError(
            f"{file.where('EDGE_WEIGHT_TYPE')}: EDGE_WEIGHT_TYPE {kind[:40]!r} is not supported; "
            f"supported: {', '.join(CONVENTIONS)}."
        )
    return CONVENTIONS[kind]


def coordinate_section(file: KeywordFile, key: str) -> FloatArray:
    """Read ``(n, 2)`` coordinates in node order from a section of ``node x y`` rows."""
    section = file.section(key)
    rows, lines = keyword_file.table(file.source, section, 3)
    positions = keyword_file.node_positions(file, section, rows[:, 0], lines)
    coords = np.empty((len(rows), 2))
    coords[positions] = rows[:, 1:]
    return coords


def _coordinates(file: KeywordFile, rule: str) -> FloatArray | None:
    if rule != "explicit" or "NODE_COORD_SECTION" in file.sections:
        return coordinate_section(file, "NODE_COORD_SECTION")
    if "DISPLAY_DATA_SECTION" in file.sections:
        return coordinate_section(file, "DISPLAY_DATA_SECTION")
    return None


def distance_matrix(file: KeywordFile, n: int) -> FloatArray:
    """Read EDGE_WEIGHT_SECTION as a symmetric ``(n, n)`` matrix with a zero diagonal.

    Parameters
    ----------
    file
        The parsed file.
    n
        Number of nodes.

    Raises
    ------
    BadInputError
        For an unknown layout, too few or many numbers, a negative or an asymmetric distance.
    """
    layout = file.text("EDGE_WEIGHT_FORMAT").upper()
    if layout not in MATRIX_FORMATS:
        raise BadInputError(
            f"{file.where('EDGE_WEIGHT_FORMAT')}: EDGE_WEIGHT_FORMAT is {layout[:40]!r}; "
            f"expected one of {', '.join(MATRIX_FORMATS)}."
        )
    section = file.section("EDGE_WEIGHT_SECTION")
    values, lines = keyword_file.stream(file.source, section)
    diagonal = "DIAG" in layout
    needed = n * n if layout == "FULL_MATRIX" else n * (n + 1) // 2 if diagonal else n * (n - 1) // 2
    if values.size != needed:
        raise BadInputError(
            f"{file.source}:{section.line}: EDGE_WEIGHT_SECTION holds {values.size} numbers; "
            f"{layout} with DIMENSION {n} needs {needed}."
        )
    if (values < 0).any():
        raise BadInputError(
            f"{file.source}:{int(lines[np.flatnonzero(values < 0)[0]])}: a negative distance; expected numbers >= 0."
        )
    if layout == "FULL_MATRIX":
        matrix = values.reshape(n, n)
        if not np.array_equal(matrix, matrix.T):
            a, b = np.argwhere(matrix != matrix.T)[0]
            raise BadInputError(
                f"{file.source}:{section.line}: the distance {a + 1}-{b + 1} is {matrix[a, b]:g} one way and "
                f"{matrix[b, a]:g} the other; asymmetric instances are not supported."
            )
        matrix = matrix.copy()
    else:
        # Columns of one triangle are rows of the other, so two index patterns serve eight layouts.
        by_upper_rows = layout.startswith("UPPER") == layout.endswith("ROW")
        offset = 0 if diagonal else 1
        rows, columns = np.triu_indices(n, offset) if by_upper_rows else np.tril_indices(n, -offset)
        matrix = np.zeros((n, n))
        matrix[rows, columns] = values
        matrix[columns, rows] = values
    np.fill_diagonal(matrix, 0.0)
    return matrix


def _fixed_edges(file: KeywordFile, n: int) -> tuple[tuple[int, int], ...]:
    key = next((k for k in ("FIXED_EDGES_SECTION", "FIXED_EDGES") if k in file.sections), None)
    if key is None:
        return ()
    values, lines = keyword_file.stream(file.source, file.sections[key])
    if values.size and values[-1] == -1:
        values = values[:-1]
    bad = np.flatnonzero((values != np.floor(values)) | (values < 1) | (values > n))
    if bad.size or values.size % 2:
        line = int(lines[bad[0]]) if bad.size else file.sections[key].line
        raise BadInputError(f"{file.source}:{line}: {key} needs pairs of nodes 1..{n}, closed by -1.")
    nodes = values.astype(np.int64) - 1
    return tuple((int(a), int(b)) for a, b in nodes.reshape(-1, 2))


def read_tour(path: Path) -> NDArray[np.int64]:
    """Read a .tour file, plain or .gz, as 0-based nodes; a repeated first node at the end is dropped."""
    file = keyword_file.parse(read_bytes(path), str(path))
    section = file.section("TOUR_SECTION")
    values, lines = keyword_file.stream(file.source, section)
    ends = np.flatnonzero(values == -1)
    if ends.size:
        values, lines = values[: ends[0]], lines[: ends[0]]
    bad = np.flatnonzero((values != np.floor(values)) | (values < 1) | (values > 2**31))
    if bad.size:
        raise BadInputError(
            f"{path}:{int(lines[bad[0]])}: node {values[bad[0]]:g} in TOUR_SECTION; "
            "expected whole numbers >= 1, closed by -1."
        )
    tour = values.astype(np.int64) - 1
    return tour[:-1] if tour.size > 1 and tour[0] == tour[-1] else tour


def write(dataset: Dataset, path: Path) -> None:
    """Write the only instance of a dataset as .tsp."""
    instance = the_only_instance(dataset, "tsp", "tsplib")
    out = io.StringIO()
    kinds = {convention: kind for kind, convention in CONVENTIONS.items()}
    kinds["euclidean"] = kinds["cvrplib-nint"] = "EUC_2D"
    kind = kinds[instance.convention]
    out.write(f"NAME : {instance.name}\nTYPE : TSP\n")
    if instance.convention == "euclidean":
        out.write(f"COMMENT : {MARKER}euclidean\n")
    out.write(f"DIMENSION : {instance.n}\nEDGE_WEIGHT_TYPE : {kind}\n")
    if instance.matrix is not None:
        out.write("EDGE_WEIGHT_FORMAT : FULL_MATRIX\n")
        if instance.coords is not None:
            out.write("DISPLAY_DATA_TYPE : TWOD_DISPLAY\n")
        out.write("EDGE_WEIGHT_SECTION\n")
        out.writelines(" ".join(map(number_text, row)) + "\n" for row in instance.matrix.tolist())
    if instance.coords is not None:
        out.write("DISPLAY_DATA_SECTION\n" if instance.matrix is not None else "NODE_COORD_SECTION\n")
        out.writelines(coordinate_rows(instance.coords))
    if instance.fixed_edges:
        out.write("FIXED_EDGES_SECTION\n")
        out.writelines(f"{a + 1} {b + 1}\n" for a, b in instance.fixed_edges)
        out.write("-1\n")
    out.write("EOF\n")
    write_bytes(path, out.getvalue().encode())


def write_tour(dataset: Dataset, path: Path) -> None:
    """Write the reference tour of the only instance of a dataset as .tour."""
    instance = the_only_instance(dataset, "tsp", "tour")
    reference, tour = the_only_solution(dataset)
    nodes = "\n".join(str(node + 1) for node in tour.tolist())
    text = (
        f"NAME : {instance.name}.tour\nCOMMENT : length {number_text(reference.cost)} ({instance.convention})\n"
        f"TYPE : TOUR\nDIMENSION : {instance.n}\nTOUR_SECTION\n{nodes}\n-1\nEOF\n"
    )
    write_bytes(path, text.encode())


def number_text(value: float) -> str:
    """Write a number so that it reads back as the same float64, whole numbers without a point."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


def coordinate_rows(coords: NDArray[np.float64]) -> list[str]:
    """``node x y`` lines, 1-based."""
    return [f"{i} {number_text(x)} {number_text(y)}\n" for i, (x, y) in enumerate(coords.tolist(), start=1)]
