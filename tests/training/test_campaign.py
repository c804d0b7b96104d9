"""Campaigns: turns go around, a session ends in time, the folder travels in small parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from nco_bench.errors import BadInputError
from nco_bench.training import campaign
from nco_bench.training.campaign import pack, read_campaign, run_campaign, unpack

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
        ("[[stage]]\nmodel = 'bq'\n", "slice is missing"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9'\n", "expected a time such as 90s"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\nturn = 2\n", "unknown key 'turn'"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\nturns = 0\n", "whole number above 0"),
        ("[[stage]]\nmodel = 'bq'\nslice = '9m'\n" * 2, "two stages are called 'bq'"),
        ("[[stage]\n", "no valid TOML"),
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
