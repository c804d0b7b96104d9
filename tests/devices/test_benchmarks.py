"""The benchmarks that are for GPUs run from end to end on a device that is not the CPU; their times mean nothing here."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import second

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def printed(
    name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    monkeypatch.syspath_prepend(BENCHMARKS)  # as for a script that is run
    with second.watching() as watch:
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
    assert watch.operations > 1000, "nothing was done on the device"
    return capsys.readouterr().out.splitlines()


def test_path_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(
        "path_gpu.py", ["--device", second.NAME, "--nodes", "6", "--precision", "bf16"], monkeypatch, capsys
    )
    assert [line.partition(",")[0] for line in lines] == [
        "pens-a greedy", "sit greedy", "decoder-6x128 greedy",
    ]  # fmt: skip


def test_path_gpu_with_recordings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--device", second.NAME, "--nodes", "6", "--precision", "fp32", "--only", "sit", "--graphs"]
    (line,) = printed("path_gpu.py", arguments, monkeypatch, capsys)
    assert ", 2 recordings: " in line  # the first step, and all others


def test_train_throughput(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(
        "train_throughput.py",
        ["--device", second.NAME, "--batch", "2", "--seconds", "0.01", "--side", "64"],
        monkeypatch,
        capsys,
    )
    assert len(lines) == 5
    assert f"{second.NAME}," in lines[0]


def test_train_throughput_names_the_dearest_operations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--device", second.NAME, "--batch", "2", "--seconds", "0.01", "--side", "64", "--kernels", "3"]
    lines = printed("train_throughput.py", given, monkeypatch, capsys)
    assert len(lines) == 1 + 4 * 5
    assert " operations of " in lines[2]
    assert all(" x " in line for line in lines[3:6])


def test_gpu_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "rows.jsonl"
    arguments = ["--device", second.NAME, "--tiny", "--only", "C", "--out", str(out)]
    lines = printed("gpu_models.py", arguments, monkeypatch, capsys)
    assert lines[-1].endswith(", 0 error")
    facts, *rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert facts["python"]
    exact = [row for row in rows if "tf32" in row["row"]]  # bf16 may choose another tour, of these weights
    assert [(row["status"], row["equal"]) for row in exact] == [("ok", "2/2")] * 2
    assert [row["equal"].endswith("/2") for row in rows] == [True] * 4


@pytest.mark.parametrize("name", ["path_gpu.py", "train_throughput.py", "gpu_models.py"])
def test_a_device_that_is_not_there_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--device", "cuda:7"])
    monkeypatch.syspath_prepend(BENCHMARKS)
    with pytest.raises(SystemExit, match="has 0 CUDA devices"):
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
