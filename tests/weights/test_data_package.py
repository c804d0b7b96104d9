"""Our weights as a package of their own: found where they are, and named where they are not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nco_bench.errors import MissingWeightsError
from nco_bench.weights import shelf, store
from nco_bench.weights.choice import default_weights, how_to_get

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "nco_bench" / "weights" / "files"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A base installation as the wheel leaves it: all manifests, the weights of one task network."""
    base = tmp_path / "base"
    base.mkdir()
    for path in FILES.glob("*.json"):
        shutil.copy(path, base)
    shutil.copy(FILES / "tropical-knapsack-seed0.safetensors", base)
    monkeypatch.setattr(store, "SHIPPED", base)
    monkeypatch.setenv("NCO_BENCH_CACHE", str(tmp_path / "cache"))
    store.data_folder.cache_clear()
    yield base
    store.data_folder.cache_clear()


@pytest.fixture
def data(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data package beside it."""
    package = tmp_path / "site" / store.DATA_PACKAGE
    (package / "files").mkdir(parents=True)
    shutil.copy(ROOT / "weights" / store.DATA_PACKAGE / "__init__.py", package)
    for name in ("decoder-6x128.json", "decoder-6x128.safetensors"):
        shutil.copy(FILES / name, package / "files")
    monkeypatch.syspath_prepend(str(package.parent))
    store.data_folder.cache_clear()
    return package


def test_what_the_wheel_lacks_names_the_package_that_has_it(wheel: Path) -> None:
    with pytest.raises(MissingWeightsError, match=r"nco-bench-weights: pip install 'nco-bench\[weights\]'"):
        store.resolve("decoder-6x128", "decoder-6x128")
    assert how_to_get("decoder-6x128", "tsp").state == "install"
    assert how_to_get("tropical", "subset-sum").state == "install"
    assert how_to_get("am", "tsp").state == "pull"  # not ours
    with pytest.raises(MissingWeightsError, match="weights list"):
        store.resolve("no-such-weights", "decoder-6x128")


def test_the_wheels_own_weights_are_found_without_the_package(wheel: Path) -> None:
    file = store.resolve("tropical-knapsack-seed0", "tropical")
    assert file.summary()["found_in"] == "nco-bench"
    assert [known.manifest.name for known in shelf.list_weights()] == ["tropical-knapsack-seed0"]
    assert len(shelf.separate_weights()) == len(list(FILES.glob("*.safetensors"))) - 1


def test_a_calibration_beside_what_the_wheel_lacks_is_no_weights_file(wheel: Path) -> None:
    before = shelf.separate_weights()
    (wheel / "pens-a.calibration.json").write_text("{}")
    assert shelf.separate_weights() == before


def test_weights_of_the_data_package_are_found_and_count_as_shipped(data: Path) -> None:
    file = store.resolve(default_weights("decoder-6x128", "tsp", 100), "decoder-6x128")
    assert file.path.parent == data / "files"
    assert (file.summary()["found_in"], file.summary()["shipped"]) == ("nco-bench-weights", True)
    assert all(problem is None for _, problem in shelf.verify_all())


def test_a_clone_finds_all_its_weights_where_they_are() -> None:
    assert len(shelf.list_weights((store.SHIPPED,))) == len(list(FILES.glob("*.safetensors"))) > 100
