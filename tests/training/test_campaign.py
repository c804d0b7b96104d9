"""Campaigns: turns go around, a session ends in time, the folder travels in small parts."""

from __future__ import annotations

import csv
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nco_bench.cards import networks
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.papers.published import paper_room
from nco_bench.problems.tasks import TASKS
from nco_bench.training import campaign
from nco_bench.training.campaign import pack, run_campaign, unpack
from nco_bench.training.campaign_file import Planned, describe_plan, planned, read_campaign
from nco_bench.training.choices import departures, paper_of
from nco_bench.training.courses import COURSES, load_course
from nco_bench.training.task_campaign import published_networks
from nco_bench.weights.manifest import STATED, read_manifest
from nco_bench.weights.store import resolve

PATH_MODELS = {name: card for name, card in networks().items() if card.family == "path"}
CAMPAIGNS = Path(__file__).parents[2] / "campaigns"

STAGES = """
[[stage]]
name = "first"
model = "decoder-96x32"
slice = "0.5s"
turns = 2
config = { batch = 2, longest = 5, longest_start = 5, validation_instances = 2, symmetries = false, lr = LR }

[[stage]]
model = "pens-a"
slice = "0.5s"
config = { batch = 2, longest = 5, longest_start = 5, validation_instances = 2 }
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected a list of"),
        ("[[stage]]\nslice = '9m'\n", "model is missing"),
        ("[[stage]]\nmodel = '{m}'\neach = { n = [1] }\n", "each has no values for 'm'"),
        ("[[stage]]\nmodel = 'bq'\neach = { n = 1 }\n", "each is no table of lists"),
        ("[[stage]]\nmodel = 'bq'\nhours = 'long'\n", "hours = 'long' is no number"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9'\n", "expected a time such as 90s"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\nturn = 2\n", "unknown key 'turn'"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\nturns = 0\n", "whole number above 0"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\n" * 2, "two stages are called 'bq'"),
        ("[[stage]\n", "not TOML"),
    ],
)
def test_a_wrong_campaign_is_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=told):
        read_campaign(file)


def test_a_campaign_goes_on_where_its_folder_goes(
    tmp_path: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, here = tmp_path / "c.toml", tmp_path / "here"
    file.write_text(STAGES.replace("LR", "1e-3"))
    monkeypatch.setattr(
        campaign, "SHORTEST_TURN_S", 1.0
    )  # 0.3 s are left after the first turn: no time for another
    monkeypatch.setattr(campaign, "PART_BYTES", 100_000)
    session = run_campaign(file, here, shards, 0.8, "cpu", 1, progress="silent")
    assert (len(session.turns), session.complete) == (1, False)
    parts = pack(here, tmp_path / "bundle")
    assert max(part.stat().st_size for part in parts if part.name != "bundle.json") <= 100_000
    there = tmp_path / "there"
    unpack(tmp_path / "bundle", there)
    session = run_campaign(file, there, shards, None, "cpu", 1, progress="silent")
    assert session.complete
    assert [line.split(":")[0] for line in session.turns] == ["turn 1 of 1", "turn 2 of 2"]
    assert run_campaign(file, there, shards, None, "cpu", 1, progress="silent").turns == ()
    parts[0].write_bytes(b"changed")
    with pytest.raises(BadInputError, match="not what was packed"):
        unpack(tmp_path / "bundle", tmp_path / "third")


STEPS = """
[[stage]]
name = "whole"
model = "decoder-96x32"
config = { batch = 2, longest = 5, longest_start = 5, validation_instances = 2, steps = 40 }

