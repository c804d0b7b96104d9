"""The folder of the site: what stands in it follows from the records, it is small, and it replaces only itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from site_records import solve

from nco_bench.cli.app import run
from nco_bench.datasets.load import Places, load_dataset
from nco_bench.errors import BadInputError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.site import receipts
from nco_bench.reports.site.build import PAGE, build_site
from nco_bench.reports.site.columns import ranges
from nco_bench.runs.finding import find_runs
from nco_bench.runs.stored_run import Run


def given(site: Path, name: str) -> Any:
    """The document in a data file."""
    text = (site / "data" / f"{name}.js").read_bytes()
    before = b'NCO.give("%b",' % name.encode()
    assert text.startswith(before)
    assert text.endswith(b");\n")
    return orjson.loads(text[len(before) : -3])


def test_every_row_says_what_the_tables_say(site: Path, records: Path) -> None:
    rows = given(site, "index")["rows"]
    summaries = summarise(load_frame(records, records.parent / "instances"))
    assert len(rows["id"]) == len(set(rows["id"])) == len(summaries)
    wanted = sorted((s.mean_cost, s.mean_gap_percent, s.gap_low, s.failed) for s in summaries)
    found = sorted(zip(rows["cost"], rows["gap"], rows["low"], rows["failed"], strict=True))
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-5)


def test_a_row_says_where_only_some_instances_were_repeated(tmp_path: Path) -> None:
    """Its page said 2, as if every instance had been solved twice, and the first page nothing."""
    results, places = tmp_path / "runs", Places(tmp_path / "instances")
    for limit, repeats in ((3, 1), (2, 2)):
        solve(results, ["nearest-neighbor"], "tsp20:count=3", limit=limit, repeats=repeats)
    build_site([results], tmp_path / "site", places)
    rows = given(tmp_path / "site", "index")["rows"]
    assert rows["repeats"] == ["1 to 2"]
    assert given(tmp_path / "site", f"run-{rows['id'][0]}")["repeats"] == "1 to 2"


def test_the_records_of_a_row_give_its_gap(site: Path) -> None:
    index = given(site, "index")
    for number, identifier in enumerate(index["rows"]["id"]):
        one = given(site, f"run-{identifier}")["records"]
        costs = [cost for cost in one["cost"] if cost is not None]
        assert np.mean(costs) == pytest.approx(index["rows"]["cost"][number], rel=1e-6)
        assert (
            sum(stop - first for _, first, stop in one["ranges"]) == len(one["cost"]) == len(one["seconds"])
        )
        set_ = given(site, f"set-{index['rows']['dataset'][number]}")
        assert set(set_["reference"]) == {3}  # as the fixture says
        gap = np.mean([100 * (cost - 3) / 3 for cost in costs])
        assert gap == pytest.approx(index["rows"]["gap"][number], rel=1e-5)


def test_drawn_tours_are_those_that_are_stored_and_the_best_is_the_cheapest(
    site: Path, records: Path
) -> None:
    import base64

    index = given(site, "index")
    dataset = load_dataset("tsp20:count=6", Places(records.parent / "instances"))
    number = next(i for i, d in enumerate(index["datasets"]) if d["problem"] == "tsp")
    pictures = given(site, f"pictures-{number}")
    assert sorted(pictures) == ["0", "1", "2", "3"]
    xy = np.frombuffer(base64.b64decode(pictures["0"]["xy"]), "<u2").reshape(-1, 2)
    coords = dataset.instances[0].coords
    spread = (coords - coords.min(axis=0)) / np.ptp(coords, axis=0).max()
    np.testing.assert_allclose(xy / 65535, spread, atol=1e-5)
    rows = [i for i, d in zip(index["rows"]["id"], index["rows"]["dataset"], strict=True) if d == number]
    runs = [given(site, f"run-{i}") for i in rows]
    stored = {run["name"]: run["tours"]["0"] for run in runs}
    cheapest = min(runs, key=lambda run: run["records"]["cost"][0])
    assert pictures["0"]["best"][0] == stored[cheapest["name"]]
    stored_tours = {
        tuple(run.solution(r))
        for run in find_runs(records)
        for r in run.records()
        if r.instance == 0 and r.n == 20
    }
    assert {tuple(np.frombuffer(base64.b64decode(t), "<u2")) for t in stored.values()} <= stored_tours


def test_same_records_make_the_same_bytes(site: Path, records: Path, tmp_path: Path) -> None:
    build_site([records], tmp_path / "again", Places(records.parent / "instances"))
    for path in site.rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(site)).read_bytes(), path.name


def test_a_folder_that_holds_something_else_is_refused_untouched(records: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(
        BadInputError, match=r"--out \.: is replaced as a whole; name a folder in it, such as site"
    ):
        build_site([records], Path("."), Places(tmp_path))
    with pytest.raises(BadInputError, match="holds something else"):
        build_site([records], tmp_path, Places(records.parent / "instances"))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_site_is_replaced_by_the_next(site: Path, records: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(site, tmp_path / "site")
    (tmp_path / "site" / "data" / "run-old.js").write_text("old")
    build_site([records], tmp_path / "site", Places(records.parent / "instances"))
    assert not (tmp_path / "site" / "data" / "run-old.js").exists()
    assert (tmp_path / "site" / "index.html").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["site"]


def test_builds_at_once_and_into_a_link_leave_a_whole_site(site: Path, records: Path, tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "place")

    def build(_: int) -> None:
        build_site([records], tmp_path / "link", Places(records.parent / "instances"))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(build, range(6)))
    made = {str(p.relative_to(tmp_path / "place")) for p in (tmp_path / "place").rglob("*")}
    assert made == {str(p.relative_to(site)) for p in site.rglob("*")}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "place"]
    assert (tmp_path / "link").is_symlink()


def test_nothing_on_the_page_names_another_place(site: Path) -> None:
    for name in PAGE:
        text = (site / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert "innerHTML" not in text


def test_receipts_hold_only_for_what_was_verified(records: Path, tmp_path: Path) -> None:
    import shutil

    name = sorted(p.name for p in records.iterdir())[0]
    shutil.copytree(records / name, tmp_path / "runs" / name)
    one = Run(tmp_path / "runs" / name)
    receipts.add(tmp_path / "runs", [one])
    assert receipts.verified([one], [tmp_path / "runs"]) == {name}
    lines = (one.folder / "records.jsonl").read_bytes().splitlines(keepends=True)
    (one.folder / "records.jsonl").write_bytes(b"".join(lines[:-1]))  # the worst record is taken away
    assert receipts.verified([one], [tmp_path / "runs"]) == frozenset()


def test_verify_marks_rows_and_those_that_fail(
    records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hostile copy fails: its configuration's hash is invented, so its keys do not follow from it."""
    line = [
        "site",
        "build",
        "--verify",
        "--results",
        str(records),
        "--instances",
        str(records.parent / "instances"),
    ]
    assert run([*line, "--out", str(tmp_path / "s"), "--json"]) == 0
    rows = given(tmp_path / "s", "index")["rows"]
    assert sorted(rows["verified"]) == ["fails", "yes", "yes", "yes", "yes"]
    assert orjson.loads(capsys.readouterr().out)["verified"] == 4


def test_ranges_break_where_instances_or_repeats_do() -> None:
    assert ranges([0, 0, 0, 1, 1], [3, 4, 7, 3, 4]) == [[0, 3, 5], [0, 7, 8], [1, 3, 5]]


def test_a_hundred_thousand_records_take_under_three_megabytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From two sites of random costs, as long as real ones: what further records add, ten solvers on ten sizes each."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "benchmarks"))
    from site_size import write_results

    taken = []
    for records in (5_000, 15_000):
        write_results(tmp_path / f"{records}", records, solvers=10)
        built = build_site([tmp_path / f"{records}"], tmp_path / f"site-{records}", Places(tmp_path / "none"))
        assert built.records == records
        taken.append(built.bytes)
    each = (taken[1] - taken[0]) / 10_000
    assert taken[1] + 85_000 * each < 3e6
