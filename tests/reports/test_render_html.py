"""The HTML report: self-contained, small, right numbers; what it does in a browser is in `test_html_in_browser`."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import numpy as np
import pytest
from html_pages import page_of, page_of_three_solvers
from run_folders import Results, make_cell, make_records

from nco_bench.datasets.load import Places
from nco_bench.errors import MissingDependencyError
from nco_bench.reports.frame.aggregate import summarise
from nco_bench.reports.frame.load import load_frame
from nco_bench.reports.frame.rows import arrange
from nco_bench.reports.html import page as render_html
from nco_bench.reports.html import pictures
from nco_bench.reports.html import plots as html_plots
from nco_bench.reports.html.tables import plain_table

pytest.importorskip("bokeh")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of_three_solvers(tmp_path_factory.mktemp("page"))


def test_nothing_is_loaded_from_anywhere_and_names_are_escaped(text: str) -> None:
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)
    assert not re.search(r"https://(cdn|maps)\.", text)  # a name between dollar signs asked for MathJax
    assert "<b>solver" not in text
    assert "&lt;b&gt;solver" in text


def test_hashes_and_environment_stand_in_the_page(text: str) -> None:
    for fact in ("sha-set-100", "f" * 64, "config-net-greedy", "Test CPU @ 2.0 GHz", "numpy 2.0", "r1"):
        assert fact in text


def test_only_long_tables_of_runs_and_hashes_are_folded(text: str) -> None:
    assert "<details open><summary>Runs (" in text
    assert render_html._folded("Runs", render_html.MAX_OPEN + 1, "").startswith("<details><summary>Runs (21)")


def test_datasets_that_cannot_be_found_or_differ_cost_the_pictures_only(text: str) -> None:
    assert "No pictures of set-100: Unknown dataset" in text
    assert "No pictures of tsp10:count=2: the dataset of this name is not the one that was solved" in text


def test_missing_bokeh_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bokeh.resources", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'nco-bench\[html\]'"):
        html_plots.bokeh_script()


def test_scatter_data_are_the_gaps_in_order_of_instances(text: str) -> None:
    [data] = re.findall(r'id="scatter-data">(.*?)</script>', text)
    first = json.loads(data)[0]
    gaps = {
        m: np.frombuffer(base64.b64decode(g), "<f4")
        for m, g in zip(first["methods"], first["gaps"], strict=True)
    }
    assert gaps["net greedy"].tolist() == pytest.approx([10.0, 20.0])
    assert np.isnan(gaps["<b>solver"][1])
    assert first["names"] == "set-100-0\nset-100-1"


def test_a_solver_has_one_colour_in_the_whole_page(text: str) -> None:
    """The legends of both plots and the scatter plot's points; lkh3 has another one than the network."""
    [data] = re.findall(r'id="scatter-data">(.*?)</script>', text)
    first = json.loads(data)[0]
    scattered = dict(zip(first["methods"], first["colours"], strict=True))
    legends = re.findall(r'style="color:(#\w+)">[^<]*</span>([^<]*)</li>', text)
    assert [name for _, name in legends].count("net greedy") == 2
    assert {(colour, name) for colour, name in legends if name == "net greedy"} == {
        (scattered["net greedy"], "net greedy")
    }
    assert scattered["lkh3"] != scattered["net greedy"]


def test_a_table_of_gaps_has_no_column_for_data_without_references(results: Results) -> None:
    known, unknown = make_cell(0, "lkh3", "set-a"), make_cell(1, "lkh3", "set-b")
    results.run(
        "r1", (known, make_records(known, [11.0], [10.0])), (unknown, make_records(unknown, [11.0], [None]))
    )
    [main] = re.findall(r'<table id="table-main".*?</table>', page_of(results), flags=re.DOTALL)
    [gaps] = re.findall(r'<table id="table-gaps".*?</table>', page_of(results), flags=re.DOTALL)
    assert "set-a" in main
    assert "set-b" in main
    assert "set-a" in gaps
    assert "set-b" not in gaps


