"""Requests that are waited for: what they return and raise, how often they are repeated, and their end by a stop."""

from __future__ import annotations

import os
from concurrent.futures import Future
from threading import Event, current_thread
from typing import Any

import pytest

from lake.core.base.errors import OutOfTimeError, TimedOutError
from lake.core.base.interrupts import STOPPED
from lake.core.io.objects import waits
from lake.core.io.objects.requests import TRIES, StoreError, Tries, timed_out
from lake.core.io.objects.waits import answer_of, awaited, unchecked
from lake.core.io.work_ahead import ReadingThreads


@pytest.fixture(autouse=True)
def _no_requests_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the requests for which other tests of this process wait no longer."""
    monkeypatch.setattr(waits, "_threads", waits._Threads())


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stopped command; the last answers have no time."""
    monkeypatch.setattr(waits, "_LAST_SECONDS", 0.0)
    yield STOPPED.set()
    STOPPED.clear()


def tries(error: Exception) -> int:
    """Return how often a request is made that fails so each time."""
    made = Tries()
    while made.go_on(error):
        pass
    return made.made


def test_a_request_returns_what_it_returns_and_raises_what_it_raises() -> None:
    assert awaited("host", lambda: 7) == 7
    with pytest.raises(TimeoutError, match="own"):
        awaited("host", lambda: (_ for _ in ()).throw(TimeoutError("own")))
    assert awaited("host", lambda: awaited("other", os.getpid)) == os.getpid()


def test_a_silent_store_is_asked_twice_and_a_busy_one_often() -> None:
    assert tries(StoreError("busy", 503)) == TRIES
    assert tries(timed_out("host")) == 2
    assert tries(StoreError("refused", 403)) == 1


def test_after_a_stop_a_silent_store_is_not_asked_again(stopped: None) -> None:
    asked, release = [], Event()

    def silent() -> None:
        asked.append(1)
        release.wait()

    for _ in range(3):
        with pytest.raises(StoreError, match="host did not answer in time"):
            awaited("host", silent)
    assert len(asked) <= 1
    assert waits.has_requests()
    assert tries(StoreError("busy", 503)) == 3
    release.set()
    STOPPED.clear()
    assert awaited("host", lambda: 7) == 7
    for is_pending in waits._threads.left:
        assert is_pending.acquire(timeout=60)
        is_pending.release()
    assert not waits.has_requests()


def test_a_caller_may_end_its_wait_for_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "_LAST_SECONDS", 0.0)
    release = Event()

    def ended() -> None:
        raise OutOfTimeError("the time has ended")

    with pytest.raises(OutOfTimeError):
        awaited("host", lambda: release.wait(60), ended)

    assert waits.has_requests()
    # The store is not silent: others ask it as before.
    assert awaited("host", lambda: 7) == 7
    release.set()
    assert waits._threads.left[-1].acquire(timeout=60)
    waits._threads.left[-1].release()


def test_a_thread_that_only_reads_makes_its_requests_itself() -> None:
    def threads(check: waits.Check) -> tuple[Any, Any]:
        return current_thread(), awaited("host", current_thread, check)

    with ReadingThreads(1) as pool:
        ((own, asked),) = pool.map(threads, [unchecked])
        ((checked, left),) = pool.map(threads, [lambda: None])

    assert asked is own is checked
    # What may end a wait has another thread to leave.
    assert left is not own


def test_a_reading_thread_leaves_its_requests_to_others_after_a_stop(stopped: None) -> None:
    release = Event()

    with ReadingThreads(1) as pool:
        future = pool.submit(lambda host: awaited(host, release.wait), "host")
        with pytest.raises(StoreError, match="host did not answer in time"):
            future.result(60)

    release.set()
    assert waits._threads.left[-1].acquire(timeout=60)
    waits._threads.left[-1].release()


def test_a_request_that_nothing_waits_for_is_known_until_it_ends() -> None:
    begun, release = Event(), Event()

    def request() -> None:
        begun.set()
        release.wait(60)

    with ReadingThreads(1) as pool:
        future = pool.submit(lambda host: awaited(host, request), "host")
    assert begun.wait(60)
    assert waits.has_requests()
    release.set()
    answer_of(future)
    assert not waits.has_requests()


def test_a_result_is_not_waited_for_after_a_stop(stopped: None) -> None:
    known = Future[int]()
    known.set_result(7)

    assert answer_of(known) == 7
    with pytest.raises(TimedOutError, match="did not answer before the command ended"):
        answer_of(Future[int]())
