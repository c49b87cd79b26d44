"""Threads that share an amount: what they have together, and their order."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.core.base.errors import StoppedError
from lake.core.transaction.shares import Shares


def nothing() -> None:
    """Let the wait go on."""


def started(work: Callable[[], object]) -> threading.Thread:
    """Start a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_part_is_what_is_wanted_or_the_whole_amount() -> None:
    shares = Shares(10)

    assert shares.take(4, nothing) == 4
    assert shares.take(6, nothing) == 6
    shares.give_back(4)
    shares.give_back(6)
    assert shares.take(None, nothing) == 10
    shares.give_back(10)
    # One that wants more than there is works alone.
    assert shares.take(11, nothing) == 10


def test_a_part_that_is_too_large_waits_and_those_that_ask_later_wait_behind_it() -> None:
    shares, got, asked = Shares(10), list[str](), threading.Event()
    first = shares.take(6, nothing)

    def large() -> None:
        part = shares.take(8, asked.set)
        got.append("large")
        shares.give_back(part)

    def small() -> None:
        shares.give_back(shares.take(1, nothing))
        got.append("small")

    threads = [started(large)]
    assert asked.wait(10)
    threads.append(started(small))
    assert got == []
    shares.give_back(first)
    for thread in threads:
        thread.join(10)
    assert got == ["large", "small"]


def test_a_wait_that_is_stopped_leaves_the_place_to_the_next() -> None:
    shares = Shares(10)
    part = shares.take(6, nothing)

    def stop() -> None:
        raise StoppedError(15)

    with pytest.raises(StoppedError):
        shares.take(8, stop)
    assert shares.take(4, nothing) == 4
    shares.give_back(part)


@settings(max_examples=25, deadline=None)
@given(
    limit=st.integers(1, 20),
    wanted=st.lists(st.one_of(st.none(), st.integers(0, 25)), max_size=8),
    threads=st.integers(1, 4),
)
def test_the_parts_are_never_more_than_the_amount_and_each_thread_gets_one(
    limit: int, wanted: list[int | None], threads: int
) -> None:
    shares, lock, left = Shares(limit), threading.Lock(), list(wanted)
    used, most, done = 0, 0, 0

    def work() -> None:
        nonlocal used, most, done
        while True:
            with lock:
                if not left:
                    return
                amount = left.pop()
            part = shares.take(amount, nothing)
            with lock:
                used += part
                most = max(most, used)
            with lock:
                used -= part
                done += 1
            shares.give_back(part)

    running = [started(work) for _ in range(threads)]
    for thread in running:
        thread.join(10)
    assert done == len(wanted)
    assert most <= limit
