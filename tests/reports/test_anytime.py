"""Anytime curves: the mean over solves of the best gap so far, on the scale of the recomputed cost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_folders import Results, make_cell, make_records

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.datasets.load import Places
from nco_bench.datasets.storage import save_dataset
from nco_bench.errors import BadInputError, ResultsError
from nco_bench.problems import tsp
from nco_bench.reports.figures import plots
from nco_bench.reports.figures.anytime import Curve, anytime_curves
from nco_bench.reports.figures.style import SOLVER_COLOURS
from nco_bench.reports.frame.load import load_frame
from nco_bench.runs.display import QuietDisplay
from nco_bench.runs.request import RunRequest
from nco_bench.runs.runner import run

SOLVER = '''
import numpy as np
from nco_bench.solvers import Solved, register

@register("improver", problems=("tsp",))
class Improver:
    """Says that its cost falls from 6 to 4 to 3, in a unit of its own; the second instance is slower."""
    def __init__(self, options): pass
    def unsupported(self, dataset): return None
    def prepare(self, dataset): pass
    def batch_size(self, dataset): return 2
    def solve(self, batch, *, seed, time_limit, progress):
        return [
            Solved(np.arange(i.n), trace=((1.0 + j, 6.0), (2.0 + j, 4.0), (3.0 + j, 3.0))) for j, i in enumerate(batch)
        ]
'''


def test_traces_become_mean_gaps_of_the_recomputed_cost(tmp_path: Path) -> None:
    dataset = generate("tsp", 8, 2, "uniform", 3)
    costs = [tsp.score(i, np.arange(8)) for i in dataset.instances]  # type: ignore[arg-type]
    # The final tour is 50 % above the reference, so the trace 6, 4, 3 is 200 %, 100 %, 50 % above it.
    data = save_dataset(
        dataset.with_references([Reference(cost / 1.5, "made up") for cost in costs]), tmp_path / "set.npz"
    )
    solver = tmp_path / "improver.py"
    solver.write_text(SOLVER)
    run(RunRequest((str(solver),), (str(data),), tmp_path / "runs", Places(tmp_path)), QuietDisplay())
    (curve,) = anytime_curves(load_frame(tmp_path / "runs")).values()
    # Both have a solution from second 2 on: (100 + 200) / 2, (50 + 100) / 2, (50 + 50) / 2.
    assert curve.seconds == [2.0, 3.0, 4.0]
    assert curve.gaps == pytest.approx([150.0, 75.0, 50.0])
    assert curve.told == "2 solves, one at a time"  # each had a clock of its own


def test_two_time_limits_are_two_curves(tmp_path: Path) -> None:
    dataset = generate("tsp", 8, 2, "uniform", 3)
    references = [Reference(tsp.score(i, np.arange(8)), "made up") for i in dataset.instances]  # type: ignore[arg-type]
    data = save_dataset(dataset.with_references(references), tmp_path / "set.npz")
    solver = tmp_path / "improver.py"
    solver.write_text(SOLVER)
    for limit in (None, 5.0):
        request = RunRequest(
            (str(solver),), (str(data),), tmp_path / "runs", Places(tmp_path), time_limit=limit
        )
        run(request, QuietDisplay())
    names = set(anytime_curves(load_frame(tmp_path / "runs")))
    assert names == {f"improver on {dataset.name}", f"improver (time limit 5 s) on {dataset.name}"}


def test_a_plot_says_how_many_were_solved_at_a_time(tmp_path: Path) -> None:
    """Five instances in batches of two: what shares its times was solved together, in two batches of two and one alone."""
    pytest.importorskip("matplotlib")
    dataset = generate("tsp", 8, 5, "uniform", 3)
    references = [Reference(tsp.score(i, np.arange(8)), "made up") for i in dataset.instances]  # type: ignore[arg-type]
    data = save_dataset(dataset.with_references(references), tmp_path / "set.npz")
    solver = tmp_path / "improver.py"
    batched = "Solved(np.arange(i.n), trace=((1.0, 6.0), (2.0 + batch[0].coords[0, 0], 4.0)))"
    body = SOLVER.replace(
        "Solved(np.arange(i.n), trace=((1.0 + j, 6.0), (2.0 + j, 4.0), (3.0 + j, 3.0)))", batched
    )
    assert body != SOLVER
    for name, size, told, axis in (
        ("together", 2, "5 solves, in batches of 1 to 2", "time since the batch began (s)"),
        ("alone", 1, "5 solves, one at a time", "time of one instance (s)"),
    ):
        solver.write_text(body)
        request = RunRequest((str(solver),), (str(data),), tmp_path / name, Places(tmp_path), batch_size=size)
        run(request, QuietDisplay())
        curves = anytime_curves(load_frame(tmp_path / name))
        assert [curve.told for curve in curves.values()] == [told]
        text = plots.anytime(curves, tmp_path / f"{name}.svg").read_text()
        assert told in text
        assert axis in text


def test_curves_of_one_solver_have_colours_of_their_own(tmp_path: Path) -> None:
    """Four curves of SIT were black, and crossed."""
    pytest.importorskip("matplotlib")
    curves = {f"sit prc:{k}": Curve("sit", [1.0, 2.0], [4.0, 3.0 + k]) for k in range(4)}
    curves["lehd"] = Curve("lehd", [1.0, 2.0], [4.0, 2.0])
    text = plots.anytime(curves, tmp_path / "plot.svg", ["lehd", "pens-a", "sit"]).read_text().lower()
    drawn = [colour for colour in SOLVER_COLOURS if f"stroke: {colour.lower()}" in text]
    assert len(drawn) >= 5
    assert {SOLVER_COLOURS[0], SOLVER_COLOURS[2]} <= set(drawn)


def test_each_dataset_has_a_panel_and_a_method_one_look_in_all(tmp_path: Path) -> None:
    """All curves once stood in one panel, however unlike the sets, and those of one solver in one colour."""
    pytest.importorskip("matplotlib")
    curves = {
        f"{method} on {data}": Curve("sit", [1.0, 2.0], [4.0, 3.0], method=method, dataset=data)
        for method in ("sit prc:10", "sit prc:100")
        for data in ("tsp100", "tsp200")
    }
    text = plots.anytime(curves, tmp_path / "plot.svg").read_text()
    for panel in ("tsp100", "tsp200"):
        assert text.count(f">{panel}</text>") == 1
    for method in ("sit prc:10", "sit prc:100"):
        assert text.count(f">{method} (1 solve, one at a time)</text>") == 1


def test_results_without_traces_say_what_makes_some(results: Results) -> None:
    cell = make_cell(0, "lkh3", "tsp100")
    results.run("r1", (cell, make_records(cell, [8.0], [8.0])))
    with pytest.raises(ResultsError, match="--decoding prc:50"):
        anytime_curves(load_frame(results.folder))


def test_marks_stand_where_the_gap_falls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand iterations, of which three found something, were one thick bar of marks."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    marked: list[list[int]] = []
    monkeypatch.setattr(pyplot.Axes, "step", lambda *_, markevery, **__: marked.append(markevery))
    gaps = [9.0, 9.0, 4.0, 4.0 - 1e-6, 4.0, 1.0, 1.0]
    curve = Curve(
        solver="lkh3", dataset="tsp8", seconds=[float(i + 1) for i in range(7)], gaps=gaps, solves=1
    )
    plots.anytime({"lkh3": curve}, tmp_path / "plot.png")
    assert marked == [[0, 2, 5, 6]]


def test_a_plot_without_an_ending_is_told_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match="this name ends in none of them"
    ):  # it was "not 'without suffix'"
        plots.anytime({}, tmp_path / "plots")
