"""The limits of a round, for one thread and for several."""

from __future__ import annotations

import threading
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.iceberg_tables import FixedClock

from lake.core.maintain.health.facts import ForecastFacts
from lake.core.maintain.rounds.budget import Budget
from lake.core.maintain.rounds.decisions import Decision


def decision(size: int, action: str = "compact", seconds: float | None = None) -> Decision:
    """Return an action that reads some bytes."""
    forecast = ForecastFacts(
        command=action,
        pays=True,
        before=2,
        after=1,
        bytes=size,
        seconds=1.0,
        partition_seconds=None,
        work_seconds=seconds,
    )
    return Decision(
        table="db.t", action=action, is_due=True, reason="", options={}, forecast=forecast
    )


def nothing() -> None:
    """Let the wait go on."""


def test_without_limits_nothing_is_refused() -> None:
    budget = Budget(FixedClock(), None, None)

    with budget.granted(decision(10**15), None, nothing) as granted:
        assert (granted.refusal, granted.most_bytes) == ("", None)


def test_what_an_action_rewrote_is_not_left_for_the_next() -> None:
    budget = Budget(FixedClock(), None, 100)

    with budget.granted(decision(60), None, nothing) as granted:
        assert granted.most_bytes == 100
        budget.spend(60)
    with budget.granted(decision(60), None, nothing) as granted:
        assert (granted.refusal, granted.most_bytes) == ("", 40)
        budget.spend(40)
    with budget.granted(decision(1), None, nothing) as granted:
        assert granted.refusal == "it reads 1 B, and 0 B are left"
    with budget.granted(decision(1, "expire"), None, nothing) as granted:
        assert granted.refusal == ""


def test_an_action_that_cannot_do_a_part_needs_bytes_for_the_whole() -> None:
    budget = Budget(FixedClock(), None, 100)

    with budget.granted(decision(101, "deletes"), None, nothing) as granted:
        assert granted.refusal == "it reads 101 B, and 100 B are left"
    with budget.granted(decision(100, "deletes"), None, nothing) as granted:
        assert (granted.refusal, granted.most_bytes) == ("", None)


@pytest.mark.parametrize("action", ["compact", "expire"])
def test_nothing_begins_after_the_time(action: str) -> None:
    clock = FixedClock()
    budget = Budget(clock, 60_000, 100)
    clock.sleep(59.9)

    with budget.granted(decision(1, action), 1, nothing) as granted:
        assert granted.refusal == ""
        clock.sleep(0.2)
    with budget.granted(decision(1, action), 1, nothing) as granted:
        assert granted.refusal == "the 1m 00s have passed"


def test_the_time_begins_with_the_process() -> None:
    clock = FixedClock()
    begun = clock.monotonic()
    clock.sleep(61)
    budget = Budget(clock, 60_000, None, begun)

    with budget.granted(decision(1), 1, nothing) as granted:
        assert granted.refusal == "the 1m 00s have passed"


@pytest.mark.parametrize(
    ("action", "seconds", "passed", "refusal"),
    [
        ("manifests", 20.0, 39.0, ""),
        ("manifests", 20.0, 50.0, "it takes about 20.0s, and 10.0s are left"),
        ("deletes", 7200.0, 25.0, ""),
        ("deletes", 7200.0, 35.0, "it takes about 2h 00m, and 25.0s are left"),
        ("compact", 7200.0, 59.0, ""),
        ("clean", None, 59.0, ""),
    ],
)
def test_what_cannot_end_in_time_does_not_begin(
    action: str, seconds: float | None, passed: float, refusal: str
) -> None:
    clock = FixedClock()
    budget = Budget(clock, 60_000, None)
    clock.sleep(passed)

    with budget.granted(decision(1, action, seconds), 1, nothing) as granted:
        assert granted.refusal == refusal


@pytest.mark.parametrize(
    ("passed", "reading", "work", "share", "refusal"),
    [
        (29.0, 0.0, inf, 0.5, ""),
        (29.0, 2.0, inf, 0.5, "it was not read: the rest of the 1m 00s is for other tables"),
        (31.0, 0.0, 1000.0, 0.5, "it was not read: the rest of the 1m 00s is for other tables"),
        (31.0, 0.0, 1000.0, 0.75, ""),
        (50.0, 1.0, 8.0, 0.5, ""),
        (50.0, 1.0, 10.0, 0.5, "it was not read: the rest of the 1m 00s is for other tables"),
        (60.0, 0.0, 0.0, 0.5, "the 1m 00s have passed"),
    ],
)
def test_tables_are_read_while_there_is_time_for_what_was_found(
    passed: float, reading: float, work: float, share: float, refusal: str
) -> None:
    clock = FixedClock()
    budget = Budget(clock, 60_000, None)
    clock.sleep(passed)

    assert budget.too_late_to_read(reading, work, share) == refusal
    assert Budget(clock, None, 100).too_late_to_read(1e9, inf) == ""


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 50), max_size=8),
    limit=st.integers(1, 200),
    threads=st.integers(1, 4),
)
def test_all_threads_together_keep_the_limit_and_none_has_less_than_alone(
    sizes: list[int], limit: int, threads: int
) -> None:
    budget, lock, left = Budget(FixedClock(), None, limit), threading.Lock(), list(sizes)
    rewritten: list[int] = []

    def work() -> None:
        while True:
            with lock:
                if not left:
                    return
                size = left.pop(0)
            with budget.granted(decision(size), size, nothing) as granted:
                if granted.refusal:
                    done = 0
                else:
                    assert granted.most_bytes is not None
                    done = min(size, granted.most_bytes)
                budget.spend(done)
                with lock:
                    rewritten.append(done)

    running = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(10)
    assert len(rewritten) == len(sizes)
    # As one thread alone: all that there is to rewrite, or all of the limit.
    assert sum(rewritten) == min(sum(sizes), limit)
