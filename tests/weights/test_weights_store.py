"""Weights are found by name or path, and only ever loaded when they are what their manifest says."""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from nco_bench.cards import trained_by
from nco_bench.errors import BadWeightsError
from nco_bench.files import writing_together
from nco_bench.nn.build import build_path_policy, count_parameters
from nco_bench.papers.stored import unchanged
from nco_bench.seals import unseal_document
from nco_bench.solvers.sequences.task_networks import build_task_network
from nco_bench.weights.choice import find
from nco_bench.weights.exporting import describe, export_copy
from nco_bench.weights.importing import import_checkpoint
from nco_bench.weights.manifest import (
    Manifest,
    TrainingData,
    Validation,
    manifest_path,
    read_manifest,
    sha256_of,
)
from nco_bench.weights.shelf import export, keep, list_weights, trained_now, verify_all
from nco_bench.weights.store import SHIPPED, WeightsFile, load_into, load_state, resolve, verify

TASK_NETWORKS = trained_by("tasks")
MODEL = "decoder-96x32"


def _manifest(**changes: object) -> Manifest:
    plain = Manifest(
        name="mine",
        model=MODEL,
        config={"depth": 96, "width": 32},
        problem="tsp",
        parameters=1,
        sha256="",
        steps=10,
        samples=320,
        data=TrainingData("uniform", 100, 2500, "fast-tsp", label_gap_percent=0.02, seeds=("1", "2")),
        recipe={"lr": 1e-3, "batch": 32},
        seed=1234,
        hours=1.5,
        machine={"cpu": "some"},
        code_version="0.1.0",
        validation=(Validation(3.5, 0.2, 1000, "tsp100"),),
        paper_samples=100,
        share_of_paper=0.5,
        recipe_changes=({"step": 5, "changed": {"lr": 1.0}},),
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path))
    return tmp_path / "weights"


@pytest.fixture
def file(cache: Path) -> WeightsFile:
    return export({"a": torch.arange(4.0), "b": torch.tensor(2.0)}, _manifest(), cache / "mine.safetensors")


def test_what_is_written_is_read(file: WeightsFile) -> None:
    assert read_manifest(manifest_path(file.path)) == file.manifest
    assert file.manifest == _manifest(sha256=sha256_of(file.path))
    state = load_state(file)
    assert state["a"].tolist() == [0, 1, 2, 3]
    assert state["b"].item() == 2.0


def test_names_and_paths_lead_to_the_file(file: WeightsFile) -> None:
    assert resolve("mine", MODEL, "tsp") == resolve(str(file.path), MODEL) == file
    assert [f.path for f in list_weights() if not f.summary()["shipped"]] == [file.path]


def test_missing_weights_name_the_commands_that_get_them(cache: Path) -> None:
    with pytest.raises(BadWeightsError, match=r"'am' for am.*official ones with 'nco-bench weights pull am'"):
        find("am", "am", "tsp")
    with pytest.raises(BadWeightsError, match=r"nco-bench train coordns .* --out .*/coordns.safetensors'"):
        find("coordns", "coordns", "tsp")
    with pytest.raises(BadWeightsError, match="no such weights file"):
        resolve(str(cache / "none.safetensors"), MODEL)


