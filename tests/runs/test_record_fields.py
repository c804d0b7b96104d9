"""A record says of an instance what is true of it, field by field: they are filled in by place."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import orjson

from nco_bench.datasets.dataset import Reference
from nco_bench.datasets.generate import generate
from nco_bench.problems import problem
from nco_bench.runs.judge import Place, judge
from nco_bench.runs.records import dump_line
from nco_bench.seals import unseal_line
from nco_bench.solvers.protocol import Solved

PLACE = Place("key", 3, 7, 2, 99, 0.5, "0123456789abcdef")


def test_every_field_of_a_feasible_outcome_is_where_it_belongs() -> None:
    instance = generate("tsp", 6, 1, "uniform", 1).instances[0]
    tour = np.arange(6)
    judged = judge(problem("tsp"), instance, Reference(2.5, "lkh3"), Solved(tour, True), PLACE)
    cost = problem("tsp").score(instance, tour)
    assert asdict(judged.record) == {
        "key": "key", "cell": 3, "instance": 7, "name": instance.name, "n": 6, "repeat": 2, "seed": 99, "status": "ok",
        "cost": cost, "reference": 2.5, "seconds": 0.5, "optimal": True, "solution": None, "solution_sha256": None,
        "convention": "euclidean", "message": "", "instance_sha256": "0123456789abcdef", "counts": None,
    }  # fmt: skip
    assert judged.solution is tour


def test_a_line_leaves_out_counts_that_are_none_and_nothing_else() -> None:
    instance = generate("tsp", 6, 1, "uniform", 1).instances[0]
    record = judge(problem("tsp"), instance, None, np.arange(6), PLACE).record
    line = dump_line(record)
    expected = asdict(record)
    del expected["counts"]
    assert orjson.loads(unseal_line(line)) == expected
    record.counts = {"true_positives": 1.0}
    assert orjson.loads(unseal_line(dump_line(record)))["counts"] == {"true_positives": 1.0}