def test_noise_of_exact_solvers_takes_no_decades(results: Results) -> None:
    """Beside a gap of 5 %, one of 2e-14 % stands at the bottom of an axis that ends a factor of ten below or less."""
    parts = []
    for index, (solver, gap) in enumerate([("concorde", 2e-14), ("lkh3", 0.005), ("net", 5.0)]):
        cell = make_cell(index, solver, "set-100")
        parts.append((cell, make_records(cell, [10.0 * (1 + gap / 100)] * 2, [10.0] * 2)))
    results.run("r1", *parts)
    frame = load_frame(results.folder)
    rows, columns = arrange(summarise(frame))
    [plot] = html_plots.pareto_figures(columns, rows, html_plots.looks(frame, rows))
    assert plot.y_range.start > 0.5
    # The gaps within noise stood beside a tick that said 1 or 2 %, as if they were that large.
    ((floor, label),) = plot.yaxis[0].major_label_overrides.items()
    assert label == "≤ 0.01"
    assert sorted(plot.renderers[-1].data_source.data["y"])[:2] == [floor, floor]
    assert plot.yaxis[0].ticker.ticks[0] == floor
    assert min(plot.yaxis[0].ticker.ticks[1:]) > 1.3 * floor
    [exact] = html_plots.pareto_figures(columns, rows[:2], html_plots.looks(frame, rows))
    assert exact.y_range.end - exact.y_range.start >= 1.0


def test_best_and_worst_tours_are_drawn_from_stored_solutions(results: Results, tmp_path: Path) -> None:
    """Two generated instances; the identity is best on one of them and worst on the other."""
    from nco_bench.datasets.load import load_dataset
    from nco_bench.problems import tsp

    places = Places(tmp_path / "instances")
    dataset = load_dataset("tsp10:count=2", places)
    cell = make_cell(0, "walk", dataset.name, dataset_sha256=dataset.sha256)
    tours = [np.arange(10, dtype="<i4"), np.array([0, 2, 1, 3, 4, 5, 6, 7, 8, 9], dtype="<i4")]
    costs = [tsp.score(i, t) for i, t in zip(dataset.instances, tours, strict=True)]
    records = make_records(cell, costs, [costs[0] / 1.1, costs[1] / 1.3], n=10)
    for position, record in enumerate(records):
        record.solution = (10 * position, 10)
    folder = results.run("r1", (cell, records))
    (folder / "solutions.bin").write_bytes(b"".join(t.tobytes() for t in tours))
    text = render_html.render(load_frame(results.folder), places=places)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    name = dataset.name
    assert captions == [
        f"walk on {name}-{i}: cost {costs[i]:.6g}, gap {gap} % ({word})"
        for i, gap, word in ((0, "10.000", "best"), (1, "30.000", "worst"))
    ]
    assert text.count('<img src="data:image/svg+xml;base64,') == 2


def test_packings_without_references_are_drawn_by_load_rate_beside_a_table_of_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nco_bench.runs.display import QuietDisplay
    from nco_bench.runs.request import RunRequest
    from nco_bench.runs.runner import run

    places = Places(tmp_path / "instances")
    for solvers, data in (
        (("extreme-point",), "bpp3d8:120x100:count=3"),
        (("majority",), "quickselect:count=4"),
    ):
        run(RunRequest(solvers, (data,), tmp_path / "runs", places), QuietDisplay())
    frame = load_frame(tmp_path / "runs")
    text = render_html.render(frame, places=places)
    [packings] = [i for i, group in enumerate(frame.groups) if group.cell.problem == "bpp3d"]
    rates = frame.records["cost"][frame.records["group"] == packings]
    captions = re.findall(r"<figcaption>.*?load rate (.*?) % \((.*?)\)</figcaption>", text)
    assert captions == [(f"{rates.max():.3f}", "best"), (f"{rates.min():.3f}", "worst")]
    monkeypatch.setitem(
        pictures.VECTOR_UP_TO, "bpp3d", 7
    )  # boxes are three faces each: as SVG 800 took 0.65 MB
    assert (
        len(re.findall('<img src="data:image/png;base64,(.*?)"', render_html.render(frame, places=places)))
        == 2
    )
    assert "Load rate (%)" in text
    assert 'id="table-tasks"' in text
    assert 'id="table-gaps"' not in text  # nothing has a reference


