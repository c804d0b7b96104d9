"""The HTML report: self-contained, small, right numbers; in headless Chromium it sorts, hovers and logs no error."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from chromium import CHROMIUM, Page, browse
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


def three_solvers(results: Results) -> None:
    """Gaps of lkh3 0 %, net greedy 10 and 20 %, <b>solver 30 % and a failure; net on set-200 too."""
    weights = {"name": "net-weights", "sha256": "f" * 64}
    net = {"kind": "neural", "decoding": "greedy", "weights": weights}
    cells = [
        (make_cell(0, "lkh3", "set-100"), [10.0, 10.0], 100),
        (make_cell(1, "net", "set-100", **net), [11.0, 12.0], 100),
        (make_cell(2, "<b>solver", "set-100"), [13.0, "oom"], 100),
        (make_cell(3, "net", "set-200", **net), [12.0, 12.5], 200),
        (make_cell(4, "lkh3", "set-200"), [10.0, 10.0], 200),
    ]
    results.run("r1", *((c, make_records(c, costs, [10.0, 10.0], n=n)) for c, costs, n in cells))


def page_of(results: Results) -> str:
    return render_html.render(load_frame(results.folder), places=Places(results.folder.parent / "instances"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of three solvers, and of a dataset whose name now stands for other data."""
    results = Results(tmp_path_factory.mktemp("page") / "runs")
    three_solvers(results)
    other = make_cell(0, "lkh3", "tsp10:count=2", dataset_sha256="0" * 64)
    results.run("r2", (other, make_records(other, [3.0, 4.0], [3.0, 3.0], n=10)))
    return page_of(results)


def test_nothing_is_loaded_from_anywhere_and_names_are_escaped(text: str) -> None:
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=[\"']?(https?:)?//", text)
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


METHODS = "Array.from(document.getElementById('table-main').tBodies[0].rows, (r) => r.cells[0].textContent)"
GAP_BUTTON = (
    "Array.from(document.querySelectorAll('#table-main thead button')).find((b) => b.textContent === 'Gap')"
)
FOCUSED = "document.activeElement"
READY = "document.documentElement.dataset.ready === 'yes'"
CHOOSE = """((id, method) => {
  const select = document.getElementById(id);
  select.value = String(Array.from(select.options).findIndex((o) => o.text === method));
  select.dispatchEvent(new Event("change"));
})"""
POINT = """(() => {  // where the first point of the scatter plot is in the window, once Bokeh has laid the plot out
  const model = scatterModel("scatter"), points = scatterModel("scatter-points").data;
  const view = Bokeh.index.find_one(model);
  if (!view || !view.has_finished() || !points.x.length) return null;
  view.el.scrollIntoView({ block: "center" });
  const box = view.canvas_view.events_el.getBoundingClientRect();
  return [box.left + view.frame.x_scale.compute(points.x[0]), box.top + view.frame.y_scale.compute(points.y[0])];
})()"""
TIPS = """(() => {  // texts that name the first instance anywhere in a plot: only its tooltip does
  const found = [];
  (function walk(node) {
    if (["STYLE", "SCRIPT", "TD", "TH"].includes(node.nodeName)) return;
    if (node.shadowRoot) walk(node.shadowRoot);
    for (const child of node.childNodes) {
      if (child.nodeType === 3 && child.textContent.includes("set-100-0")) found.push(child.textContent.trim());
      else walk(child);
    }
  })(document.body);
  return found;
})()"""
FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def hover_first_point(page: Page) -> list[str]:
    """Move the mouse over the first point until its tooltip stands in the page; return the tooltip's texts.

    Nothing here counts time: a browser that is slow to draw is asked again, and one that is dead ends in an error.
    """
    page.wait(f"{POINT} !== null")
    for step in range(10_000):
        x, y = page.evaluate(POINT)
        page.move(x + step % 2, y)
        page.evaluate(FRAME)
        tips: list[str] = page.evaluate(TIPS)
        if tips:
            return tips
    raise AssertionError("the tooltip never came")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("no Chromium; apt-get install chromium")
    with browse(tmp_path / "profile") as opened:
        yield opened


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 400])
def test_page_sorts_by_keyboard_and_hovers_without_console_errors(
    text: str, tmp_path: Path, page: Page, width: int, dark: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=width, dark=dark)
    page.wait(READY)
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # tables scroll in themselves

    page.evaluate(f"{GAP_BUTTON}.focus()")
    page.key("Enter")
    assert page.evaluate(METHODS) == ["lkh3", "net greedy", "<b>solver"]  # 0, 15, 30 %
    assert page.evaluate(f"{GAP_BUTTON}.closest('th').getAttribute('aria-sort')") == "ascending"
    page.key("Enter")
    assert page.evaluate(METHODS) == ["<b>solver", "net greedy", "lkh3"]

    page.evaluate(f"{CHOOSE}('scatter-x', 'net greedy')")
    page.evaluate(f"{CHOOSE}('scatter-y', 'lkh3')")
    status = page.evaluate("document.getElementById('scatter-result').textContent")
    assert status.startswith("2 instances: lkh3 is better on 2, net greedy on 0, equal on 0")
    colours = page.evaluate("scatterModel('scatter-points').data.colour")
    data = page.evaluate("scatterData[0]")
    assert colours == [data["colours"][data["methods"].index("lkh3")]] * 2  # of who is better
    assert any("10.0000 %" in tip for tip in hover_first_point(page))
    assert page.console == []