def test_official_weights_without_their_manifest_yet_are_imported(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has them in hand, or was killed at it: the manifest comes last."""
    weights, pulled = cache / "am-official-tsp100.safetensors", []
    export({"a": torch.zeros(1)}, _manifest(name="am-official-tsp100", model="am"), weights)
    complete = manifest_path(weights).read_bytes()
    manifest_path(weights).unlink()
    with pytest.raises(BadWeightsError, match="get them with 'nco-bench weights pull am-official-tsp100'"):
        find("am-official-tsp100", "am", "tsp")

    def pull(name: str, say: object) -> None:
        pulled.append(name)
        manifest_path(weights).write_bytes(complete)

    monkeypatch.setattr("nco_bench.weights.pulling.in_mirror", lambda entry: weights)
    monkeypatch.setattr("nco_bench.weights.pulling.pull", pull)
    assert [find("am-official-tsp100", "am", "tsp").path for _ in range(2)] == [weights] * 2
    assert pulled == ["am-official-tsp100"]


def test_weights_of_another_model_or_problem_are_named(file: WeightsFile) -> None:
    with pytest.raises(BadWeightsError, match="weights of decoder-96x32, not of pens-ar"):
        resolve("mine", "pens-ar")
    with pytest.raises(BadWeightsError, match="for tsp, not for cvrp"):
        resolve("mine", MODEL, "cvrp")


def test_a_changed_file_is_refused(file: WeightsFile) -> None:
    content = bytearray(file.path.read_bytes())
    content[-1] ^= 1
    file.path.write_bytes(content)
    with pytest.raises(BadWeightsError, match="changed since its manifest was written"):
        resolve("mine", MODEL)
    assert {path: problem is None for path, problem in verify_all() if path == file.path} == {
        file.path: False
    }


def test_weights_that_take_the_place_of_verified_ones_are_not_loaded_under_their_hash(
    file: WeightsFile,
) -> None:
    export({"a": torch.zeros(4), "b": torch.tensor(2.0)}, _manifest(), file.path)
    with pytest.raises(BadWeightsError, match="was replaced while it was being read"):
        load_state(file)


def test_a_reader_waits_for_the_manifest_of_weights_that_are_being_written(file: WeightsFile) -> None:
    before, manifest = file.path.read_bytes(), manifest_path(file.path).read_bytes()
    export({"a": torch.zeros(4), "b": torch.tensor(2.0)}, _manifest(), file.path)
    with ThreadPoolExecutor(1) as threads:
        with writing_together(file.path.parent):
            file.path.write_bytes(before)
            found = threads.submit(verify, file.path)
            time.sleep(0.2)
            assert not found.done()
            manifest_path(file.path).write_bytes(manifest)
        assert found.result(timeout=10).sha256 == file.sha256


def test_a_truncated_file_is_called_damaged(file: WeightsFile) -> None:
    file.path.write_bytes(file.path.read_bytes()[:-3])
    with pytest.raises(BadWeightsError, match=r"mine\.safetensors: damaged weights file"):
        resolve("mine", MODEL)


def test_broken_json_is_named_with_its_line(file: WeightsFile) -> None:
    manifest_path(file.path).write_text('{\n  "name": "mine",\n  "model" oops\n}')
    with pytest.raises(BadWeightsError, match=r"mine\.json:3: the manifest is no valid JSON"):
        resolve("mine", MODEL)


def test_a_file_without_manifest_is_refused(file: WeightsFile) -> None:
    manifest_path(file.path).unlink()
    with pytest.raises(BadWeightsError, match="manifest of these weights is missing"):
        resolve("mine", MODEL)


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"stepz": 1}, "unknown: stepz"),
        ({"steps": "ten"}, "steps: expected int, found 'ten'"),
        ({"steps": True}, "steps: expected int"),
        ({"validation": {}}, "validation: expected a list"),
        ({"validation": [{"gap": 1}]}, "validation: manifest fields missing: gap_percent"),
        ({"format": 99}, "manifest format 99, expected 1"),
    ],
)
def test_a_manifest_that_is_none_is_refused(file: WeightsFile, change: dict[str, object], cause: str) -> None:
    path = manifest_path(file.path)
    path.write_text(json.dumps(unseal_document(path.read_bytes()) | change))
    with pytest.raises(BadWeightsError, match=cause):
        resolve("mine", MODEL)


def test_tensors_that_do_not_fit_the_model_are_named(file: WeightsFile) -> None:
    policy = build_path_policy("decoder-6x128")
    with pytest.raises(BadWeightsError, match=r"does not fit decoder-96x32: .* tensors missing"):
        load_into(policy, file)
    state = {k: v.clone() for k, v in policy.state_dict().items()} | {"score.weight": torch.zeros(1, 64)}
    other = export(state, _manifest(), file.path.with_name("other.safetensors"))
    with pytest.raises(BadWeightsError, match=r"score\.weight has shape \(1, 64\).* needs \(1, 128\)"):
        load_into(policy, other)


def test_weights_of_a_training_that_diverged_are_refused(file: WeightsFile) -> None:
    policy = build_path_policy("decoder-6x128")
    state = {k: v.clone() for k, v in policy.state_dict().items()}
    state["score.weight"][0, 3] = torch.nan
    lost = export(state, _manifest(), file.path.with_name("lost.safetensors"))
    with pytest.raises(
        BadWeightsError, match=r"lost\.safetensors: score\.weight holds numbers that are not finite"
    ):
        load_into(policy, lost)


def test_shipped_weights_are_whole_and_fit_their_model() -> None:
    """Every shipped file matches its manifest's hash, its model and its parameter count."""
    shipped = sorted(SHIPPED.glob("*.safetensors"))
    assert shipped, "the package ships no weights"
    for path in shipped:
        file = verify(path)
        if file.manifest.model == "eie":  # a curve and no policy, see tests/models/test_eie.py
            continue
        made = file.manifest
        if made.model in TASK_NETWORKS:
            policy = build_task_network(made.model, **made.config)
        else:
            config = {key: value for key, value in made.config.items() if key != "problem"}
            policy = build_path_policy(made.model, made.problem, **config)
        load_into(policy, file)
        assert count_parameters(policy) == file.manifest.parameters
        assert file.manifest.licence == "MIT"
        assert made.validation or "On fresh instances" in made.notes  # an F1 is no gap


@pytest.mark.parametrize(
    ("name", "model", "params"),
    [
        ("am-eie-cvrp100", "am", {"capacity": "10", "demand": "unit"}),
        ("attend2pack-120x100", "attend2pack", {"sides": "10..50"}),
        ("am-eie-tsp100", "am", {}),  # nothing but the distribution
    ],
)
def test_records_say_what_training_instances_were_drawn_with(
    name: str, model: str, params: dict[str, str]
) -> None:
    assert resolve(name, model).facts()["training_params"] == params


def test_a_manifest_older_than_a_choice_of_the_model_says_what_was_so_before(file: WeightsFile) -> None:
    """PENS had an output projection before it was a choice."""
    old = _manifest(model="pens-a", config={"layers": 8})
    manifest_path(file.path).write_text(json.dumps(dataclasses.asdict(old)))
    assert read_manifest(manifest_path(file.path)).config == {"layers": 8, "output_projection": True}


def test_an_imported_name_stays_in_the_folder_of_weights(tmp_path: Path) -> None:
    with pytest.raises(BadWeightsError, match=r"--name '\.\./evil': expected a plain name"):
        import_checkpoint("lehd", tmp_path / "any.pt", "tsp", "../evil")


@pytest.mark.parametrize("name", ["..", ".hidden", "", "a/b"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadWeightsError, match="expected a plain name"):
        import_checkpoint("lehd", tmp_path / "any.pt", "tsp", name)


def am_checkpoint(path: Path, seed: int) -> Path:
    """What `import_checkpoint` takes for AM: a file of our own layout, with other numbers for each seed."""
    torch.manual_seed(seed)
    torch.save({"model": build_path_policy("am", "tsp").state_dict()}, path)
    return path


def pens_copy(folder: Path) -> Path:
    """The shipped weights of a model without public code, without their manifest."""
    copied = export_copy("pens-a", folder / "pens" / "copy").path
    manifest_path(copied).unlink()
    return copied


def test_an_import_never_writes_over_other_weights(cache: Path, tmp_path: Path) -> None:
    """It replaced what was pulled, or trained for hours, without a word."""
    first, other = (am_checkpoint(tmp_path / f"{seed}.pt", seed) for seed in (1, 2))
    made = import_checkpoint("am", first, name="mine")
    before = made.path.read_bytes()
    assert import_checkpoint("am", first, name="mine").manifest.sha256 == made.manifest.sha256
    with pytest.raises(
        BadWeightsError, match=r"mine\.safetensors: other weights have this name and would be lost"
    ):
        import_checkpoint("am", other, name="mine")
    assert made.path.read_bytes() == before
    with pytest.raises(BadWeightsError, match="weights pull am-official-tsp100"):
        import_checkpoint("am", other, name="am-official-tsp100")
    # A copy of ours was taken for the authors': "training was not ours", and what it was trained on was gone.
    copy = export_copy("mine", tmp_path / "copy")
    with pytest.raises(BadWeightsError, match=r"needs no import; 'run am --weights \S*copy\.safetensors'"):
        import_checkpoint("am", copy.path, name="yours")
    manifest_path(copy.path).unlink()  # as one that was copied alone
    for model in ("am", "pens-a"):
        with pytest.raises(BadWeightsError, match=r"weights of ours.*put it beside them as copy\.json"):
            import_checkpoint(model, copy.path if model == "am" else pens_copy(tmp_path), name="yours")
    manifest_path(made.path).unlink()  # as an import that was killed leaves it
    assert import_checkpoint("am", other, name="mine").manifest.sha256 != made.manifest.sha256


def test_a_cost_that_nothing_was_compared_with_is_no_percentage(cache: Path) -> None:
    on = "mean greedy cost on fresh tsp20 of the training distribution, unit square; no gap"
    file = export(
        {"a": torch.arange(4.0)},
        _manifest(validation=(Validation(4.187, 0.054, 512, on),)),
        cache / "x.safetensors",
    )
    assert "validation   4.187 +- 0.054 on 512 mean greedy cost" in describe(file)


@pytest.fixture
def own(cache: Path) -> WeightsFile:
    """Weights of the user's under a name that ships."""
    named = _manifest(name="decoder-24x64", model="decoder-24x64")
    return export({"a": torch.arange(4.0)}, named, cache / "decoder-24x64.safetensors")


def test_what_the_user_has_under_a_name_comes_before_what_ships(own: WeightsFile) -> None:
    assert find("decoder-24x64", "decoder-24x64", "tsp").path == own.path
    assert [file.path for file in list_weights() if file.path.stem == own.path.stem] == [own.path]
    assert (own.summary()["found_in"], own.summary()["hides"]) == ("cache", "nco-bench")
    assert "used before  the weights of this name in nco-bench" in describe(own)
    shipped = verify(SHIPPED / own.path.name)
    assert (shipped.summary()["found_in"], shipped.summary()["hides"]) == ("nco-bench", None)
    assert "used before" not in describe(shipped)


def test_records_of_what_ships_do_not_answer_for_what_the_user_has_under_its_name(own: WeightsFile) -> None:
    shipped = verify(SHIPPED / own.path.name)
    assert unchanged("decoder-24x64", own.sha256)
    assert not unchanged("decoder-24x64", shipped.sha256)
    own.path.unlink()
    assert unchanged("decoder-24x64", shipped.sha256)


def test_kept_weights_are_found_by_name_and_never_replace_others(file: WeightsFile, tmp_path: Path) -> None:
    trained = tmp_path / "trained.safetensors"
    made = export({"a": torch.ones(3)}, _manifest(name="trained"), trained)
    kept = keep(trained)
    assert kept is not None
    assert (kept.parent, resolve("trained", MODEL).sha256) == (file.path.parent, made.sha256)
    assert keep(trained) == kept
    export({"a": torch.zeros(3)}, _manifest(name="trained"), trained)
    assert keep(trained) is None
    assert resolve("trained", MODEL).sha256 == made.sha256


def test_what_a_manifest_counts_now_goes_before_what_a_record_says() -> None:
    """PENS-R's came to count the run that it went on from when records were made with it."""
    (shipped,) = [one for one in list_weights([SHIPPED]) if one.manifest.name == "pens-r"]
    facts = shipped.facts()
    assert trained_now({**facts, "samples": 1, "share_of_paper": 0.0}) == facts
    other = {**facts, "sha256": "0" * 64, "samples": 1}
    assert trained_now(other) == other, "another file of the name"
    assert trained_now({"name": "../pens-r", "sha256": "0"}) == {"name": "../pens-r", "sha256": "0"}
