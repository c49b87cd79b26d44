"""Work on threads, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from lake.core.base.errors import EngineError
from lake.core.engine.thread_stream import Pool


def test_all_values_of_all_pieces_come_once() -> None:
    pool: Pool[tuple[int, int]] = Pool(3)

    values = list(pool.spread(50, lambda number: ((number, part) for part in (0, 1))))

    assert sorted(values) == [(number, part) for number in range(50) for part in (0, 1)]


def test_no_more_pieces_run_at_once_than_there_are_threads() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(_number: int) -> Generator[None]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        yield None
        with lock:
            running -= 1

    list(Pool[None](3).spread(40, work))

    assert 1 <= most <= 3


def test_a_slow_reader_holds_the_work_back() -> None:
    made = 0

    def work(_number: int) -> Generator[int]:
        nonlocal made
        for value in range(100_000):
            made += 1
            yield value

    values = Pool[int](1).spread(1, work)
    next(values)
    values.close()  # type: ignore[attr-defined]

    assert made < 5_000


def test_the_first_exception_ends_the_work_and_closes_its_generators() -> None:
    closed = threading.Event()
    begun = threading.Event()

    def work(number: int) -> Generator[int]:
        if number:
            begun.wait(10)
            raise KeyError("a defect")
        try:
            while True:
                begun.set()
                yield 1
        finally:
            closed.set()

    with pytest.raises(KeyError, match="a defect"):
        list(Pool[int](2).spread(2, work))

    assert closed.is_set()


def test_cancelled_work_does_not_count_as_finished() -> None:
    pool: Pool[int] = Pool(1)
    values = pool.spread(3, lambda number: (value for value in [number]))
    next(values)

    pool.cancel()

    with pytest.raises(EngineError, match="stopped before"):
        list(values)


def test_the_cancel_callback_is_called_once() -> None:
    calls: list[int] = []
    pool: Pool[int] = Pool(2, on_cancel=lambda: calls.append(1))
    values = pool.spread(9, lambda number: (value for value in [number]))
    next(values)

    values.close()  # type: ignore[attr-defined]
    pool.cancel()

    assert calls == [1]


def test_work_that_ends_by_itself_is_not_cancelled() -> None:
    calls: list[int] = []
    pool: Pool[int] = Pool(2, on_cancel=lambda: calls.append(1))

    assert len(list(pool.spread(9, lambda number: (value for value in [number])))) == 9
    assert not calls
    assert not pool.stopped.is_set()
