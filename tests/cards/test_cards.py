"""Cards: what they say holds, reading them is cheap, and mistakes in them are named."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from nco_bench import cards as module
from nco_bench.cards import ROOMS, card, cards, network_card, networks
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.runs.conformance import check_solver
from nco_bench.solvers.availability import availability
from nco_bench.solvers.protocol import SolverOptions
from nco_bench.solvers.registry import choose
from nco_bench.training.courses import COURSES, load_course
from nco_bench.training.recipes import recipe_of

LARGEST = 10_000_000
"""Weights of a network that is built here; cards of one family share all code."""
QUICK = {
    "fast-tsp": {"seconds": "0.02"},
    "difusco": {"steps": "3"},
    "glop": {"lengths": "10", "iterations": "1"},
    "hgs": {"iterations": "100"},
    "lkh3": {"max_trials": "20"},
    "pyvrp": {"iterations": "20"},
    "ortools": {"solutions": "20"},
}
"""Budgets of solvers that would search for long."""
ROUTED = [
    name
    for name, known in cards().items()
    if set(known.problems) <= {"tsp", "cvrp", "bpp3d"} and (known.size or 0) < LARGEST
]


def test_reading_cards_imports_no_solver_and_nothing_heavy() -> None:
    code = (
        "import sys; from nco_bench.cards import cards; cards();"
        "print([m for m in ('torch', 'numba', 'numpy', 'pandas') if m in sys.modules],"
        "[m for m in sys.modules if m.startswith('nco_bench.solvers')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] []"


@pytest.mark.parametrize("name", cards())
def test_the_code_that_a_card_names_is_there(name: str) -> None:
    known = card(name)
    where, _, solver = known.target.partition(":")
    assert isinstance(getattr(import_module(where), solver), type)
    if known.network:
        assert hasattr(import_module(known.network), "build") or known.weights == "task"
    assert known.paper
    assert bool(known.decodings) == (known.kind == "neural")


@pytest.mark.parametrize("name", networks())
def test_every_recipe_of_a_card_is_one_of_its_learners(name: str) -> None:
    known = card(name)
    learners = (*known.learners, *known.learners_if_asked)
    assert set(known.recipes) <= set(learners)
    for learner in learners:
        course = load_course(COURSES[learner])
        recipes = course.recipes(name)
        assert recipes, f"{name} has no recipe for {learner}"
        held_against = load_course(COURSES[course.imitates or learner]).recipes(name)
        assert set(course.papers(name)) <= set(held_against)
        assert all(recipe.learner == learner for recipe in recipes.values())


@pytest.mark.parametrize("name", [*ROUTED, "exact", "majority", "mean", "lra-majority"])
def test_every_solver_keeps_the_rules(name: str) -> None:
    """Feasible, repeatable, whatever the batch, tiny instances too: the check of ``nco-bench test-solver``."""
    known = card(name)
    found = availability(known)
    if not found.available:
        pytest.skip(found.missing)
    weights = "random" if known.kind == "neural" else None
    broken = [
        c
        for c in check_solver(choose(name, SolverOptions(weights=weights, params=QUICK.get(name, {}))))
        if not c.ok
    ]
    assert not broken


def test_a_card_is_found_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []
    plain = module._toml
    monkeypatch.setattr(module, "_toml", lambda file: (read.append(file), plain(file))[1])
    for cached in (module.find, module._read):
        cached.cache_clear()
    module.family_values.cache_clear()
    assert card("decoder-12x128").parameters == {"tsp": 2_600_000}
    assert {file.name for file in read} == {"decoder.toml", "family.toml"}


def test_a_second_name_has_all_that_the_first_has() -> None:
    assert network_card("invit") == card("invit-3v")
    assert card("invit").model == "invit-3v"
    assert card("invit").params == card("invit-3v").params


def test_a_recipe_like_another_has_its_fields_but_is_no_papers_without_a_source() -> None:
    small = recipe_of(card("lehd"), "supervised", "small")
    assert (small["lr"], small["batch"], small["warmup"]) == (4e-4, 32, 100)
    assert "source" not in recipe_of(card("am"), "policy-gradient", "eie-small")
    assert recipe_of(card("sit"), "self-improved", "paper-5k")["ours"]["clip"].startswith("not in the paper")


def test_budgets_are_steps_times_batch() -> None:
    """Decoder scaling, Table 9 and section 3; PENS, section 5; SIT, Table 6 and Algorithm 4."""
    assert card("decoder-6x128").paper_samples("supervised", "tsp", 100) == 60_000 * 1024
    assert card("pens-ar").paper_samples("supervised", "tsp", 100) == 1_000_000 * 1024
    assert card("lehd-24x64").paper_samples("supervised", "tsp", 100) is None
    assert card("sit").paper_samples("self-improved", "tsp", 5000) == 8 * 20 * 200 * 500
    assert card("tropical").paper_samples("tasks", "knapsack") == 10_000_000


GOOD = 'kind = "neural"\nsolver = "a:B"\nproblems = ["tsp"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = ", "no readable card"),
        ("colour = 'red'\n" + GOOD, "unknown key 'colour'"),
        ('kind = "neural"\nsolver = "a:B"\n', "the key 'problems' is missing"),
        ('kind = "magic"\nsolver = "a:B"\nproblems = ["tsp"]\n', "kind 'magic'; expected one of exact"),
        ('kind = "exact"\nproblems = ["tsp"]\n', "the key 'solver' is missing"),
    ],
)
def test_a_mistake_in_a_card_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(BadInputError, match=rf"mine\.toml: .*{message}"):
        list(module._read(file, "mine"))


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'lehd'"):
        card("lehdd")


def test_no_key_of_a_card_is_read_by_nobody() -> None:
    """Every file's keys are attributes of `Card`, so that a misspelt one cannot pass."""
    for file in ROOMS.glob("*/*.toml"):
        assert set(tomllib.loads(file.read_text())) <= module.OWN_KEYS, file
