"""How boxes are drawn for the packing problem, and what the parts of its dataset names mean.

``bpp3d400:120x100``: 400 boxes with whole sides, each uniform in 10..50 (parameter ``sides``), for a bin of base
120 x 100, the setting of EIE, section 5.1, whose three bins are 120x100, 140x110 and 160x120. Another bin keeps the boxes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from nco_bench.datasets.generators import Generator
from nco_bench.errors import BadInputError
from nco_bench.problems.bpp3d import BPP3DInstance

if TYPE_CHECKING:
    from nco_bench.datasets.names import GenerationSpec
    from nco_bench.problems import Instance

STREAM_VERSION = 1
"""Part of every stream's key; bumped, with `generate.GENERATOR_VERSION`, when a draw below changes."""

BINS = ("120x100", "140x110", "160x120")
"""Bins of EIE; the first is the default."""

SIDES = "10..50"
LARGEST_SIDE = 10_000


def build_bpp3d(spec: GenerationSpec) -> list[Instance]:
    """Draw the boxes of every instance from a random stream of its own, keyed by seed, size and index."""
    low, high = (int(side) for side in dict(spec.params)["sides"].split(".."))
    base = np.array([int(side) for side in spec.distribution.split("x")], dtype=np.int64)
    stream = zlib.crc32(f"{spec.problem}{spec.n}".encode())
    key = np.random.SeedSequence((spec.seed, STREAM_VERSION, stream)).generate_state(2, np.uint64)
    instances: list[Instance] = []
    for i in range(spec.count):
        # The index is the highest word of the counter, so streams never overlap.
        rng = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, 0, i]))
        boxes = rng.integers(low, high + 1, (spec.n, 3), dtype=np.int64)
        instances.append(BPP3DInstance(f"{spec.problem}{spec.n}-{i:05d}", boxes, base))
    return instances


def parse_bin(text: str, what: str = "bin") -> str:
    """Return the canonical text of a bin; none, or ``uniform`` (how sides are drawn anyway), means the default."""
    if text in ("", "uniform"):
        return BINS[0]
    match = re.fullmatch(r"(\d{1,9})x(\d{1,9})", text)
    if match is None or not int(match[1]) or not int(match[2]):
        raise BadInputError(
            f"{what} is {text!r}; expected LENGTHxWIDTH with positive whole numbers, such as {BINS[0]}."
        )
    return f"{int(match[1])}x{int(match[2])}"


def parse_sides(place: str, text: str) -> str:
    """Return the canonical text of the range of sides, ends included."""
    match = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]) <= LARGEST_SIDE:
        raise BadInputError(
            f"{place} is {text!r}; expected LO..HI with whole numbers 1 <= LO <= HI <= {LARGEST_SIDE}, such as {SIDES}."
        )
    return f"{int(match[1])}..{int(match[2])}"


def defaults(given: Mapping[str, str], n: int) -> Mapping[str, str]:
    """Return the defaults of the parameters."""
    return {"sides": SIDES}


BPP3D = Generator(
    build=build_bpp3d,
    smallest_n=1,
    bytes_per_node=24,
    parameters={"sides": parse_sides},
    defaults=defaults,
    canonical_distribution=lambda text: parse_bin(text, "distribution (of boxes: the bin)"),
    distribution_parameters=lambda name: (),
    default_distribution="",  # so that the bin stands in every name
)
