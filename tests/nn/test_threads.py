"""Work shared out to Python threads: same results, same settings afterwards, failures reach the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from nco_bench.nn.threads import in_threads

PARTS = [slice(i, i + 1) for i in range(5)]


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@torch.inference_mode()
def test_parts_run_at_once_with_one_thread_each_and_come_back_in_order() -> None:
    together = threading.Barrier(3)  # passed only by three threads that work at the same time

    def work(part: slice, stopped: threading.Event) -> tuple[int, int, bool]:
        if part.start < 3:
            together.wait(60)
        return part.start, torch.get_num_threads(), torch.is_inference_mode_enabled()

    assert in_threads(work, PARTS) == [(start, 1, True) for start in range(5)]
    assert torch.get_num_threads() == 3


@torch.inference_mode()
def test_threads_that_start_later_have_the_callers_number_again() -> None:
    in_threads(lambda part, stopped: None, PARTS)
    seen: list[int] = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert seen == [3]


def test_work_with_gradients_stays_in_the_callers_thread() -> None:
    weight = torch.ones(5, requires_grad=True)
    sum(in_threads(lambda part, stopped: weight[part].sum(), PARTS), torch.zeros(())).backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1.0] * 5


@torch.inference_mode()
@pytest.mark.parametrize("error", [ValueError("part 2"), KeyboardInterrupt()])
def test_a_failure_stops_the_others_and_reaches_the_caller(error: BaseException) -> None:
    going_on: list[int] = []

    def work(part: slice, stopped: threading.Event) -> None:
        if part.start == 2:
            raise error
        if part.start < 2:  # goes on until it is told to stop
            going_on.append(part.start)
            assert stopped.wait(60)
            going_on.remove(part.start)

    with pytest.raises(type(error)) as caught:
        in_threads(work, PARTS)
    assert caught.value is error
    assert not going_on
    assert torch.get_num_threads() == 3


@torch.inference_mode()
def test_parts_may_share_their_own_work_out() -> None:
    torch.set_num_threads(12)
    inner = [slice(i, i + 1) for i in range(4)]

    def work(part: slice, stopped: threading.Event) -> list[tuple[int, int]]:
        return in_threads(lambda sub, stopped: (part.start, sub.start), inner)

    assert in_threads(work, PARTS[:3]) == [[(i, j) for j in range(4)] for i in range(3)]
    assert torch.get_num_threads() == 12
