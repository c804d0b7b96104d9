"""Folders and files that cannot be read or written get one clear line on stderr and exit status 2."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import Done, assert_refused


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("weights export pens-a --out .", "--out .: is a folder; name the weights file."),
        ("train --campaign .", ".: cannot be read (Is a directory)."),
        (
            "train lehd --data labels.npz --budget 1s --branch .",
            "--branch .: is a folder; name the weights file of",
        ),
        (
            "weights import glop .",
            "reviser_10/epoch.pt",
        ),  # which is no checkpoint, but the folder is its place
    ],
)
def test_the_folder_here_has_no_name_and_is_refused_or_taken(
    nco_bench: Callable[..., Done], command: str, cause: str
) -> None:
    Path("reviser_10").mkdir()
    Path("reviser_10/epoch.pt").write_bytes(b"none")
    assert_refused(nco_bench(*command.split()), cause)


def test_a_place_that_may_not_be_looked_into_is_refused(
    nco_bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_file = Path.is_file  # whom it is tested by may look into all places

    def closed(path: Path) -> bool:
        if path.parts[:1] == ("closed",):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", closed)
    done = nco_bench("run", "nearest-neighbor", "--data", "closed/set.npz")
    assert_refused(
        done, "closed/set.npz: Permission denied; choose another place, or change its permissions."
    )


def test_a_results_folder_that_cannot_be_written_is_refused(
    nco_bench: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = nco_bench("run", "nearest-neighbor", "--data", "tsp20:count=2", "--results", "file/runs")
    assert_refused(done, "file/runs", "--results")


def test_typer_mistakes_do_not_touch_the_results(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    nco_bench("run", "nearest-neighbor", "--data", "tsp20:count=2", "--decoding", "nonsense:1")
    assert not (tmp_path / "results").exists()


def test_a_name_that_is_not_utf8_is_refused(nco_bench: Callable[..., Done], tmp_path: Path) -> None:
    """Names of old archives: é in Latin-1. Records could not hold it, and the run ended with a traceback."""
    name = "caf\udce9.txt"
    (tmp_path / name).write_text("0 0 1 0 0 1\n")
    done = nco_bench("run", "nearest-neighbor", "--data", name)
    assert_refused(done, r"caf\udce9.txt: the name is not UTF-8; rename the file or folder")
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_a_damaged_dataset_in_the_way_is_to_be_moved(nco_bench: Callable[..., Done]) -> None:
    again = ("generate", "tsp", "--n", "8", "--count", "2", "--out", "set.npz")
    assert nco_bench(*again).returncode == 0
    Path("set.npz").write_bytes(Path("set.npz").read_bytes()[:500])
    assert_refused(
        nco_bench(*again), "set.npz: is in the way and cannot be read; move it away and start again"
    )


def test_a_calibration_that_cannot_be_kept_is_not_begun(
    nco_bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("cache").write_text("in the way")
    monkeypatch.setenv("NCO_BENCH_CACHE", "cache")
    done = nco_bench("calibrate", "pens-a", "--sizes", "10000")
    assert_refused(done, "pens-a.calibration.json: cannot be written")


def test_references_that_cannot_be_kept_name_the_option_that_says_where(
    nco_bench: Callable[..., Done],
) -> None:
    """`reference` has no --results, which the advice named."""
    Path("references").write_text("in the way")
    done = nco_bench("reference", "tsp8:count=1", "--solver", "nearest-neighbor", "--instances", ".")
    assert done.returncode == 2
    assert done.stderr.endswith(
        "cannot be written (Not a directory); choose another folder with --instances.\n"
    )


WITH_RESULTS = [
    ("report",), ("compare", "two-opt", "savings", "--data", "tsp8:count=1"), ("verify",), ("runs", "list"),
    ("run", "two-opt", "--data", "tsp8:count=1"), ("reproduce", "pens", "--status"),
    ("plot", "pareto", "--out", "x.png"),
]  # fmt: skip


@pytest.mark.parametrize("command", WITH_RESULTS)
def test_a_file_that_is_no_archive_is_no_results_folder(
    nco_bench: Callable[..., Done], command: tuple[str, ...]
) -> None:
    Path("runs.csv").write_text("a,b\n")
    for name, cause in (
        ("runs.csv", "neither a folder of runs nor an archive"),
        ("runs.csv/a", "runs.csv is a file"),
    ):
        assert_refused(nco_bench(*command, "--results", name), f"{name}: ", cause)
    assert Path("runs.csv").read_text() == "a,b\n"


@pytest.mark.parametrize("command", [*WITH_RESULTS, ("runs", "merge", "other")])
@pytest.mark.parametrize("target", ["gone/runs", "link"])
def test_a_link_that_leads_nowhere_is_named(
    nco_bench: Callable[..., Done], command: tuple[str, ...], target: str
) -> None:
    """Readers called the folder absent, `run` said that a file exists, and a link to itself was a traceback."""
    Path("link").symlink_to(target)
    for folder in ("link", "link/runs"):
        assert_refused(
            nco_bench(*command, "--results", folder),
            f"--results {folder}: link is a link to {target}, which is not",
        )
    assert_refused(
        nco_bench("generate", "tsp", "--n", "8", "--instances", "link"), "--instances link: link is a"
    )
    assert [path.name for path in Path().iterdir()] == ["link"]


@pytest.mark.parametrize(
    "command", [("generate", "tsp", "--n", "8"), ("run", "two-opt", "--data", "tsp8:count=1")]
)
def test_a_file_is_no_folder_of_datasets(nco_bench: Callable[..., Done], command: tuple[str, ...]) -> None:
    """`run` took the file without a word, and kept no references."""
    Path("file").touch()
    for folder in ("file", "file/within"):
        assert_refused(
            nco_bench(*command, "--instances", folder),
            f"--instances {folder}: cannot be a folder (file is a file); correct the name.",
        )


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nearest-neighbor", "--data", "tsp8:count=1", "--results", "x" * 300),
        ("run", "nearest-neighbor", "--data", "tsp8:count=1", "--instances", "x" * 300),
        ("run", "nearest-neighbor", "--data", "x" * 300 + ".tsp"),
        ("generate", "tsp", "--n", "8", "--count", "1", "--out", "x" * 300 + ".npz"),
    ],
)
def test_a_name_that_no_disk_takes_is_one_line(
    nco_bench: Callable[..., Done], arguments: tuple[str, ...]
) -> None:
    assert_refused(nco_bench(*arguments), "xxx", ": File name too long; choose a shorter name.")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "nearest-neighbor", "--data", "tsp8:count=1", "--results", ""),
        ("run", "nearest-neighbor", "--data", "tsp8:count=1", "--results="),
        ("runs", "merge", "", "--results", "runs"),
    ],
)
def test_an_empty_argument_is_no_folder(nco_bench: Callable[..., Done], arguments: tuple[str, ...]) -> None:
    """A shell gives one for a variable that is not set, and runs went to the folder that one stood in."""
    assert_refused(nco_bench(*arguments), "is empty; name something, or leave it out")
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    ("problem", "reference", "said"),
    [("tsp", "nonono", "Unknown solver 'nonono'"), ("bpp3d", "lkh3", "solves tsp and cvrp, not bpp3d")],
)
def test_a_reference_that_cannot_be_made_leaves_no_file_without_one(
    nco_bench: Callable[..., Done], problem: str, reference: str, said: str
) -> None:
    made = nco_bench(
        "generate", problem, "--n", "8", "--count", "2", "--reference", reference, "--out", "s.npz"
    )
    assert_refused(made, said)
    assert not list(Path().iterdir())


def test_a_place_in_a_file_is_told_as_that(nco_bench: Callable[..., Done]) -> None:
    Path("file").write_text("in the way")
    done = nco_bench("generate", "tsp", "--n", "8", "--count", "2", "--out", "file/set.npz")
    assert_refused(done, "file/set.npz: cannot be written (file is a file). Choose another place")
    done = nco_bench("runs", "merge", "nowhere", "--results", "runs")
    assert_refused(done, "nowhere: no such folder or archive")


def test_a_cache_that_cannot_be_made_names_its_variable(
    nco_bench: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("cache").write_text("in the way")
    monkeypatch.setenv("NCO_BENCH_CACHE", "cache")
    monkeypatch.delenv("NCO_BENCH_MIRROR", raising=False)
    done = nco_bench("weights", "pull", "am-official-tsp20")
    assert_refused(done, "cache is a file", "name a folder with NCO_BENCH_CACHE")