[[stage]]
name = "start-{seed}"
model = "decoder-96x32"
seed = "{seed}"
start = "whole"
config = { batch = 2, longest = 5, longest_start = 5, validation_instances = 2, steps = 2 }
each = { seed = [3, 4] }
"""


def test_a_stage_without_a_slice_is_trained_to_its_last_step(
    tmp_path: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "SHORTEST_TURN_S", 0.0)
    file, here = tmp_path / "c.toml", tmp_path / "here"
    file.write_text(STEPS)
    cut = run_campaign(file, here, shards, 0.2, "cpu", 1, progress="silent", only=["whole"])
    assert (len(cut.turns), cut.complete) == (1, False)
    rest = run_campaign(file, here, shards, None, "cpu", 1, progress="silent")
    assert rest.complete
    made = {name: read_manifest(here / f"{name}.json") for name in ("whole", "start-3", "start-4")}
    assert {name: (m.steps, m.seed) for name, m in made.items()} == {
        "whole": (40, 1), "start-3": (2, 3), "start-4": (2, 4),
    }  # fmt: skip
    assert made["start-3"].parent == made["start-4"].parent == made["whole"].sha256
    with pytest.raises(UnknownNameError, match="start-3"):
        run_campaign(file, here, shards, None, "cpu", 1, only=["start-5"])


def test_finished_weights_that_a_table_looks_up_are_found_by_name(
    tmp_path: Path, shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    file, here = tmp_path / "c.toml", tmp_path / "here"
    file.write_text(STEPS.replace('name = "whole"', 'name = "whole"\ntables = "2"').replace("= 40", "= 2"))
    done = run_campaign(file, here, shards, None, "cpu", 1, progress="silent")
    assert [path.name for path in (tmp_path / "cache" / "weights").glob("*.safetensors")] == [
        "whole.safetensors"
    ]
    assert resolve("whole", "decoder-96x32").sha256 == read_manifest(here / "whole.json").sha256
    assert "cache/weights/whole.safetensors: found by name from now on" in done.describe()
    done = run_campaign(file, tmp_path / "again", shards, None, "cpu", 2, progress="silent")
    assert "not copied to" in done.describe()
    assert resolve("whole", "decoder-96x32").sha256 == read_manifest(here / "whole.json").sha256


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("model = 'pens-b'", "pens-a"),
        ("model = 'pens-a'\ndata = ['x']\nconfig = { recipe = 'papr' }", "'papr'"),
        ("model = 'pens-a'\ndata = ['x']\nconfig = { recipe = 'paper', bach = 3 }", "'bach'"),
        ("model = 'pens-a'\ndata = ['x']\nconfig = { recipe = 'paper', 'model.depht' = 3 }", "depht"),
        ("model = 'am'\nproblem = 'tsp'\nconfig = { 'model.width' = 'wide' }", "model"),
        ("model = 'pens-a'\nconfig = { recipe = 'paper' }", "add data"),
        ("model = 'pens-a'\ndata = ['x']", "add slice"),
        ("model = 'pens-a'\ndata = ['x']\nstart = 'y'\nconfig = { recipe = 'paper' }", "no earlier stage"),
    ],
)
def test_a_plan_names_the_stage_that_cannot_be_trained(tmp_path: Path, entry: str, told: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[[stage]]\nname = 'one'\n{entry}\n")
    with pytest.raises(BadInputError, match=rf"stage 'one': .*{told}"):
        planned(read_campaign(file))


def test_a_stage_of_another_network_has_a_name_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    stage = "model = 'pens-a'\ndata = ['x']\nslice = '1s'\nconfig = {{ 'model.noise' = '{}' }}\n"
    file.write_text("[[stage]]\n" + stage.format("solve"))
    with pytest.raises(BadInputError, match=r"stage 'pens-a': .*model\.noise=solve: .*a name of its own"):
        planned(read_campaign(file))
    for named in ("name = 'pens-a-quiet'\n" + stage.format("solve"), stage.format("step")):
        file.write_text("[[stage]]\n" + named)
        assert [plan.learner for plan in planned(read_campaign(file))] == ["supervised"]


UNSAID = re.compile(r"pens-[ar]-tsp20-.*|lra-.*")
"""Networks whose training the papers do not give."""


@pytest.mark.parametrize("paper", ["decoder-scaling", "pens", "sit", "sit-rivals", "eie", "tropical"])
def test_what_a_campaign_trains_counts_as_the_papers(paper: str) -> None:
    """Otherwise days of a GPU end in numbers that are never called reproduced."""
    for plan in _plans(paper):
        if UNSAID.fullmatch(plan.stage.name):
            continue
        papers = load_course(COURSES[plan.learner]).papers(plan.stage.model)
        held = paper_of(papers, plan.stage.config.get("recipe", ""), plan.stage.problem or "tsp")
        assert held is not None, plan.stage.name
        ours = departures(plan.recipe, held)
        assert ours, plan.stage.name  # a manifest without any could be of a version that did not say
        assert [key for key, said in ours.items() if STATED in said] == [], plan.stage.name


def _plans(paper: str) -> list[Planned]:
    return planned(read_campaign(CAMPAIGNS / f"{paper}.toml"))


@pytest.mark.parametrize("paper", ["decoder-scaling", "pens", "sit", "sit-rivals", "eie", "tropical"])
def test_the_campaigns_of_the_papers_can_be_planned(paper: str) -> None:
    plans = _plans(paper)
    assert all(plan.stage.hours > 0 and plan.stage.tables and plan.samples for plan in plans)
    assert describe_plan(plans).endswith(f"{sum(plan.stage.hours for plan in plans):,.0f} H100 hours")


def test_every_network_of_the_papers_is_in_a_campaign() -> None:
    decoders = {plan.stage.model for plan in _plans("decoder-scaling")}
    assert {model for model in PATH_MODELS if model.startswith("decoder-")} <= decoders
    assert {"pens-a", "pens-r", "pens-ar", "coordns"} == {plan.stage.model for plan in _plans("pens")}
    tasks = {
        (p.stage.model, p.stage.data[0], p.stage.seed) for p in _plans("tropical") if p.learner == "tasks"
    }
    assert tasks == {(n, t, s) for n in published_networks() for t in TASKS for s in (0, 1, 2)}
    assert all(p.samples == 10_000_000 for p in _plans("tropical") if p.learner == "tasks")
    capacities = {p.recipe.capacity for p in _plans("eie") if p.stage.problem == "cvrp"}  # type: ignore[attr-defined]
    assert capacities == {10.0, 15.0, 20.0}


def test_table_3_trains_on_a_tenth_of_a_million_for_60_epochs() -> None:
    table = {p.stage.model: p for p in _plans("decoder-scaling") if p.stage.tables == "3"}
    rows = {row.replace("D=", "decoder-").replace(", W=", "x") for row, *_ in _printed("decoder-scaling", 3)}
    assert set(table) == rows
    assert all(100_000 * 60 <= p.samples < 100_000 * 61 for p in table.values())


def _printed(paper: str, number: int) -> list[list[str]]:
    file = paper_room(paper) / "published" / f"table-{number}.csv"
    with file.open(newline="") as lines:
        return list(csv.reader(lines))[1:]


@pytest.mark.parametrize("scale", ["1K", "5K", "10K", "50K", "100K"])
@pytest.mark.parametrize("problem", ["TSP", "CVRP"])
def test_sit_is_trained_as_its_table_6_prints(problem: str, scale: str) -> None:
    name = f"sit-{problem}{scale}".lower()
    recipe: Any = next(plan.recipe for plan in _plans("sit") if plan.stage.name == name)
    printed = {
        row: float(number) for row, column, _, number, *_ in _printed("sit", 6) if column == problem + scale
    }
    epoch = recipe.decay_every
    assert recipe.size == int(scale[:-1]) * 1000
    assert {
        "Dataset Size": recipe.instances,
        "Self-improved Iteration": recipe.steps / recipe.rounds_updates,
        "Training Epoch": recipe.rounds_updates / epoch,
        "Training Batch Size": recipe.batch,
        "Reconstruction Iteration": recipe.iterations,
        "Reconstruction Batch Size": recipe.chunk,
        "Learning Rate": recipe.lr,
        "Decay per Training Epoch": recipe.decay,
        "Partial Solution's Maximum Length": recipe.longest,
    } == printed
    # An epoch visits every instance: whole batches of them, and the same updates for each batch.
    batches = math.ceil(recipe.instances / recipe.batch)
    assert epoch % batches == 0


def test_a_dry_run_trains_nothing(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "nco_bench",
        "train",
        "--campaign",
        str(CAMPAIGNS / "pens.toml"),
        "--dry-run",
    ]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "pens-ar: pens-ar on labels/tsp100-1m, supervised, recipe paper, 1,000,000 x 1024" in told.stdout
    assert list(tmp_path.iterdir()) == []
