"""The published numbers against the papers' own text, and against what can be computed from them."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import pytest

from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.papers import published
from nco_bench.papers.published import PublishedTable, list_papers, list_tables, load_table

ALL_TABLES = [(entry.paper, entry.number) for entry in list_tables()]
TEXT_ONLY = [
    ("eie", "figure-6"), ("decoder-scaling", "figure-12"), ("decoder-scaling", "text"), ("pens", "settings"),
    ("eie", "settings"), ("sit", "settings"),
]  # fmt: skip
"""Numbers that stand in sentences, which their notes quote."""
BLOCKS = [key for key in ALL_TABLES if key not in TEXT_ONLY]

# How each table stands in the text: lines of the block that are headers, and printed cells per line after the
# row label. Labels are cut off because they hold numbers too (PRC100, "aug x8"); where a label holds a number that
# is data (a parameter count), the label is counted in and LABEL_NUMBERS removes the rest of it.
LAYOUT: dict[tuple[str, int | str], tuple[set[int], int]] = {
    ("pens", "figure-4"): ({0, 1}, 5),
    ("pens", 1): ({0, 1, 2}, 10),
    ("pens", 2): ({0, 1, 2}, 16),
    ("pens", 3): ({0, 1, 2, 3}, 16),
    ("pens", 5): ({0, 1}, 3),
    **{("eie", n): ({0}, 5) for n in (1, 2, 3, 5, 6, 7)},
    ("eie", 4): ({0}, 4),
    **{("tropical", n): ({0, 1}, 12) for n in (1, 3)},
    **{("tropical", n): ({0}, 12) for n in (2, 4, 5)},
    ("sit", 1): ({0, 1, 23, 24}, 10),
    ("sit", 2): ({0, 1}, 8),
    ("sit", 3): ({0, 1}, 9),
    ("sit", 4): ({0, 1}, 10),
    ("sit", 5): ({0, 1}, 3),
    ("sit", 6): ({0, 10}, 5),
    ("sit", 7): ({0, 4}, 5),
    ("sit", 8): ({0}, 4),
    ("sit", 9): ({0, 1, 11, 12}, 9),
    ("sit", 10): ({0, 1}, 6),
    **{("decoder-scaling", n): ({0}, 5) for n in (1, 2, 3, 11, 20)},
    **{("decoder-scaling", n): ({0}, 4) for n in (7, 8, 10, 17)},
    ("decoder-scaling", 4): ({0, 1}, 7),
    ("decoder-scaling", 5): ({0, 1}, 4),
    ("decoder-scaling", 6): ({0, 1}, 7),
    ("decoder-scaling", 9): ({0}, 1),
    ("decoder-scaling", 12): ({0, 1}, 2),
    ("decoder-scaling", 13): ({0, 1}, 6),
    **{("decoder-scaling", n): ({0, 1}, 8) for n in (14, 15, 16)},
    ("decoder-scaling", 18): ({0}, 7),
    ("decoder-scaling", 19): ({0, 5}, 6),
}
EXEMPT = {
    ("pens", 4): "one printed row stands for two models, and venues hold years",
    ("sit", 11): "licences: no numbers, but digits in addresses",
}
LABEL_NUMBERS = re.compile(
    r"D = \d+, W = \d+|\(\d+, \d+,|3SUM|444SCC uses|\[\d+\]|𝒪.*"
)  # 444: a footnote mark
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")


def caption_of(paper: str, number: int | str) -> str:
    special = {("pens", "figure-4"): "Figure 4:", ("pens", 5): "(a) Final optimality gaps"}
    stop = "." if paper == "decoder-scaling" else ":"
    return special.get((paper, number), f"Table {number}{stop}")


def table_block(shared: Path, paper: str, number: int | str) -> list[str]:
    """Lines of the table beside its caption in the paper's text."""
    lines = (shared / "papers" / f"{paper}.md").read_text(encoding="utf-8").splitlines()
    caption = next(k for k, line in enumerate(lines) if line.startswith(caption_of(paper, number)))
    above = paper == "pens" or (paper, number) == ("tropical", 1)
    around = lines[:caption][::-1] if above else lines[caption + 1 :]
    # Columns are separated by tabs, in one paper by spaces (there the block ends at a blank line or a figure).
    is_row = re.compile(r"(?!Refer to caption).*\S" if paper == "tropical" else r".*\t")
    start = next(k for k, line in enumerate(around) if line.strip())
    block = []
    for k, line in enumerate(around[start:], start):
        between_halves = not line.strip() and (paper, number) == ("sit", 9) and "\t" in around[k + 1]
        if is_row.match(line):
            block.append(re.sub(r"</?[bu]>", "", line))
        elif not between_halves:
            break
    return block[::-1] if above else block


