"""Work shared out to Python threads: same results, same settings afterwards, failures reach the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from nco_bench.models.threads import in_threads

PARTS = [slice(i, i + 1) for i in range(5)]


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@torch.inference_mode()
def test_parts_run_beside_the_caller_with_one_thread_each_and_come_back_in_order() -> None:
    def work(part: slice, stopped: threading.Event) -> tuple[int, int, bool, str]:
        return (
            part.start,
            torch.get_num_threads(),
            torch.is_inference_mode_enabled(),
            threading.current_thread().name,
        )

    done = in_threads(work, PARTS)
    assert [start for start, *_ in done] == [0, 1, 2, 3, 4]
    assert {(threads, inference) for _, threads, inference, _ in done} == {(1, True)}
    assert threading.current_thread().name not in {name for *_, name in done}
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
    def work(part: slice, stopped: threading.Event) -> None:
        if part.start == 2:
            raise error
        if part.start < 2:  # goes on until it is told to stop
            assert stopped.wait(60)

    with pytest.raises(type(error)) as caught:
        in_threads(work, PARTS)
    assert caught.value is error
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("part-")]
    assert torch.get_num_threads() == 3
