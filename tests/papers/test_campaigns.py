"""Campaigns and presets agree on names: what `campaigns/PAPER.toml` trains is what the cells of its tables look up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nco_bench.cards import official_weights, trained_by
from nco_bench.papers.preset import CellPreset, has_preset, load_preset, numeric_cells
from nco_bench.papers.published import list_papers, list_tables, load_table
from nco_bench.papers.reproducing import problem_of
from nco_bench.training.campaign_file import Stage, read_campaign
from nco_bench.weights.store import SHIPPED, SUFFIX

CAMPAIGNS = Path(__file__).parents[2] / "campaigns"
SEEDS = range(3)


def _cells(paper: str, number: int | str) -> Iterator[CellPreset]:
    """The cells of a table at full scale, with their other readings."""
    preset = load_preset(paper, number)
    for cell in numeric_cells(load_table(paper, number)):
        found = preset.cell(cell, "full")
        yield from (found, *found.readings.values())


def _names(cell: CellPreset) -> tuple[str, ...]:
    """Return the names of weights that a cell looks up, in its order; those of the solver where it names none."""
    solver = cell.solver.partition(":")[0]
    if solver in trained_by("tasks"):  # a network of each task; over training seeds all that are at hand
        tasks = [name.partition(":")[0] for name in (*cell.data, *cell.mean_of)]
        seeds = SEEDS if cell.compute else SEEDS[:1]
        return tuple(f"{solver}-{task}-seed{seed}" for task in tasks for seed in seeds)
    if not cell.metric:
        return ()
    problem = problem_of(cell)
    return cell.weights or ((solver if problem == "tsp" else f"{solver}-{problem}"),)


@cache
def _looked_up(paper: str) -> dict[str, frozenset[str]]:
    """Names by table."""
    tables = [t for t in list_tables() if t.paper == paper and has_preset(paper, t.number)]
    return {
        str(t.number): frozenset(name for cell in _cells(paper, t.number) for name in _names(cell))
        for t in tables
    }


def _tables(stage: Stage) -> set[str]:
    """Return the numbers in a text such as ``1, 2, 4-6, figure-4``."""
    found = set()
    for part in stage.tables.split(", "):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        found |= (
            {str(n) for n in range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)} if numbers else {part}
        )
    return found


@pytest.mark.parametrize("paper", list_papers())
def test_what_a_campaign_trains_is_looked_up_by_a_table_that_it_names(paper: str) -> None:
    """Days of a GPU would otherwise end in files that no cell asks for."""
    looked_up, stages = _looked_up(paper), read_campaign(CAMPAIGNS / f"{paper}.toml")
    wanted = {stage.name: _tables(stage) for stage in stages}
    assert wanted
    in_vain = [name for name, tables in wanted.items() if not any(name in looked_up[n] for n in tables)]
    assert in_vain == []
    trained = {n: {name for name, tables in wanted.items() if n in tables} for n in looked_up}
    named = {n for tables in wanted.values() for n in tables}
    assert [n for n in sorted(named) if not trained[n] & looked_up[n]] == []


@pytest.mark.parametrize("paper", list_papers())
def test_what_a_table_looks_up_first_is_published_shipped_or_trained_by_a_campaign(paper: str) -> None:
    trained = {s.name for name in list_papers() for s in read_campaign(CAMPAIGNS / f"{name}.toml")}
    official = set(official_weights())
    missing = set()
    for table in _looked_up(paper):
        for cell in _cells(paper, table):
            if not cell.metric or not cell.weights or cell.weights[0] == "random":
                continue
            first, solver = cell.weights[0], cell.solver.partition(":")[0]
            known = trained | official | {name.removeprefix(f"{solver}-") for name in official}
            if first not in known and not (SHIPPED / f"{first}{SUFFIX}").is_file():
                missing.add(f"table {table}: {first}")
    assert sorted(missing) == []


@pytest.mark.parametrize("paper", list_papers())
def test_names_of_weights_are_names_of_files(paper: str) -> None:
    """A size copied from a header, such as 1,000, brings its comma along."""
    names = {name for table in _looked_up(paper).values() for name in table}
    assert [name for name in sorted(names) if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name)] == []


def test_larger_sizes_of_sit_start_from_its_network_of_1000_nodes() -> None:
    """Section 5: "leverage the trained model to conduct separate training on larger scales"."""
    stages = {stage.name: stage for stage in read_campaign(CAMPAIGNS / "sit.toml")}
    for problem in ("tsp", "cvrp"):
        for size in (5, 10, 50, 100):
            stage = stages[f"sit-{problem}{size}k"]
            assert (stage.start, stage.config["improve_first"]) == (f"sit-{problem}1k", "true")
        assert stages[f"sit-{problem}1k"].start is None


def test_rivals_of_sit_are_trained_for_tables_and_sizes_that_print_them() -> None:
    """Table 1 alone has DIFUSCO, at 1K and 10K; days of a GPU would otherwise end in files that no cell asks for."""
    stages = read_campaign(CAMPAIGNS / "sit-rivals.toml")
    starts = {stage.start for stage in stages}
    for stage in stages:
        size = int(stage.name.removeprefix(f"{stage.model}-tsp"))
        for number in _tables(stage):
            cells = numeric_cells(load_table("sit", number))
            columns = [cell.column for cell in cells if cell.row.lower() == stage.model]
            assert columns, (stage.name, number)
            printed = any(column.startswith(f"TSP{size // 1000}K ") for column in columns)
            assert printed or stage.name in starts, stage.name


def test_table_3_of_sit_tests_one_model_per_row_at_all_sizes() -> None:
    """Section 5.2: the models are "tested on CVRP1K/5K/10K", and only at 1K does Ours print what Table 1 does."""
    table, preset = load_table("sit", 3), load_preset("sit", 3)
    for row in table.rows:
        cells = [cell for cell in numeric_cells(table) if cell.row == row]
        assert len({preset.cell(cell, "full").weights for cell in cells}) == 1