def test_lines_inside_a_filled_marker_show() -> None:
    """In the marker's own colour a crossed circle was a disc, as another row's, and unlike its legend."""
    plot = html_plots._figure("", "", "", "")
    styles = {"a": ("#112233", "circle_x", "⊗"), "b": ("#112233", "circle", "●")}
    points = [(1.0, 1.0, 1.0, key) for key in ("a", "a", "b", "b")]
    html_plots._marks(plot, points, styles, ["", " (1 of 2)", "", " (1 of 2)"])
    edges = plot.renderers[0].data_source.data["edge"]
    assert edges == ["#ffffff", "#112233", "#112233", "#112233"]


def test_a_choice_without_tasks_has_no_table_of_them(tmp_path: Path) -> None:
    """Their columns are still there, and the page was refused for want of them."""
    from nco_bench.runs.display import QuietDisplay
    from nco_bench.runs.request import RunRequest
    from nco_bench.runs.runner import run

    places = Places(tmp_path / "instances")
    for solver, data in (("nearest-neighbor", "tsp8:count=2"), ("majority", "quickselect:count=4")):
        run(RunRequest((solver,), (data,), tmp_path / "runs", places), QuietDisplay())
    text = render_html.render(load_frame(tmp_path / "runs").select(datasets=["tsp*"]), places=places)
    assert 'id="table-tasks"' not in text


def test_datasets_without_a_picture_take_no_place_of_those_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks come first by name; six of them left a section of pictures without any."""
    from nco_bench.runs.display import QuietDisplay
    from nco_bench.runs.request import RunRequest
    from nco_bench.runs.runner import run

    monkeypatch.setattr(pictures, "MAX_DATASETS", 1)
    places = Places(tmp_path / "instances")
    for solver, data in (("majority", "quickselect:count=4"), ("extreme-point", "bpp3d8:120x100:count=2")):
        run(RunRequest((solver,), (data,), tmp_path / "runs", places), QuietDisplay())
    frame = load_frame(tmp_path / "runs")
    columns = sorted(arrange(summarise(frame))[1], key=lambda column: column.title, reverse=True)
    assert columns[0].title.startswith("quickselect")
    drawn, remarks = pictures.best_and_worst(frame, columns, places, {})
    assert len(drawn) == 2
    assert remarks == []


@pytest.mark.slow
def test_hundred_thousand_records_stay_below_five_megabytes(results: Results) -> None:
    """Ten solvers on ten sets of 1,000."""
    generator = np.random.default_rng(0)
    parts = []
    for index in range(100):
        cell = make_cell(index, f"solver-{index // 10}", f"set-{index % 10}")
        costs = generator.normal(11.0, 0.2, 1000).tolist()
        parts.append((cell, make_records(cell, costs, [10.0] * 1000, n=100 * (index % 10 + 1))))
    results.run("r1", *parts)
    text = page_of(results)
    assert len(text.encode()) < 5_000_000


def test_plots_say_in_words_what_they_are(text: str) -> None:
    """To who hears the page a canvas is nothing."""
    labels = re.findall(r'<div role="figure" aria-label="(.*?)">', text)
    assert labels[0] == "Gap against time, set-100 (2); the tables hold its numbers"
    assert 'role="figure" aria-label="Gaps of two methods' in text
    assert text.count('role="figure"') == text.count("data-root-id=")


def test_gaps_of_outliers_are_numbers_and_dates_stand_in_one_line() -> None:
    """As words -0.081 came after -0.068, and a date was cut at its hyphens."""
    html = plain_table(
        "Outliers", ("Date", "Day", "Gap (%)"), [("a", "2026-11-21T10:12:36+00:00", "-0.081")], numbers=(2,)
    )
    assert '<td data-value="-0.081">-0.081</td>' in html
    assert '<td class="text short">2026-11-21T10:12:36+00:00</td>' in html
