"""The HTML report: self-contained, small, right numbers; in headless Chromium it sorts, hovers and logs no error."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.datasets.load import Places
from nco_bench.errors import MissingDependencyError
from nco_bench.reports import html_plots, render_html
from nco_bench.reports.load import load_frame

pytest.importorskip("bokeh")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


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
    assert captions == [f"walk on {name}-0: gap 10.000 % (best)", f"walk on {name}-1: gap 30.000 % (worst)"]
    assert text.count('<img src="data:image/svg+xml;base64,') == 2


def test_packings_without_references_are_drawn_by_load_rate_beside_a_table_of_tasks(tmp_path: Path) -> None:
    from nco_bench.runs.executors import QuietDisplay
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


def use_in_chromium(path: Path, *flags: str) -> tuple[dict[str, Any], list[str]]:
    """Open a page with the probe in a headless browser; return what the probe saw and the console's warnings."""
    if CHROMIUM is None:
        pytest.skip("no Chromium; apt-get install chromium")
    probed = path.with_name("probed.html")
    script = (Path(__file__).parent / "probe.js").read_text(encoding="utf-8")
    probed.write_text(path.read_text(encoding="utf-8") + f"<script>{script}</script>", encoding="utf-8")
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
        "--window-size=1200,4000", "--virtual-time-budget=30000", f"--user-data-dir={path.parent / 'profile'}", *flags,
        "--dump-dom", probed.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    seen = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    assert seen, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and "[bokeh" not in line]
    return json.loads(html.unescape(seen.group(1))), console


@pytest.mark.parametrize("flags", [(), ("--blink-settings=preferredColorScheme=0",)], ids=["light", "dark"])
def test_page_sorts_and_hovers_without_console_errors(
    text: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    path = tmp_path / "report.html"
    path.write_text(text, encoding="utf-8")
    for _ in range(3):  # on a busy machine the browser's virtual time may end before the tooltip is drawn
        seen, console = use_in_chromium(path, *flags)
        if any("10.0000 %" in tip for tip in seen.get("tooltips", ())):
            break
    assert "error" not in seen
    assert console == []
    assert seen["ascending"] == ["lkh3", "net greedy", "<b>solver"]  # 0, 15, 30 %
    assert seen["descending"] == ["<b>solver", "net greedy", "lkh3"]
    assert seen["ariaSort"] == "ascending"
    assert seen["focused"]
    assert seen["status"].startswith("2 instances: lkh3 is better on 2")
    assert seen["hovered"] == "set-100-0"
    assert any("10.0000 %" in tip for tip in seen["tooltips"])
