"""How the instances of a batch are given to threads (`models.threads`), on the CPU.

Each thread takes a part of the batch through all steps. Torch's own threads meet after every operation, of which a step
has a hundred; these meet at the end. Parts are also small enough for what they compute to stay in the processor's cache.

How a batch is cut depends on the batch alone, and a part is computed by one thread however many there are, so solutions are
the same bit for bit with any number of threads up to the number of parts. A single part keeps torch's own threads.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch

PART_TOKENS = 4096
"""Tokens of one part before the first step, about. With half as many SIT took 6 % longer: its representatives make small
products, which are slow.
"""
SHARES = 2
"""The number of parts is a multiple of this, so that two threads have equally much to do; more share what each part does."""
LONGEST = 4096
"""Longer problems stay together: their operations are long enough for torch's own threads, and memory stays that of one."""


def cut(batch: int, copies: int, tokens: int, device: torch.device) -> list[slice]:
    """Cut a batch into parts.

    Parameters
    ----------
    batch, copies, tokens
        Instances, partial solutions of each, and tokens that the network sees of each of these.
    device
        Where the work is done; only the CPU's is cut.

    Returns
    -------
    list of slices
        Consecutive instances, in order.
    """
    if batch < 2 or device.type != "cpu" or tokens > LONGEST:
        return [slice(0, batch)]
    parts = math.ceil(batch * copies * tokens / PART_TOKENS)
    parts = min(batch, parts if parts == 1 else math.ceil(parts / SHARES) * SHARES)
    bounds = [batch * i // parts for i in range(parts + 1)]
    return [slice(*pair) for pair in pairwise(bounds)]
