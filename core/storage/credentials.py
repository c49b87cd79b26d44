"""What opens a store: the configuration, and what a catalog vends, for some locations and for some time.

A catalog's server vends with a table either properties for all of it or, as the REST specification says,
`storage-credentials` by prefix, of which the longest counts. Their end is in a property `…expires-at-ms`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from lake.core.clock import Clock, SystemClock
from lake.core.errors import LakeError
from lake.core.units import whole_number

# One that lives for an hour is renewed five minutes before its end, a shorter one after three quarters.
_EARLY_MS = 300_000
_EARLY_PART = 4
# A catalog that cannot renew is not asked again at once.
_PAUSE_MS = 10_000
_ENDING = "expires-at-ms"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Storage properties, which may hold secrets.

    Args:
        properties: for every location.
        grants: prefixes of locations, and what counts there besides.
    """

    properties: Mapping[str, str] = field(repr=False)
    grants: tuple[tuple[str, Mapping[str, str]], ...] = field(default=(), repr=False)

    def at(self, location: str) -> Mapping[str, str]:
        """Return what counts at a location."""
        fitting = [grant for grant in self.grants if location.startswith(grant[0])]
        best = max(fitting, key=lambda grant: len(grant[0]), default=("", {}))
        return {**self.properties, **best[1]}

    def parts(self) -> Iterator[Mapping[str, str]]:
        """Yield all the properties."""
        yield self.properties
        for _, properties in self.grants:
            yield properties

    @property
    def expires_ms(self) -> int | None:
        """When the first of them expires, in ms since 1970; None where they do not tell."""
        told = [
            ends
            for properties in self.parts()
            for key, text in properties.items()
            if key.endswith(_ENDING) and (ends := whole_number(text)) is not None
        ]
        return min(told, default=None)

    def to_bytes(self) -> bytes:
        """Return them for a task's row."""
        return json.dumps([dict(self.properties), [list(grant) for grant in self.grants]]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Credentials:
        """Read what `to_bytes` gave."""
        properties, grants = json.loads(data)
        return cls(properties, tuple((prefix, given) for prefix, given in grants))


class CredentialProvider:
    """Credentials that are vended anew before they expire, or once a store refused them. Threads may share it.

    Args:
        first: as they came.
        vend: asks for new ones; None where nobody gives any.
        clock: tells when it is time.
    """

    def __init__(
        self,
        first: Credentials,
        vend: Callable[[], Credentials] | None = None,
        clock: Clock | None = None,
    ) -> None:
        # How often they changed, and what they are: who was refused under an older number tries again.
        self._now = (0, first)
        self._vend = vend
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._due_ms = self._next_ms(first)
        self._silent_until_ms = 0

    @property
    def can_refresh(self) -> bool:
        """Whether there is somebody to ask for others."""
        return self._vend is not None

    def _next_ms(self, given: Credentials) -> float:
        now_ms = self._clock.now_ms()
        left = (given.expires_ms or 0) - now_ms
        # Who seems to vend what is over has another clock: then refusals alone tell.
        if self._vend is None or left <= 0:
            return float("inf")
        return now_ms + left - min(_EARLY_MS, left / _EARLY_PART)

    def current(self) -> tuple[int, Credentials]:
        """Return the credentials' number, which changes when they do, and them, renewed first if it is time."""
        if self._clock.now_ms() >= self._due_ms:
            with self._lock:
                if self._clock.now_ms() >= self._due_ms and not self._ask():
                    self._due_ms = self._clock.now_ms() + _PAUSE_MS
        return self._now

    def renew(self, refused: int) -> bool:
        """Ask for others than those of a number, which a store refused; False if there are none."""
        with self._lock:
            if self._now[0] > refused:
                return True
            if self._clock.now_ms() < self._silent_until_ms:
                return False
            # A store that refuses those too means them: not every call need ask.
            self._silent_until_ms = self._clock.now_ms() + _PAUSE_MS
            return self._ask()

    def _ask(self) -> bool:
        if self._vend is None:
            return False
        try:
            given = self._vend()
        except LakeError:
            # What is there may be good still, and a store's refusal tells more than a catalog's silence.
            return False
        number, before = self._now
        if given == before:
            return False
        self._now = (number + 1, given)
        self._due_ms = self._next_ms(given)
        return True
