"""A clock that is wrong at chosen calls, or from one call on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from world.faulty import Act, Call, Fault, Layer
from world.time import SimClock

CLOCK = "clock"
_HOUR_MS = 3_600_000
_BEFORE_2020_MS = 1_000_000_000_000
_JUMPS = {"clock: jumps back": -_HOUR_MS, "clock: jumps ahead": _HOUR_MS}


class FaultyClock:
    """A clock in front of a world's clock, with a layer's faults."""

    def __init__(self, behind: SimClock, layer: Layer) -> None:
        self._behind = behind
        self._layer = layer

    def now_ms(self) -> int:
        found: int = self._layer.at(CLOCK, "now", self._jumped)
        return found

    def _jumped(self) -> int:
        # A jump is permanent.
        jumps = (_JUMPS.get(name, 0) for _, name in self._layer.happened)
        return self._behind.now_ms() + sum(jumps)

    def monotonic(self) -> float:
        return self._behind.monotonic()

    def sleep(self, seconds: float) -> None:
        self._behind.sleep(seconds)


def _moved(by_ms: int) -> Callable[[Call, Act], Any]:
    return lambda _call, real: real() + by_ms


# After a jump back, an age may be less than a day, which is refused.
_REFUSED = frozenset({3})


def _faults() -> Iterator[Fault]:
    for name, by_ms in (
        ("an hour ahead", _HOUR_MS),
        ("an hour behind", -_HOUR_MS),
        ("half a day behind", -12 * _HOUR_MS),
    ):
        yield Fault(f"clock: {name}", CLOCK, _moved(by_ms), _REFUSED)
    for name in _JUMPS:
        yield Fault(name, CLOCK, _moved(0), _REFUSED)
    yield Fault("clock: before 2020", CLOCK, lambda _call, _real: _BEFORE_2020_MS, _REFUSED)


CLOCK_FAULTS = {one.name: one for one in _faults()}