def undouble(line: str) -> str:
    """Undo the doubling of one paper's text, which gives each entry in plain letters and again in LaTeX."""
    line = re.sub(
        r"(\d+\.\d\d)¯?±(\d+\.\d\d)(?:\\underline\{)?\1\}?\\textsuperscript\{\\tiny\$\\pm\$\2\}",
        r"\1 \2",
        line,
    )
    line = re.sub(r"(\d+),(\d{3})\1\{,\}\2", r"\1,\2", line)
    return re.sub(r"(?<![\d.])(\d+\.\d+)\1(?![\d.])", r"\1", line)


def printed_numbers(shared: Path, paper: str, number: int | str) -> list[float]:
    """Every number in the table's block, in reading order, without headers and row labels."""
    headers, cells = LAYOUT[paper, number]
    found: list[float] = []
    for k, line in enumerate(table_block(shared, paper, number)):
        if k in headers or (paper != "tropical" and "\t" not in line.strip()):  # a header or a section title
            continue
        if paper == "tropical":
            # "(1,10)" is a pair of integers, "50,242" one number.
            line = re.sub(r"\((-?\d+),(-?\d+)\)", r"\1 \2", undouble(line))
        data = " ".join(line.rstrip().split("\t")[-cells:])
        data = LABEL_NUMBERS.sub("", data).replace("1.25×10^{-4}", "1.25e-4").replace("4090×", "")
        found += [float(token.replace(",", "")) for token in NUMBER.findall(data)]
    return found


def numbers_of(table: PublishedTable) -> list[float]:
    # The depth of decoder scaling's Table 1 is printed once for three rows.
    skipped = {"Depth", "Width"} if (table.paper, table.number) == ("decoder-scaling", 1) else set()
    return [c.number for c in table.cells if c.number is not None and c.column not in skipped]


def test_every_table_of_the_five_papers_is_there() -> None:
    expected = {"pens": 5, "eie": 7, "tropical": 5, "sit": 11, "decoder-scaling": 20}
    assert list(list_papers()) == list(expected)
    numbered = [key for key in ALL_TABLES if isinstance(key[1], int)]
    assert numbered == [(paper, n) for paper, last in expected.items() for n in range(1, last + 1)]


@pytest.mark.parametrize(("paper", "number"), [key for key in BLOCKS if key not in EXEMPT])
def test_numbers_are_those_of_the_paper_in_the_order_of_the_paper(
    shared: Path, paper: str, number: int | str
) -> None:
    printed = printed_numbers(shared, paper, number)
    if (paper, number) == ("decoder-scaling", 1):
        # Depth, printed once for three lines, and width are the labels; the last five cells start with the width.
        assert printed[::5] == [128, 256, 512] * 4
        printed = [x for k, x in enumerate(printed) if k % 5]
    table = load_table(paper, number)
    ours = numbers_of(table)
    assert len(ours) == len(printed)
    assert ours == printed


@pytest.mark.parametrize(("paper", "number"), BLOCKS)
def test_sampled_cells_occur_in_the_paper_as_printed(shared: Path, paper: str, number: int | str) -> None:
    table = load_table(paper, number)
    block = "\n".join(table_block(shared, paper, number))
    if paper == "tropical":
        block = undouble(block)
    cells = [c for c in table.cells if c.column != "Complexity"]  # written in plain letters
    for cell in random.Random(f"{paper} {number}").sample(cells, min(12, len(cells))):
        as_token = rf"(?<![\d.]){re.escape(cell.value)}(?!\d|\.\d)"
        assert re.search(as_token, block), f"{cell.row} / {cell.column}: {cell.value!r} is not in the paper"


@pytest.mark.parametrize(("paper", "number"), TEXT_ONLY)
def test_numbers_of_the_text_stand_in_the_sentences_that_their_notes_quote(
    shared: Path, paper: str, number: str
) -> None:
    text = " ".join((shared / "papers" / f"{paper}.md").read_text(encoding="utf-8").split())
    table = load_table(paper, number)
    for cell in table.cells:
        place = re.compile(rf"{re.escape(cell.row)} \(Section [\w.]+\): '(.*)'")
        quotes = [found[1] for note in table.notes if (found := place.fullmatch(note))]
        assert quotes, f"{cell.row}: no note quotes the sentence"
        for quote in quotes:
            assert " ".join(quote.split()) in text, quote
        as_token = rf"(?<![\d.]){re.escape(cell.value)}(?!\d|\.\d)"
        assert any(
            re.search(as_token, quote) or re.search(as_token, quote.replace("\\", "")) for quote in quotes
        ), f"{cell.row}: {cell.value}"


