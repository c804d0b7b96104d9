"""decoder-6x128 against a plain peer, see `plain`: there is no official code."""

from __future__ import annotations

from pathlib import Path

from official.engine import Case, Pair
from official.plain import PlainDecoder, plain_pair

CARD = "decoder-6x128"
CASES = tuple(
    Case("decoder-6x128", "tsp", size, "greedy", batch)
    for size, batch in ((20, 64), (50, 32), (100, 16), (500, 1))
)


def pair(case: Case, checkout: Path | None) -> Pair:
    """Prepare both sides."""
    return plain_pair(case, PlainDecoder)
