"""The waits between the attempts of an operation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.core.clock import Backoff, SystemIds


class Recorder:
    """A clock that records how long it was asked to wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


class Chance(SystemIds):
    """Identifiers with a given random number."""

    def __init__(self, number: float) -> None:
        self.number = number

    def jitter(self) -> float:
        return self.number


def test_each_wait_is_twice_the_one_before_up_to_the_limit() -> None:
    clock = Recorder()
    backoff = Backoff(0.2, 1.0, clock=clock)

    for attempt in range(1, 6):
        backoff.wait(attempt)

    assert clock.waits == pytest.approx([0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_wait_is_as_long_as_a_server_asks_for() -> None:
    clock = Recorder()

    Backoff(0.2, 1.0, clock=clock).wait(1, at_least=3.0)

    assert clock.waits == [3.0]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_jitter_keeps_a_wait_between_its_bounds(attempt: int, number: float) -> None:
    clock = Recorder()

    Backoff(0.1, 8.0, (0.5, 1.0), clock, Chance(number)).wait(attempt)

    base = min(0.1 * 2 ** min(attempt - 1, 32), 8.0)
    assert base / 2 <= clock.waits[0] <= base
