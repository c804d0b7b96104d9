"""The HTML report in headless Chromium: it sorts, hovers, prints, fits a phone and logs no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import CHROMIUM, Page, browse
from html_pages import page_of, page_of_three_solvers
from run_folders import Results, make_cell, make_records

pytest.importorskip("bokeh")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of_three_solvers(tmp_path_factory.mktemp("page"))


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
    assert page.evaluate("gapTicks(0.28, 29)") == [0.5, 1, 2, 5, 10, 20]  # two decades alone
    assert page.evaluate("gapTicks(8, 22)") == [10, 15, 20]
    plot = "Bokeh.documents[0].roots()[0]"
    assert page.evaluate(f"{plot}.left[0].ticker.ticks") == page.evaluate(
        f"gapTicks({plot}.y_range.start, {plot}.y_range.end)"
    )
    page.evaluate(f"{plot}.y_range.setv({{start: 3, end: 8}}), 1")  # as a zoom by the pointer does
    assert page.evaluate("gapTicks(3, 8)") == [3, 4, 5, 6, 7, 8]
    # A gap of zero is drawn at 5, which its tick says; what would stand below that, or touch it, is no gap.
    assert page.evaluate(f"{plot}.left[0].ticker.ticks") == [5, 7, 8]
    assert page.evaluate(f"{plot}.left[0].major_label_overrides.get(5)") == "≤ 0.01"
    assert page.console == []


def test_labels_of_the_axis_of_times_do_not_touch(text: str, tmp_path: Path, page: Page) -> None:
    """From 9 to 95 s Bokeh's own were 10, 20, 30 .. 90, of which the last stood one upon the other in a narrow plot."""
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    page.open(path, width=400)
    page.wait(READY)
    plot = "Bokeh.documents[0].roots()[0]"
    scale = f"Bokeh.index.find_one({plot}).frame.x_scale"
    axis = f"Bokeh.index.find_one({plot}.below[0])"
    for low, high in ((9, 95), (0.9, 950), (40, 90), (1e-5, 2e4), (7.1, 7.9)):
        page.evaluate(
            f"{plot}.x_range.setv({{start: {low}, end: {high}}}), 1"
        )  # as a zoom by the pointer does
        page.wait(f"{scale} && Math.abs({scale}.invert({scale}.compute({low})) / {low} - 1) < 1e-6")
        page.evaluate(FRAME)
        ticks = page.evaluate(f"{axis}.tick_coords.major[0]")
        assert len(ticks) > 1, (low, high)
        places = page.evaluate(f"{axis}.tick_coords.major[0].map((tick) => {scale}.compute(tick))")
        for tick, one, other in zip(ticks, places, places[1:], strict=False):
            assert other - one > 7 * len(f"{tick:.6g}"), (ticks, places)
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
    places = [*enumerate(["lkh3"] * 15), (14, "late")]
    cells = [
        make_cell(i, solver, f"cvrp{place + 100}:capacity=10:demand=unit")
        for i, (place, solver) in enumerate(places)
    ]
    results.run(
        "r1", *((cell, make_records(cell, [10.0], [10.0], n=100 + min(cell.cell, 14))) for cell in cells)
    )
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