@pytest.mark.parametrize(
    ("paper", "number", "row", "column", "value"),
    [
        # Numbers that the papers' prose or abstract repeats with their row and column.
        ("pens", 3, "PENS-A (scaled)", "TSP10000 | Gap", "5.46"),
        ("pens", 3, "PENS-A", "TSP10000 | Gap", "9.74"),  # the prose has 9.47; the table stands
        ("decoder-scaling", 5, "D=42, W=128 greedy", "TSP1000 | Gap", "0.869%"),
        ("decoder-scaling", 5, "D=42, W=128 greedy", "TSP1000 | Time", "11m"),
        ("decoder-scaling", 5, "BQ bs16", "TSP1000 | Gap", "1.35%"),
        ("decoder-scaling", 5, "BQ bs16", "TSP1000 | Time", "18m"),
        ("decoder-scaling", 2, "D=96, W=32", "TSP1000 | Gap", "0.991%"),
        ("decoder-scaling", 3, "D=6, W=512", "TSP1000 | Gap", "3.871%"),
        ("decoder-scaling", 4, "D=42, W=128", "Sufficient budget | Time", "2.29h"),
        ("decoder-scaling", 6, "All", "D=42, W=128 | Gap", "2.346%"),
        ("decoder-scaling", 7, "D=42, W=128 w/o gated attention", "TSP1000 | Gap", "1.023%"),
        ("decoder-scaling", 17, "D=24, W=256 greedy", "Compute per solution", "434.4 GFLOPs"),
        ("decoder-scaling", 18, "D=6, W=512", "beam=64 | Gap", "0.0007%"),
        ("decoder-scaling", 18, "D=6, W=256", "beam=32 | Gap", "0.0008%"),  # implausible, as printed
        ("decoder-scaling", 19, "D=6, W=128", "TSP1000 RRC 1000 | Gap", "0.4785%"),
        ("decoder-scaling", 20, "LEHD D=24, W=64", "Parameters", "1.25M"),
    ],
)
def test_numbers_that_the_prose_repeats(paper: str, number: int, row: str, column: str, value: str) -> None:
    assert load_table(paper, number).cell(row, column).value == value


def test_learned_scale_at_the_training_length_is_one_over_root_d() -> None:
    assert load_table("eie", 5).cell("lambda", "n=100").number == 1 / math.sqrt(16)
    assert load_table("eie", 7).cell("lambda", "n=120").number == pytest.approx(1 / math.sqrt(32), abs=5e-4)


# Gaps of SIT's Table 1 that do not follow from the printed objectives; the table's notes name them.
INCONSISTENT_GAPS = {
    ("Concorde", "TSP10K"),
    ("Random Insertion", "TSP10K"),
    ("H-TSP", "TSP10K"),
    ("GLOP", "TSP10K"),
    ("LEHD RRC1,000", "TSP10K"),
    ("BQ bs16", "TSP5K"),
    ("LKH3", "CVRP5K"),
    ("BQ greedy", "CVRP5K"),
    ("Random Insertion", "CVRP100K"),
}


@pytest.mark.parametrize(("number", "tsp_reference"), [(1, "LKH3"), (9, "Concorde")])
def test_gaps_follow_from_the_objectives_in_the_same_columns(number: int, tsp_reference: str) -> None:
    table = load_table("sit", number)
    objectives = {
        (c.row, c.column.removesuffix(" | Obj.")): c.number for c in table.cells if "Obj." in c.column
    }
    off, checked = set(), 0
    for cell in table.cells:
        dataset = cell.column.removesuffix(" | Gap")
        objective = objectives.get((cell.row, dataset))
        if cell.number is None or objective is None or dataset == cell.column:
            continue
        reference = objectives["HGS" if dataset.startswith("CVRP") else tsp_reference, dataset]
        assert reference is not None
        digits = len(cell.value.rstrip("%").partition(".")[2])
        # Half a unit of the last printed digit of the gap, and of both objectives (0.005 length at most).
        slack = 0.51 * 10**-digits + 100 * 0.0102 / reference
        checked += 1
        if abs(100 * (objective / reference - 1) - cell.number) > slack:
            off.add((cell.row, dataset))
    assert checked == {1: 153, 9: 48}[number]
    assert off == (INCONSISTENT_GAPS if number == 1 else set())


