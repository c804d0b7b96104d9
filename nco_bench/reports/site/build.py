"""The leaderboard as a folder of files: made from records alone, opened from disk or any web server, and asking nobody else.

The page, its style and scripts are files in ``page_files/``. Data lie beside them as scripts that each hand over one JSON
document, because a page that is opened from disk may load scripts but not fetch files; they are loaded when they are looked
at.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson
import pandas as pd

from nco_bench import __version__
from nco_bench.datasets.load import Places
from nco_bench.errors import BadInputError, ResultsError, counted
from nco_bench.files import writing_together
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.result_frame import ResultFrame
from nco_bench.reports.site import receipts
from nco_bench.reports.site.columns import dataset_columns, record_columns
from nco_bench.reports.site.pictures import Drawn, drawn_routes
from nco_bench.reports.site.rows import CHANGING, Board, board, catalogue, run_facts
from nco_bench.runs.finding import find_runs
from nco_bench.runs.stored_run import Run
from nco_bench.runs.verify import verify

PICTURES = 4
"""Instances per dataset that are drawn, at most."""
SITE_BYTES = 2_850_000
"""What the data may take: where pictures would fill more, fewer instances per dataset are drawn."""
PAGE = (
    "index.html",
    "style.css",
    "data.js",
    "format.js",
    "plot.js",
    "routes.js",
    "board.js",
    "run.js",
    "main.js",
)
MARK = "nco-bench-site.json"
"""Says that a folder is a site of ours, which the next build may replace."""


@dataclass(frozen=True)
class Built:
    """What a site holds.

    Attributes
    ----------
    out
        Its folder.
    records, rows, datasets, verified, pictures
        Records; rows of all tables, and those whose runs were all verified; datasets; instances that are drawn.
    files, bytes
        Size of the folder.
    remarks
        What was left out, and why.
    """

    out: Path
    records: int
    rows: int
    datasets: int
    verified: int
    pictures: int
    files: int
    bytes: int
    remarks: tuple[str, ...]


def build_site(results: Sequence[Path], out: Path, places: Places, *, check: bool = False) -> Built:
    """Make the site.

    Parameters
    ----------
    results
        Folders of runs.
    out
        Folder of the site; one that a build made before is replaced, any other must be empty or absent.
    places
        Where datasets and the reference ledger are.
    check
        Verify all runs now; without, those count as verified that have a receipt, see `nco_bench.reports.site.adding`.

    Raises
    ------
    BadInputError
        Where `out` holds something else.
    ResultsError
        As `load_frame` and `summarise`.
    """
    _refuse_other(out)
    frame = load_frame(results, places.instances)
    arranged = board(summarise(frame))
    checked = _checked(frame.runs, results, places, check)
    documents, drawn, remarks = _documents(frame, arranged, checked, places)
    _write(out, documents)
    sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    verified = documents["index"]["rows"]["verified"].count("yes")
    return Built(
        out, len(frame.records), len(arranged.rows), len(arranged.columns), verified, drawn, len(sizes), sum(sizes), remarks
    )  # fmt: skip


def _refuse_other(out: Path) -> None:
    if out.name in ("", ".."):
        raise BadInputError(
            f"--out {out}: is replaced as a whole; name a folder in it, such as {out / 'site'}."
        )
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file()):
        raise BadInputError(f"--out {out}: holds something else than a site; name an empty or a new folder.")


def _checked(runs: Sequence[Run], results: Sequence[Path], places: Places, check: bool) -> dict[str, bool]:
    if not check:
        return dict.fromkeys(receipts.verified(runs, results), True)
    holds = {run.run_id: True for run in runs}
    for folder in dict.fromkeys(results):
        if find_runs(folder):
            checked = verify(folder, (), places)
            holds = {run: held for run, held in holds.items() if run not in checked.unscored}
            holds |= {finding.run: False for finding in checked.findings}
    return holds


def _documents(
    frame: ResultFrame, arranged: Board, checked: Mapping[str, bool], places: Places
) -> tuple[dict[str, Any], int, tuple[str, ...]]:
    """Return all data files by name, the number of drawn instances, and remarks."""
    codes = {id(group): code for code, group in enumerate(frame.groups)}
    by_group = dict(list(frame.records.groupby("group", sort=False)))
    parts = [
        pd.concat([by_group[codes[id(s.group)]] for s in column.cells.values()])
        for column in arranged.columns
    ]
    environments, runs = _environments(frame.runs)
    index = catalogue(arranged, checked)
    index["made"] = {"version": __version__, "records": len(frame.records), "runs": len(frame.runs)}
    documents: dict[str, Any] = {"index": index, "environments": environments}
    for number, part in enumerate(parts):
        documents[f"set-{number}"] = dataset_columns(part, frame)
    holds = frozenset(name for name, good in checked.items() if good)
    for identifier, row in zip(arranged.ids, arranged.rows, strict=True):
        records = record_columns(by_group[codes[id(row[2].group)]], frame.messages)
        documents[f"run-{identifier}"] = run_facts(row, runs, holds) | {"records": records}
    room = SITE_BYTES - sum(len(orjson.dumps(document)) for document in documents.values())
    drawn, count = _within_budget(frame, arranged, codes, parts, places, room)
    for number, picture in enumerate(drawn):
        documents[f"set-{number}"]["remark"] = picture.remark
        if picture.instances:
            documents[f"pictures-{number}"] = {str(i): one for i, one in picture.instances.items()}
    for identifier, (number, _, summary) in zip(arranged.ids, arranged.rows, strict=True):
        tours = drawn[number].tours.get(codes[id(summary.group)], {})
        documents[f"run-{identifier}"]["tours"] = {str(i): tour for i, tour in tours.items()}
    without: dict[str, list[str]] = {}
    for column, picture in zip(arranged.columns, drawn, strict=True):
        if picture.remark:
            without.setdefault(picture.remark, []).append(column.key)
    remarks = [f"{remark} No pictures of {', '.join(names)}." for remark, names in without.items()]
    if count < PICTURES:
        fewer = f"{counted(count, 'instance')} per dataset {'is' if count == 1 else 'are'}"
        remarks.append(f"{fewer} drawn instead of {PICTURES}, to keep the site small.")
    return documents, sum(len(d.instances) for d in drawn), tuple(remarks)


def _within_budget(
    frame: ResultFrame,
    arranged: Board,
    codes: Mapping[int, int],
    parts: Sequence[pd.DataFrame],
    places: Places,
    room: int,
) -> tuple[list[Drawn], int]:
    """Draw as many instances per dataset, alike for all, as there is room for."""
    for count in range(PICTURES, 0, -1):
        drawn = [
            drawn_routes(frame, column, codes, part, places, count)
            for column, part in zip(arranged.columns, parts, strict=True)
        ]
        size = sum(len(orjson.dumps([_texts(d.instances), _texts(d.tours)])) for d in drawn)
        if size <= room:
            return drawn, count
    return [Drawn(remark="There is no room for pictures of so many rows.") for _ in parts], 0


def _texts(value: Any) -> Any:
    return {str(k): _texts(v) for k, v in value.items()} if isinstance(value, dict) else value


def _environments(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], dict[str, tuple[dict[str, Any], int]]]:
    """Return the distinct environments, and every run's facts with the number of its own."""
    found: dict[bytes, int] = {}
    of_run = {}
    for run in runs:
        environment = {
            key: value for key, value in (run.info.get("environment") or {}).items() if key not in CHANGING
        }
        environment.pop("revision", None)  # stands with the run
        text = orjson.dumps(environment, option=orjson.OPT_SORT_KEYS)
        of_run[run.run_id] = (run.info, found.setdefault(text, len(found)))
    return [orjson.loads(text) for text in found], of_run