def test_the_edge_where_bokeh_leaves_specks_is_clipped(text: str, tmp_path: Path, page: Page) -> None:
    """Bokeh draws a pixel or two of the axis label at the left edge of a plot that stretches, in some layouts only."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=1280)
    page.wait(READY)
    clips = page.evaluate(
        "Array.from(document.querySelectorAll('.plots > div'), (e) => getComputedStyle(e).clipPath)"
    )
    assert clips
    assert all(clip.startswith("inset(") for clip in clips), clips


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_phone_shows_methods_in_words_and_plots_in_full(
    text: str, tmp_path: Path, page: Page, dark: bool
) -> None:
    """At 420 px no name of a method stands letter below letter, and half of a table's width is left for numbers."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=420, dark=dark)
    page.wait(READY)
    boxes = page.evaluate(
        "Array.from(document.querySelectorAll('[id^=table-] tbody th'), "
        "(th) => [th.textContent, th.clientWidth, th.clientHeight])"
    )
    assert boxes
    for name, width, height in boxes:
        assert 100 <= width <= 210, name
        assert height <= 36 + 21 * (len(name) // 8), name
    sizes = page.evaluate(
        "Array.from(document.querySelectorAll('.plots > div, .one-plot'), (e) => [e.clientWidth, e.clientHeight])"
    )
    assert sizes
    assert all(width > 340 and height >= 300 for width, height in sizes)


def test_tab_reaches_links_tables_and_choices_in_order_with_a_visible_outline(
    text: str, tmp_path: Path, page: Page
) -> None:
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path)
    page.wait(READY)
    passed = []
    for _ in range(200):
        page.key("Tab")
        name = page.evaluate(
            f"{FOCUSED}.getAttribute('aria-label') || {FOCUSED}.id || {FOCUSED}.textContent.trim().slice(0, 40)"
        )
        passed.append(name)
        inside_plot = page.evaluate(f"{FOCUSED}.shadowRoot !== null")  # Bokeh marks its own buttons
        assert inside_plot or page.evaluate(f"getComputedStyle({FOCUSED}).outlineStyle") != "none", passed
        if name == "scatter-y":
            break
    wanted = ["Skip to the tables", "Tables", "Gap against time", "Table main", "Method", "Table gaps", "scatter-dataset",
              "scatter-x", "scatter-y"]  # fmt: skip
    positions = [passed.index(name) for name in wanted]
    assert positions == sorted(positions)


