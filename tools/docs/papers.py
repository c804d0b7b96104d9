"""A page per paper: every printed table, the numbers of the paper over those measured here (``results/tables``)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.docs.markdown import facts, folded, plain, shell, table, toctree

SCALES = ("stored", "full", "cpu", "smoke")
DASH = "–"
SPLIT = re.compile(r"(?<!\\)\|")
ESCAPED = re.compile(r"\\([^A-Za-z0-9\s])")
"""What the Markdown of a table shows as it is."""


@dataclass(frozen=True)
class Measured:
    """A file that ``nco-bench reproduce --markdown`` wrote: a line per printed number.

    Attributes
    ----------
    scale
        Of the reproduction.
    lines
        Cells by column title.
    notes, caption
        What stands below.
    """

    scale: str
    lines: tuple[dict[str, str], ...]
    notes: tuple[str, ...]
    caption: str


def read(file: Path, scale: str) -> Measured:
    """Read a reproduced table."""
    text = file.read_text()
    rows = [_cells(line) for line in text.splitlines() if line.startswith("| ")]
    head, body = rows[0], rows[2:]
    rest = [
        ESCAPED.sub(r"\1", line.strip())
        for line in text.splitlines()
        if line.strip() and not line.startswith("|")
    ]
    caption = next((line.strip("*") for line in rest if line.startswith("*")), "")
    notes = tuple(line for line in rest if not line.startswith("*"))
    return Measured(scale, tuple(dict(zip(head, row, strict=True)) for row in body), notes, caption)


def _cells(line: str) -> list[str]:
    return [ESCAPED.sub(r"\1", part.strip()) for part in SPLIT.split(line.strip().strip("|"))]


def pages(tables: Path, files: Path) -> dict[str, str]:
    """Return ``papers/index`` and a page per paper.

    Parameters
    ----------
    tables
        Folder of reproduced tables.
    files
        Folder for the copies that pages offer to download: ``papers/files`` below the site's source.
    """
    from nco_bench.papers.published import list_papers, list_tables, load_table

    files.mkdir(parents=True, exist_ok=True)
    made, listed = {}, []
    for paper, known in list_papers().items():
        parts = [
            f"# {known['short']}",
            "",
            f"*{known['title']}*, {known['authors']}.",
        ]
        parts += ["", _how_to_read(paper), ""]
        for entry in (one for one in list_tables() if one.paper == paper):
            published = load_table(paper, entry.number)
            parts += [f"## {entry.label}", "", plain(entry.title) + ".", ""]
            parts.append(_conditions(published.conditions))
            parts.append(_section(paper, entry.number, tables, files))
        made[f"papers/{paper}"] = "\n".join(parts)
        listed.append(f"[{known['short']}]({paper}.md)\n: {known['title']}, {known['authors']}.\n")
    made["papers/index"] = (
        "# Papers\n\nThe tables of five papers, each printed number beside ours. "
        "[How the stored tables were made](../results/tables.md) says on which machines and with which weights; "
        "`nco-bench reproduce` makes them anew.\n\n"
        + "\n".join(listed) + "\n" + toctree(list_papers())
    )  # fmt: skip
    return made


def _how_to_read(paper: str) -> str:
    return (
        "Each cell holds the printed number and, **in bold**, ours below it where one is stored, with what a "
        "difference means. *Reproduced*: the printed number meets our 95 % interval. *Differs*: it does not. "
        "*Other weights*: ours were trained less than the paper's, and the note says how far. Rows without any number of "
        "ours are left out here and stand in the files.\n\n"
        + shell(f"nco-bench reproduce {paper} --scale cpu")
    )


def _conditions(conditions: Mapping[str, str]) -> str:
    known = {plain(name).capitalize(): plain(said) for name, said in conditions.items()}
    return folded("Conditions of the paper", facts(known)) if known else ""


def _section(paper: str, number: int | str, tables: Path, files: Path) -> str:
    """Return a table's best reproduction, and the files of all."""
    name = f"{paper}-{number}" if isinstance(number, str) else f"{paper}-table-{number}"
    found = [(scale, tables / f"{name}-{scale}.md") for scale in SCALES]
    found = [(scale, file) for scale, file in found if file.is_file()]
    if not found:
        return f"No reproduction is stored: `nco-bench reproduce {paper} --table {number}` makes one.\n"
    links = []
    for scale, file in found:
        shutil.copyfile(file, files / file.name)
        links.append(f"{{download}}`{scale} <files/{file.name}>`")
    known = [read(file, scale) for scale, file in found]
    measured = next((one for one in known if any(map(_has_ours, one.lines))), known[0])
    return "\n".join(
        [
            _compact(measured),
            f"All numbers with intervals and reasons: {', '.join(links)}.",
            "",
        ]
    )


def _compact(measured: Measured) -> str:
    """Return rows and columns as printed, where a row has a number of ours; what is left out is counted."""
    ours = [line for line in measured.lines if _has_ours(line)]
    if not ours:
        said = "; ".join(plain(note) for note in measured.notes[:3])
        where = "is stored" if measured.scale == "stored" else f"was measured at the {measured.scale} scale"
        return f"Nothing {where}: {said}.\n"
    shown = list(dict.fromkeys(line["Row"] for line in ours))
    columns = list(dict.fromkeys(line["Column"] for line in ours))
    by_place = {(line["Row"], line["Column"]): line for line in measured.lines}
    rows = [[plain(row), *(_both(by_place.get((row, column))) for column in columns)] for row in shown]
    marks = {line["Reason"] for line in ours}
    notes = [
        note
        for note in measured.notes
        if not re.match(r"[a-z]{1,2} ", note) or note.split(" ", 1)[0] in marks
    ]
    left = len({line["Row"] for line in measured.lines}) - len(shown)
    rows_left = "1 row of the paper has" if left == 1 else f"{left} rows of the paper have"
    said = f"{rows_left} no number of ours here.\n\n" if left else ""
    return (
        table(["", *(plain(column).replace("\\|", "<br>") for column in columns)], rows, right=range(1, len(columns) + 1))
        + f"\n{said}" + folded("Notes", "\n".join(f"- {plain(note)}" for note in [*notes, measured.caption] if note))
    )  # fmt: skip


def _has_ours(line: Mapping[str, str]) -> bool:
    return line.get("Measured", DASH) not in (DASH, "")


def _both(line: dict[str, str] | None) -> str:
    if line is None:
        return ""
    published = plain(line["Published"])
    if not _has_ours(line):
        return published
    reason = line["Reason"]
    mark = f" ({plain(reason)})" if re.fullmatch(r"[a-z]{1,2}", reason) else ""
    return f"{published}<br>**{plain(line['Measured'])}**<br>{plain(line['Status'])}{mark}"
