"""A path policy of somebody else: two files in one folder of an installed package, no edit anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NETWORK = '''
"""A path policy that scores candidates by a learned mix of two distances."""

from dataclasses import dataclass

import torch
from torch import nn

from nco_bench.solvers.path.policy import PathPolicy


@dataclass(frozen=True)
class Config:
    training_size: int = 100


def config_for(name, problem):
    return Config()


class Nearer(nn.Module, PathPolicy):
    problem = "tsp"

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.mix = nn.Linear(2, 1)

    def embed(self, nodes):
        return nodes.coords

    def scores(self, state):
        ends = state.coords[:, [0, -1]]
        return self.mix(-torch.cdist(state.coords[:, 1:-1], ends)).squeeze(-1)


def build(config, logit_scale=None):
    return Nearer(config)
'''
CARD = """
family = "path"
paper = "Nearer: a test"
venue = "nowhere"
problems = ["tsp"]
network = "nearer"
parameters = { tsp = 3 }

[recipes.supervised.small]
like = "small"
auxiliary = 0.0
batch = 4
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Lay the package out as an installer does, on a path of its own."""
    package = tmp_path / "site" / "somebody"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "nearer.py").write_text(NETWORK)
    (package / "nearer.toml").write_text(CARD)
    facts = tmp_path / "site" / "somebody-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: somebody\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[nco_bench.solvers]\nsomebody = somebody\n")
    return tmp_path


def nco_bench(home: Path, *arguments: str) -> str:
    path = os.pathsep.join([str(home / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(home / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "nco_bench", *arguments],
        cwd=home, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_files_make_a_solver_that_is_listed_shown_trained_and_run(installed: Path) -> None:
    listed = {s["name"]: s for s in json.loads(nco_bench(installed, "list", "solvers", "--json"))}
    assert listed["nearer"]["state"] == "train"
    assert "beam:K" in listed["nearer"]["decodings"]
    shown = json.loads(nco_bench(installed, "show", "nearer", "--json"))
    assert (shown["paper"], shown["parameters"]) == ("Nearer: a test", 3)
    assert "nearer" in {m["name"] for m in json.loads(nco_bench(installed, "list", "models", "--json"))}
    nco_bench(
        installed, "generate", "tsp", "--n", "20", "--count", "8", "--seed", "3",
        "--reference", "two-opt", "--out", "labels.npz",
    )  # fmt: skip
    nco_bench(
        installed, "train", "nearer", "--data", "labels.npz", "--config", "steps=3", "--config", "longest=21",
        "--config", "longest_start=21", "--config", "validation_instances=2", "--out", "w.safetensors",
    )  # fmt: skip
    run = ("run", "nearer", "--data", "tsp20:seed=5:count=2", "--json")
    for options in (("--weights", "w.safetensors"), ("--weights", "random", "--decoding", "beam:4")):
        nco_bench(installed, *run, *options)
    cells = (line for path in (installed / "results").rglob("cells.jsonl") for line in path.open())
    seeds = [w["training_seeds"] for c in cells if (w := json.loads(c)["weights"])["name"] == "w"]
    assert seeds
    assert all(of == ["3"] for of in seeds)  # not a text of a list
    assert "nearer" in nco_bench(installed, "report", "--csv")
