"""Library datasets by name: what is in them, and references that re-score."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from nco_bench.datasets import catalog
from nco_bench.datasets.libraries import library_entries, library_names, resolve_library, select
from nco_bench.datasets.names import parse_generated
from nco_bench.errors import BadInputError, UnknownNameError
from nco_bench.problems import problem

NOWHERE = Path("no-such-folder")


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("tsplib", 111),
        ("tsplib:1001-10000", 26),
        ("tsplib:EUC_2D", 78),
        ("tsplib:geo", 10),
        # The counts that PENS, SIT and LEHD state for their selections.
        ("tsplib:pens-100", 12),
        ("tsplib:pens-1000", 36),
        ("tsplib:pens-10000", 24),
        ("tsplib:sit", 33),
        ("tsplib:decoder-scaling", 70),
        ("cvrplib:sit", 14),
        ("cvrplib:sit:no-limit", 11),  # without Li_30 to Li_32
        ("cvrplib:Golden:no-limit", 12),
        ("cvrplib:X", 100),
        ("cvrplib:AGS", 10),
        ("cvrplib:XXL", 10),
        ("cvrplib:X:n<=500", 68),
        ("cvrplib:X:n>=500:n<=600", 9),
        ("cvrplib:Li", 12),
        ("tsplib/berlin52", 1),
    ],
)
def test_names_mean_so_many_instances(name: str, count: int) -> None:
    assert len(select(name)) == count


def test_the_groups_of_sit_are_as_large_as_its_table_says() -> None:
    # SIT Table 2: ELG solves the 23 TSPLIB instances up to 5K, BQ the 8 CVRPLIB instances up to 7K.
    assert sum(entry.n <= 5000 for entry in select("tsplib:sit")) == 23
    assert sum(entry.n <= 7000 for entry in select("cvrplib:sit")) == 8


def test_decoder_scaling_is_the_list_of_lehd(shared: Path) -> None:
    members = json.loads((shared / "instances" / "testsets" / "lehd_tsplib70.json").read_text())["members"]
    entries = {entry.name: entry for entry in select("tsplib:decoder-scaling")}
    assert {m["name"] for m in members} == set(entries)
    assert all(entries[m["name"]].value == m["reference_cost"] for m in members)


def test_the_catalogue_agrees_with_the_index(shared: Path) -> None:
    for library, column in (("tsplib", "optimal_value"), ("cvrplib", "best_known_value")):
        rows = list(csv.DictReader((shared / "instances" / library / "index.csv").open()))
        entries = catalog.tsplib() if library == "tsplib" else catalog.cvrplib()
        for row, entry in zip(rows, entries, strict=True):
            assert (entry.name, entry.value, entry.sha256) == (row["name"], float(row[column]), row["sha256"])


@pytest.mark.parametrize(
    "name", ["tsplib:pens-1000", "cvrplib:B", "cvrplib:Golden", "cvrplib:AGS", "tsplib/linhp318"]
)
def test_references_are_published_values_with_solutions_that_cost_as_much(shared: Path, name: str) -> None:
    dataset = resolve_library(name, NOWHERE, shared)
    assert dataset is not None
    for entry, instance, reference in zip(select(name), dataset.instances, dataset.references, strict=True):
        assert reference is not None
        assert instance.name == entry.name
        assert instance.convention == entry.convention
        assert reference.cost == pytest.approx(
            entry.value, abs=0.0051 if entry.convention == "euclidean" else 0
        )
        if reference.solution is not None:
            referee = problem(instance.problem)
            assert referee.violations(instance, reference.solution) == ()
            assert referee.score(instance, reference.solution) == reference.cost


def test_a_solution_worse_than_the_best_known_value_is_not_enclosed(shared: Path) -> None:
    dataset = resolve_library("cvrplib/Leuven2", NOWHERE, shared)
    assert dataset is not None
    reference = dataset.references[0]
    assert reference is not None
    assert reference.cost == 111391  # the .sol at hand costs 111395
    assert reference.solution is None


def test_an_optimum_of_a_fixed_fleet_is_not_called_optimal(shared: Path) -> None:
    dataset = resolve_library("cvrplib/B-n51-k7", NOWHERE, shared)
    assert dataset is not None
    reference = dataset.references[0]
    assert reference is not None
    assert (reference.cost, reference.optimal) == (1032, False)
    assert "1016 with a free fleet" in reference.params


@pytest.mark.parametrize("name", [entry.name for entry in catalog.testsets() if entry.name != "xml100"])
def test_test_sets_have_the_stated_mean_cost(shared: Path, name: str) -> None:
    entry = next(entry for entry in catalog.testsets() if entry.name == name)
    dataset = resolve_library(name, NOWHERE, shared)
    assert dataset is not None
    costs = [reference.cost for reference in dataset.references if reference is not None]
    assert len(costs) == len(dataset) == entry.count
    assert np.mean(costs) == pytest.approx(entry.mean_cost, abs=6e-7)


@pytest.mark.slow
def test_xml100_is_rounded_and_proven(shared: Path) -> None:
    dataset = resolve_library("xml100", NOWHERE, shared)
    assert dataset is not None
    assert dataset.convention == "cvrplib-nint"
    assert dataset.instances[0].name == "xml100/1111_01"
    assert all(r is not None and r.optimal and r.cost == int(r.cost) for r in dataset.references)
    assert np.mean([r.cost for r in dataset.references if r]) == pytest.approx(16937.871053, abs=1e-6)


def test_the_instances_folder_comes_before_the_mirror(shared: Path, tmp_path: Path) -> None:
    source = shared / "instances" / "tsplib" / "berlin52.tsp.gz"
    (tmp_path / "tsplib").mkdir()
    # Other line ends, no .gz: another file, the same instance.
    text = gzip.decompress(source.read_bytes()).replace(b"\n", b"\r\n")
    (tmp_path / "tsplib" / "berlin52.tsp").write_bytes(text)
    dataset = resolve_library("tsplib/berlin52", tmp_path)
    assert dataset is not None
    assert dataset.references[0] is not None
    assert (dataset.references[0].cost, dataset.references[0].optimal) == (7542, True)
    # One coordinate changed: not the published instance any more.
    (tmp_path / "tsplib" / "berlin52.tsp").write_bytes(text.replace(b"565.0", b"566.0", 1))
    with pytest.raises(BadInputError, match="not the published berlin52"):
        resolve_library("tsplib/berlin52", tmp_path, shared)


def test_missing_files_and_unknown_names_say_what_to_do() -> None:
    with pytest.raises(BadInputError, match="run 'nco-bench instances pull tsplib'"):
        resolve_library("tsplib/berlin52", NOWHERE)
    with pytest.raises(UnknownNameError, match="Did you mean 'berlin52'"):
        resolve_library("tsplib/berlin53", NOWHERE)
    with pytest.raises(UnknownNameError, match="Unknown filter of cvrplib 'Y'"):
        resolve_library("cvrplib:Y", NOWHERE)
    with pytest.raises(UnknownNameError, match="Unknown filter of tsplib 'pens-10'"):
        resolve_library("tsplib:pens-10", NOWHERE)
    with pytest.raises(BadInputError, match="no instance of tsplib fits"):
        resolve_library("tsplib:100000-200000", NOWHERE)
    assert resolve_library("tsp100", NOWHERE) is None
    assert resolve_library("tsplibrary", NOWHERE) is None


def test_every_listed_name_resolves_to_what_the_list_says() -> None:
    names = library_names()
    assert len(names) == len(set(names))
    for entry in library_entries():
        if entry["name"].startswith(("tsplib", "cvrplib")):
            sizes = [e.n for e in select(entry["name"])]
            assert (len(sizes), (min(sizes), max(sizes))) == (entry["instances"], entry["sizes"])


def test_a_changed_test_set_is_refused(shared: Path, tmp_path: Path) -> None:
    content = bytearray((shared / "instances" / "testsets" / "fu_tsp500.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "testsets").mkdir()
    (tmp_path / "testsets" / "fu_tsp500.npz").write_bytes(bytes(content))
    with pytest.raises(BadInputError, match=r"not .*; run 'nco-bench instances pull fu_tsp500'"):
        resolve_library("fu_tsp500", tmp_path)


@pytest.mark.parametrize("name", library_names())
def test_no_name_of_a_library_is_that_of_a_generated_set(name: str) -> None:
    """Generated names are asked first (`load_dataset`), so a library's must not look like one."""
    assert parse_generated(name) is None


def test_instances_that_a_source_lacks_are_told_in_a_few_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nco_bench.cli.app import run

    empty = tmp_path / "empty"
    empty.mkdir()
    given = ["instances", "pull", "tsplib", "--archive", str(empty), "--instances", str(tmp_path / "i")]
    assert run(given) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 7
    assert "106 more failed" in said[5]
