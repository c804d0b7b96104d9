"""Give the instances of a batch to threads, on the CPU.

Each thread takes a part of the batch through all steps, and torch works with one thread inside of it. Torch's own
threads meet after every operation, of which a step has a hundred; these meet at the end. Parts are also small enough for
what they compute to stay in the processor's cache.

How a batch is cut depends on the batch alone, and a part is computed by one thread however many there are, so solutions are
the same bit for bit with any number of threads up to the number of parts. A single part keeps torch's own threads.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

PART_TOKENS = 2048
"""Tokens of one part before the first step, about; steps have half of them on average."""
SHARES = 8
"""The number of parts is a multiple of this, so that two, four or eight threads have equally much to do."""
LONGEST = 4096
"""Longer problems stay together: their operations are long enough for torch's own threads, and memory stays that of one."""

Result = TypeVar("Result")


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
    return [slice(*pair) for pair in zip(bounds, bounds[1:], strict=False)]


def in_threads(
    work: Callable[[slice, threading.Event], Result], parts: Sequence[slice], threads: int | None = None
) -> list[Result]:
    """Do the work for each part, in as many threads as torch would use.

    Parameters
    ----------
    work
        Called with a part, in inference mode, and with an event: when it is set the result is not wanted any more, because
        another part failed or the user stopped, and the work should return soon.
    parts
        From `cut`.
    threads
        How many; None for torch's setting. Each part gets an equal share of them.

    Returns
    -------
    list
        One result per part, in order.

    Raises
    ------
    BaseException
        What the first part that failed raised, and KeyboardInterrupt; no thread goes on behind it.
    """
    threads = threads or torch.get_num_threads()
    workers = min(threads, len(parts))
    stopped = threading.Event()
    if workers == 1 or torch.is_autocast_enabled("cpu"):  # which is a setting of this thread alone
        return [work(part, stopped) for part in parts]
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(parts)):
        waiting.put(index)

    @torch.inference_mode()
    def run() -> None:
        torch.set_num_threads(threads // workers)  # of this thread
        while not stopped.is_set():
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[index] = work(parts[index], stopped)
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
                stopped.set()

    running = [threading.Thread(target=run, name=f"part-{i}", daemon=True) for i in range(workers)]
    before = torch.get_num_threads()
    try:
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    finally:
        stopped.set()
        for thread in running:
            if thread.ident is not None:
                thread.join()
        torch.set_num_threads(before)  # for threads that start later, whose number the calls above have set
    if failures:
        raise failures[0]
    return [results[index] for index in range(len(parts))]