def _write(out: Path, documents: Mapping[str, Any]) -> None:
    """Write the folder beside its place, then put it there: a build that is stopped leaves the site of before."""
    out = out.resolve()  # a link stays one
    aside, before = out.with_name(f".{out.name}.part"), out.with_name(f".{out.name}.before")
    try:
        with writing_together(out.parent):
            shutil.rmtree(aside, ignore_errors=True)
            _fill(aside, documents)
            shutil.rmtree(before, ignore_errors=True)
            if out.exists():
                out.replace(before)
            aside.replace(out)
            shutil.rmtree(before, ignore_errors=True)
    except OSError as error:
        raise ResultsError(f"{out}: cannot be written ({error.strerror}).") from error


def _fill(folder: Path, documents: Mapping[str, Any]) -> None:
    page = files("nco_bench.reports.site").joinpath("page_files")
    mark = {"made_by": "nco-bench site build", "version": __version__}
    (folder / "data").mkdir(parents=True)
    for name, document in documents.items():
        content = orjson.dumps(document)
        (folder / "data" / f"{name}.js").write_bytes(b'NCO.give("%b",%b);\n' % (name.encode(), content))
    for name in PAGE:
        (folder / name).write_bytes(page.joinpath(name).read_bytes())
    (folder / MARK).write_bytes(orjson.dumps(mark, option=orjson.OPT_APPEND_NEWLINE))
