"""The leaderboard in a real browser, opened from disk: what a person does, with mouse, keyboard and a narrow screen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from site_records import HOSTILE

pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = os.environ.get("NCO_BENCH_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Any, site: Path) -> Iterator[Any]:
    """A blank page; at the end nothing may have been asked from outside the folder, and no script have failed."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    wrong: list[str] = []
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    yield opened
    foreign = [url for url in asked if not url.startswith(site.as_uri() + "/")]
    opened.close()
    assert asked
    assert foreign == []
    assert wrong == []


def visit(page: Any, site: Path, address: str = "") -> None:
    page.goto(f"{(site / 'index.html').as_uri()}{address}")
    page.wait_for_selector("main h2, main p[role=alert]")


def names(page: Any) -> list[str]:
    return [link.inner_text() for link in page.query_selector_all("tbody th a")]


def column(page: Any, number: int) -> list[float]:
    cells = [cell.inner_text() for cell in page.query_selector_all(f"tbody tr td:nth-child({number})")]
    return [float(re.sub(r"[^0-9.−]", "", text).replace("−", "-")) for text in cells]


def test_the_first_page_shows_the_largest_dataset_by_gap(page: Any, site: Path) -> None:
    visit(page, site)
    assert page.inner_text("h2").startswith("tsp20")
    assert page.inner_text("#status") == "4 rows on 1 dataset"
    gaps = column(page, 2)
    assert len(gaps) == 4
    assert gaps == sorted(gaps)
    assert page.get_attribute("th[aria-sort=ascending] button", "data-sort") == "gap"


def test_a_click_on_a_header_sorts_and_a_second_turns_round(page: Any, site: Path) -> None:
    visit(page, site)
    page.click("button[data-sort=name]")
    up = names(page)
    page.click("button[data-sort=name]")
    assert names(page) == up[::-1]
    assert [h.get_attribute("aria-sort") for h in page.query_selector_all("thead th")] == ["descending"] + [
        "none"
    ] * 6
    page.click("button[data-sort=gap]")
    gaps = column(page, 2)
    assert gaps == sorted(gaps)


def test_filters_keep_what_fits_and_stand_in_the_address(page: Any, site: Path) -> None:
    visit(page, site)
    page.select_option("#problem", "cvrp")
    assert page.inner_text("#status") == "1 row on 1 dataset"
    assert "problem=cvrp" in page.url
    page.select_option("#size", label="101 to 500")
    assert page.inner_text("#status") == "0 rows on 0 datasets"
    page.select_option("#size", "")
    page.select_option("#problem", "")
    assert page.inner_text("#status") == "5 rows on 2 datasets"
    page.select_option("#dataset", "cvrp20:capacity=30:count=2")
    assert page.inner_text("#status") == "1 row on 1 dataset"
    page.select_option("#device", "cpu")
    page.reload()
    page.wait_for_selector("main h2")
    assert page.input_value("#device") == "cpu"
    assert page.inner_text("#status") == "1 row on 1 dataset"


def test_a_row_opens_its_run_with_command_hashes_records_and_environment(page: Any, site: Path) -> None:
    visit(page, site)
    page.click("tbody th a >> text=two-opt")
    page.wait_for_selector("#title")
    assert page.evaluate("document.activeElement.id") == "title"  # a screen reader reads on from there
    text = page.inner_text("main")
    assert "nco_bench.run(" in text or "nco-bench run" in text
    for fact in ("Configuration SHA-256", "Dataset SHA-256", "Solver", "Seed", "Command", "Environment"):
        assert fact in text
    assert re.search(r"[0-9a-f]{64}", text)
    assert len(page.query_selector_all("tbody tr")) == 6
    page.click("summary >> text=Environment")
    assert '"python"' in page.inner_text("details details pre")


def test_an_instance_shows_its_tour_beside_the_best_known(page: Any, site: Path) -> None:
    visit(page, site)
    page.click("tbody th a >> text=nearest-neighbor >> nth=0")
    page.wait_for_selector("#title")  # until then the first row is still that of the page before
    page.click("tbody th a >> nth=0")
    page.wait_for_selector("svg.routes")
    drawn = page.query_selector_all("svg.routes")
    assert len(drawn) == 2
    for one in drawn:
        points = [p.split(",") for p in one.query_selector("polyline").get_attribute("points").split()]
        assert len(points) == 21  # all nodes, and back
        assert points[0] == points[-1]
        assert len({tuple(p) for p in points}) == 20
    assert "Best known solution" in drawn[1].get_attribute("aria-label")
    page.goto(page.url.rsplit("/", 1)[0] + "/5")  # only the first four are drawn
    page.wait_for_selector("main >> text=this is another")
    assert page.query_selector("svg.routes") is None


