"""Work in Python threads instead of torch's own, on the CPU.

Torch's threads meet after every operation. Where work falls into parts that need nothing of each other for many operations,
one Python thread per part, in which torch uses one thread, keeps all cores busy: torch lets go of Python's lock while an
operation runs.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

Result = TypeVar("Result")


def in_threads(
    work: Callable[[slice, threading.Event], Result], parts: Sequence[slice], threads: int | None = None
) -> list[Result]:
    """Do the work for each part, in as many threads as torch would use.

    Parameters
    ----------
    work
        Called with a part and an event: when that is set the result is not wanted any more, because another part failed or
        the user stopped, and the work should return soon. With gradients or autocast all is done in the caller's thread.
    parts
        Slices of whatever is shared out.
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
    # Gradients and autocast are settings of this thread alone.
    if workers == 1 or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
        return [work(part, stopped) for part in parts]
    without_gradients = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad
    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(parts)):
        waiting.put(index)

    @without_gradients()
    def run() -> None:
        torch.set_num_threads(threads // workers)  # of this thread
        while not stopped.is_set():
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results[index] = work(parts[index], stopped)
            except BaseException as error:  # raised again below
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