def test_a_table_that_scrolls_keeps_its_first_header_alone_in_place(
    text: str, tmp_path: Path, page: Page
) -> None:
    """The first header of the second row, a column of numbers, once slid over the word Method."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=400)
    page.wait(READY)
    kept = page.evaluate(
        "Array.from(document.querySelectorAll('#table-main thead th'))"
        ".filter((th) => getComputedStyle(th).position === 'sticky').map((th) => th.textContent)"
    )
    assert kept == ["Method"]


def test_gaps_have_few_ticks_in_both_halves_of_their_axis(text: str, tmp_path: Path, page: Page) -> None:
    """From 0.5 to 37 % Bokeh's own ticks were 5, 10, 15 .. 35: none in the lower half, one upon the other above."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path)
    page.wait(READY)
    assert page.evaluate("gapTicks(0.48, 37)") == [0.5, 1, 2, 5, 10, 20]
    assert page.evaluate("gapTicks(0.006, 20)") == [0.01, 0.1, 1, 10]
    assert page.evaluate("gapTicks(8, 22)") == [10, 15, 20]
    plot = "Bokeh.documents[0].roots()[0]"
    assert page.evaluate(f"{plot}.left[0].ticker.ticks") == page.evaluate(
        f"gapTicks({plot}.y_range.start, {plot}.y_range.end)"
    )
    page.evaluate(f"{plot}.y_range.setv({{start: 3, end: 8}}), 1")  # as a zoom by the pointer does
    assert page.evaluate(f"{plot}.left[0].ticker.ticks") == [3, 4, 5, 6, 7, 8]
    assert page.console == []


def test_a_printed_table_is_not_cut_where_it_would_scroll(text: str, tmp_path: Path, page: Page) -> None:
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=400)
    page.wait(READY)
    page.send("Emulation.setEmulatedMedia", media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    style = "getComputedStyle(document.querySelector('.scroll')).overflowX"
    assert page.evaluate(style) == "visible"
    widths = page.evaluate(
        "Array.from(document.querySelectorAll('.scroll table'), (t) => t.getBoundingClientRect().width)"
    )
    assert max(widths) <= page.evaluate("PAPER")


def test_a_table_of_fifteen_datasets_is_printed_in_strips_that_can_be_read(
    results: Results, tmp_path: Path, page: Page
) -> None:
    """In one piece it was set at 40 % and cut all the same; after printing it is whole again."""
    cells = [
        make_cell(i, "late" if i == 14 else "lkh3", f"cvrp{i + 100}:capacity=10:demand=unit")
        for i in range(15)
    ]
    results.run("r1", *((cell, make_records(cell, [10.0], [10.0], n=100 + cell.cell)) for cell in cells))
    path = tmp_path / "report.html"
    path.write_text(page_of(results), encoding="utf-8")
    page.open(path, width=1032)
    page.wait(READY)
    page.send("Emulation.setEmulatedMedia", media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    strips = page.evaluate(
        "Array.from(document.querySelectorAll('[aria-label=\"Table main\"] table:not([hidden])'), (t) => ["
        "t.getBoundingClientRect().width, Number(t.style.zoom), "
        "Array.from(t.tBodies[0].rows, (r) => r.cells[0].textContent), "
        "t.tHead.querySelectorAll('th[colspan]').length, t.tBodies[0].rows[0].cells.length])"
    )
    paper, legible = page.evaluate("[PAPER, LEGIBLE]")
    assert len(strips) > 1
    assert all(width <= paper + 1 and zoom >= legible - 0.01 for width, zoom, *_ in strips)
    assert sum(groups for *_, groups, _ in strips) == 15
    assert sum(cells - 1 for *_, cells in strips) == 45
    assert strips[0][2] == ["lkh3"]
    assert "late" in strips[-1][2]
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(
        "[document.querySelectorAll('.strip').length, document.querySelectorAll('table[hidden]').length]"
    ) == [0, 0]


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