def test_routes_of_a_cvrp_start_and_end_at_the_depot(page: Any, site: Path) -> None:
    visit(page, site, "#/?problem=cvrp")
    page.click("tbody th a")
    page.wait_for_selector("#title")
    page.click("tbody th a >> nth=0")
    page.wait_for_selector("svg.routes")
    routes = [
        p.get_attribute("points").split() for p in page.query_selector_all("figure:first-child polyline")
    ]
    assert len({route[0] for route in routes} | {route[-1] for route in routes}) == 1
    assert sum(len(route) - 2 for route in routes) == 20


def test_an_address_opens_the_same_view_again(page: Any, site: Path) -> None:
    visit(page, site, "#/?problem=tsp&sort=seconds:down")
    seconds = page.query_selector("th[aria-sort=descending] button")
    assert seconds.get_attribute("data-sort") == "seconds"
    page.click("tbody th a >> text=farthest-insertion")
    page.wait_for_selector("#title")
    title, address = page.inner_text("#title"), page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#title")
    assert page.inner_text("#title") == title
    page.go_back()


def test_an_address_of_nothing_says_so(page: Any, site: Path) -> None:
    visit(page, site, "#/run/000000000000")
    assert "No row has the address 000000000000" in page.inner_text("[role=alert]")


def test_at_400_pixels_nothing_but_tables_is_wider_than_the_screen(page: Any, site: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    visit(page, site)
    addresses = ["", page.get_attribute("tbody th a", "href")]
    addresses.append(f"{addresses[1]}/0")
    for address in addresses:
        visit(page, site, address)
        page.wait_for_selector("#title" if address else "main table")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, address
    page.wait_for_selector("svg.routes")  # the page before has a title as well
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate("document.querySelector('svg.routes').getBoundingClientRect().width") > 300


def test_the_keyboard_reaches_sorts_and_opens_everything(page: Any, site: Path) -> None:
    visit(page, site)
    page.keyboard.press("Tab")
    assert page.inner_text(":focus") == "Skip to the tables"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.dataset.sort || document.activeElement.getAttribute('href')"
            )
        )
        if seen[-1] == "seconds":
            break
    assert seen[-1] == "seconds"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    assert page.get_attribute("th[aria-sort=ascending] button", "data-sort") == "seconds"
    assert page.evaluate("document.activeElement.dataset.sort") == "seconds"  # focus stays where it was
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('tbody th a')"):
            break
    page.keyboard.press("Enter")
    page.wait_for_selector("#title")


def test_marks_of_the_plot_have_names_and_lead_to_their_rows(page: Any, site: Path) -> None:
    visit(page, site)
    marks = page.query_selector_all("svg.plot a")
    assert len(marks) == 4
    table = {a.get_attribute("href") for a in page.query_selector_all("tbody th a")}
    assert {mark.get_attribute("href") for mark in marks} == table
    assert all("gap" in mark.get_attribute("aria-label") for mark in marks)


def test_tables_have_the_semantics_that_screen_readers_read(page: Any, site: Path) -> None:
    visit(page, site)
    assert page.query_selector("table caption").text_content().startswith("tsp20")
    assert all(h.get_attribute("scope") == "col" for h in page.query_selector_all("thead th"))
    assert all(h.get_attribute("scope") == "row" for h in page.query_selector_all("tbody th"))
    assert page.get_attribute("#status", "role") == "status"
    for field in page.query_selector_all("select"):
        assert page.query_selector(f"label[for={field.get_attribute('id')}]") is not None


def test_a_hostile_name_is_text_everywhere(page: Any, site: Path) -> None:
    visit(page, site)
    link = next(a for a in page.query_selector_all("tbody th a") if "onerror" in a.text_content())
    assert HOSTILE in link.text_content()
    page.evaluate("window.broken = 0")
    link.click()
    page.wait_for_selector("#title")
    assert HOSTILE in page.text_content("#title")
    assert HOSTILE in page.text_content("tbody .remark")  # the failed record's message
    assert HOSTILE in page.text_content("details dd code")  # the command
    page.click("tbody th a >> nth=0")
    page.wait_for_selector("svg.routes")
    assert page.evaluate("window.broken") == 0
    assert page.evaluate("document.querySelectorAll('img, main script').length") == 0
