"""Operations of decoder scaling's networks, counted as its Table 17 counts them: 100 tokens at each of 100 steps.

The paper does not say how it counted; both of its numbers come out so to the last digit. The decoder's own sequence shrinks
as nodes are visited, which takes half as many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from nco_bench.papers.judging import Verdict, judge_computed
from nco_bench.papers.published import PublishedTable

if TYPE_CHECKING:
    from nco_bench.solvers.path.decoder_only import DecoderOnlyConfig

NODES = 100
"""Of the instances of Table 17: its tokens, and its steps."""
SHRINKING = range(3, NODES + 2)
"""Tokens of the decoder's steps: from all nodes and both ends, which are one at first, down to the last choice."""


def decoder_flops(table: PublishedTable, scale: str) -> dict[tuple[str, str], tuple[float, Verdict]]:
    """Count the GFLOPs of one greedy TSP100 solution, for Table 17."""
    found = {}
    for cell in table.cells:
        shape = re.search(r"D=(\d+), W=(\d+)", cell.row)
        if shape is None or cell.column != "Compute per solution":
            continue
        depth, width = int(shape[1]), int(shape[2])
        value, own = gigaflops(depth, width), gigaflops(depth, width, SHRINKING)
        how = f"of {NODES} tokens at each of {NODES} steps; the decoder's own, which become fewer, take {own:.1f}"
        found[cell.row, cell.column] = (value, replace(judge_computed(cell, value), reason=how))
    return found


def gigaflops(depth: int, width: int, tokens: Iterable[int] = (NODES,) * NODES) -> float:
    """Count the GFLOPs of a solution whose steps have so many tokens."""
    from nco_bench.nn.build import model_config

    config = model_config(f"decoder-{depth}x{width}")
    return sum(flops_of_step(config, number) for number in tokens) / 1e9


def flops_of_step(config: DecoderOnlyConfig, tokens: int) -> int:
    """Count the operations of one step over T tokens of width W, two per multiply-add.

    Per layer, with heads h that make up H in all: 2 T (4 W H + W^2 + 2 W F) for queries, keys, values, output, gate and a
    feed-forward block of width F; 4 T^2 H for the attention, and T^2 h for the scale of its logits; T (3 W + F) for
    biases. Before and behind the layers 4 T W for the embedding, 4 W^2 for both ends and 2 T W for the scores.
    """
    width, inner = config.width, config.heads * config.head_dim
    linear = 2 * tokens * (4 * width * inner + width**2 + 2 * width * config.ffn)
    attention = tokens**2 * (4 * inner + config.heads)
    biases = tokens * (3 * width + config.ffn)
    return config.depth * (linear + attention + biases) + 6 * tokens * width + 4 * width**2
