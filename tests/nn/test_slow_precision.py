"""bf16 on a CPU without instructions for it is many times slower than fp32, which is said where it was asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nco_bench.cli.app import run
from nco_bench.nn.device import bf16_is_slow
from nco_bench.training.campaign_file import Stage
from nco_bench.training.flagships import _at_speed

PLAIN = {"architecture": "x86_64", "avx2": True, "avx512_bf16": False, "amx_bf16": False}
TRAINING = ["size=5", "batch=4", "steps=2", "epoch_steps=1", "evaluation=4", "validation_instances=4"]


def _on(processor: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor, raising=False)


@pytest.mark.parametrize(
    ("processor", "slow"),
    [
        (PLAIN, True),
        ({**PLAIN, "avx512_bf16": True}, False),
        ({**PLAIN, "amx_bf16": True}, False),
        ({"architecture": "aarch64"}, False),  # has names of its own for them
        ({}, False),
    ],
)
def test_slow_is_what_is_known_to_be(
    processor: dict[str, object], slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    _on(processor, monkeypatch)
    assert bf16_is_slow("cpu") is slow
    assert not bf16_is_slow("cuda:0")


@pytest.mark.parametrize(("precision", "told"), [("bf16", True), ("fp32", False)])
def test_a_training_begins_with_a_line_on_stderr(
    precision: str,
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _on(PLAIN, monkeypatch)
    config = [part for value in [*TRAINING, f"precision={precision}"] for part in ("--config", value)]
    status = run(["train", "am", "--out", str(tmp_path / "w"), "--device", "cpu", "--json", *config])
    out, err = capsys.readouterr()
    assert status == 0, err
    assert json.loads(out)["steps"] == 2
    assert [line for line in err.splitlines() if line.startswith("note: ")] == told * [
        "note: --config precision=bf16: this CPU has no instructions for bf16 (avx512_bf16, amx_bf16) and takes many times "
        "as long as in fp32: give --config precision=fp32."
    ]


@pytest.mark.parametrize("solver", ["decoder-24x64", "pomo", "invit-3v"])
def test_runs_say_it_too(
    solver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["generate", "tsp", "--n", "5", "--count", "1"]) == 0
    for precision, processor, told in (("bf16", PLAIN, 1), ("fp32", PLAIN, 0), ("bf16", {}, 0)):
        _on(processor, monkeypatch)
        run(
            [
                "run",
                solver,
                "--data",
                "tsp5:count=1",
                "--param",
                f"precision={precision}",
                "--device",
                "cpu",
                "--weights",
                "random",
                "--fresh",
            ]
        )
        assert capsys.readouterr().err.count("give --param precision=fp32.\n") == told


def test_a_campaign_trains_in_what_is_fast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = Stage("pens-a", "pens-a", config={"recipe": "flagship", "precision": "bf16"})
    _on({**PLAIN, "avx512_bf16": True}, monkeypatch)
    assert _at_speed(network) == network
    _on(PLAIN, monkeypatch)
    assert _at_speed(network).config == {"recipe": "flagship", "precision": "fp32"}
    assert capsys.readouterr().out.startswith("pens-a: in fp32, for this CPU has no instructions for bf16")
