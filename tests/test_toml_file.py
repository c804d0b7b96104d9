"""TOML files of programs, studies, campaigns and clusters that mean harm are refused in one line, at once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nco_bench.errors import BadInputError
from nco_bench.runs.cluster.profile import read_profile
from nco_bench.solvers.external.program import load_program
from nco_bench.study import read_study
from nco_bench.toml_file import read_toml
from nco_bench.training.campaign_file import read_campaign, read_networks

HOSTILE = {
    "nul": 'argv = ["tr\\u0000ue"]',
    "beyond 64 bits": f'argv = ["true"]\ntimeout = {"9" * 400}',
    "no number": 'argv = ["true"]\ntimeout = inf',
    "nested": f"argv = {'[' * 5000}{']' * 5000}",
    "nested tables": f"argv = {'{a=' * 500}1{'}' * 500}",
    "dotted": ".".join("a" * 20_000) + " = 1",
    "many dotted": "\n".join(f"{'.'.join('ab' * 40)}{k} = 1" for k in range(1000)),
    "header": f"[{'.'.join('a' * 20_000)}]",
    "dotted in braces": f"a = {{{'.'.join('a' * 20_000)} = 1}}",
    "open strings": '"""' + '\\"' * 60_000,
    "open quotes": "a = 'x\n" * 12_000,
    "large": "# " + "x" * 2**18,
    "no toml": "argv = [",
    "digits": f'argv = ["true"]\ntimeout = {"9" * 5000}',
}


READERS = {
    "program": load_program,
    "study": read_study,
    "campaign": read_campaign,
    "networks": read_networks,
    "cluster": lambda path: read_profile(str(path), {}),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(name: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HOSTILE[name])
    began = time.process_time()
    with pytest.raises(BadInputError, match=r"^\S*mine\.toml") as caught:
        READERS[reader](path)
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < 2


def test_brackets_and_dots_in_strings_and_comments_are_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'argv = ["{"[." * 50}"]  # {"[" * 50}\nnote = """\n{"{" * 40}"""\n')
    assert read_toml(path)["argv"] == ["[." * 50]