def test_long_range_arena_averages_are_means_except_the_three_noted() -> None:
    table = load_table("tropical", 4)
    off = set()
    for row in table.rows:
        tasks = [table.cell(row, c).number for c in ("ListOps", "Text", "Retrieval", "Image", "Pathfinder")]
        average = table.cell(row, "Avg.").number
        assert average is not None
        if abs(sum(x for x in tasks if x is not None) / 5 - average) > 0.006:
            off.add(row)
    assert off == {"Elliptical", "Performer", "Tropical Transformer"}


SECONDS_PER_UNIT = {"hours": 3600, "minutes": 60, "seconds": 1, "milliseconds": 0.001}


@pytest.mark.parametrize(("paper", "number"), ALL_TABLES)
def test_number_and_seconds_follow_from_the_printed_value(paper: str, number: int | str) -> None:
    table = load_table(paper, number)
    assert table.title
    assert table.conditions["problem"]
    assert len({(c.row, c.column) for c in table.cells}) == len(table.cells)
    for cell in table.cells:
        where = f"{cell.row} / {cell.column}: {cell.value}"
        if cell.number is None:
            assert cell.unit in {"text", "setting"} or cell.value in {"OOM", "N/A", "—", "-"}, where
            assert cell.seconds is None, where
            continue
        value = re.sub(r"^(?:(\d) \\times )?10\^\{(-\d+)\}$", lambda m: f"{m[1] or 1}e{m[2]}", cell.value)
        plain = value.replace("×10^{-4}", "e-4").removeprefix("4090×").removeprefix("<").replace(",", "")
        suffix = r"%|M| GFLOPs|" + {"hours": "h", "minutes": "m", "seconds": "s", "milliseconds": "ms"}.get(
            cell.unit, "%"
        )
        assert float(re.sub(rf"({suffix})$", "", plain)) == cell.number, where
        assert set(cell.marks) <= set(table.marks), where
        if cell.unit in SECONDS_PER_UNIT:
            assert cell.seconds == pytest.approx(cell.number * SECONDS_PER_UNIT[cell.unit]), where
        else:
            assert cell.seconds is None, where


def test_tables_answer_to_the_names_that_papers_use() -> None:
    assert load_table("pens", "Table 2") == load_table("pens", 2) == load_table("pens", "2")
    assert load_table("pens", "Figure 4").cell("CoordNS", "TSP1000 | Gap").marks == ("bold",)


def test_unknown_names_are_answered_with_those_that_exist() -> None:
    with pytest.raises(UnknownNameError, match="decoder-scaling"):
        load_table("decoder scaling", 1)
    with pytest.raises(
        BadInputError, match=r"pens has no table 6; choose one of 1, 2, 3, 4, 5, figure-4, settings"
    ):
        load_table("pens", 6)
    table = load_table("sit", 1)
    with pytest.raises(UnknownNameError, match="Ours PRC1,000"):
        table.cell("Ours PRC1000", "TSP1K | Gap")
    with pytest.raises(UnknownNameError, match=r"TSP1K \| Gap"):
        table.cell("LKH3", "TSP1K | gap")
    with pytest.raises(BadInputError, match="prints nothing"):
        table.cell("Concorde", "CVRP1K | Gap")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("row,column,value\n", r"table-1\.csv:1: expected the columns row,column,value,number"),
        (
            "row,column,value,number,unit,seconds,mark\na,b,1%,x,percent,,\n",
            r"table-1\.csv:2: could not convert",
        ),
        ("row,column,value,number,unit,seconds,mark\na,b,1%\n", r"table-1\.csv:2: 3 fields where 7"),
    ],
)
def test_a_damaged_file_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    header = published.paper_room("pens") / "published" / "table-1.json"
    (tmp_path / "papers.json").write_bytes((published.HERE / "papers.json").read_bytes())
    room = tmp_path / "pens" / "published"
    room.mkdir(parents=True)
    (room / "table-1.json").write_bytes(header.read_bytes())
    (room / "table-1.csv").write_text(text)
    monkeypatch.setattr(published, "HERE", tmp_path)
    load_table.cache_clear()
    list_tables.cache_clear()
    try:
        with pytest.raises(BadInputError, match=message):
            load_table("pens", 1)
    finally:
        load_table.cache_clear()
        list_tables.cache_clear()
