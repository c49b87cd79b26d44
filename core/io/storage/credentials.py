"""Storage credentials: from the configuration, or vended by a catalog for some locations and a limited time.

With a table, a catalog server vends either properties for the whole table or, as the REST specification
defines, `storage-credentials` by prefix; the longest prefix applies. A property `…expires-at-ms` is their expiry,
also with an account's name behind it, and Google's `…expires-at`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import LakeError
from lake.core.base.units import whole_number

# Credentials are renewed five minutes before they expire, or after three quarters of a shorter life time.
_EARLY_MS = 300_000
_EARLY_PART = 4
# After a failed renewal, the catalog is not asked again for this long.
_PAUSE_MS = 10_000
# The end of a key, or what precedes an account's name.
_EXPIRY = re.compile(r"expires-at(?:-ms)?(?:$|\.)")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Storage properties, which may contain secrets.

    Args:
        properties: the properties for every location.
        grants: location prefixes, each with the properties that apply there in addition.
    """

    properties: Mapping[str, str] = field(repr=False)
    grants: tuple[tuple[str, Mapping[str, str]], ...] = field(default=(), repr=False)

    def at(self, location: str) -> Mapping[str, str]:
        """Return the properties that apply at a location."""
        matching = [grant for grant in self.grants if location.startswith(grant[0])]
        longest = max(matching, key=lambda grant: len(grant[0]), default=("", {}))
        return {**self.properties, **longest[1]}

    def parts(self) -> Iterator[Mapping[str, str]]:
        """Yield the properties of all parts."""
        yield self.properties
        for _, properties in self.grants:
            yield properties

    @property
    def expires_ms(self) -> int | None:
        """The earliest expiry, in ms since 1970; None if no part states one."""
        expiries = [
            expires
            for properties in self.parts()
            for key, text in properties.items()
            if _EXPIRY.search(key) and (expires := whole_number(text)) is not None
        ]
        return min(expiries, default=None)

    def to_bytes(self) -> bytes:
        """Encode the credentials for a task's row."""
        return json.dumps([dict(self.properties), [list(grant) for grant in self.grants]]).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Credentials:
        """Decode the result of `to_bytes`."""
        properties, grants = json.loads(data)
        return cls(properties, tuple((prefix, granted) for prefix, granted in grants))


class CredentialProvider:
    """Credentials that are renewed before they expire, and after a store refused them. Thread-safe.

    Args:
        first: the initial credentials.
        vend: requests new ones; None if they cannot be renewed.
        clock: the source of the time.
    """

    def __init__(
        self,
        first: Credentials,
        vend: Callable[[], Credentials] | None = None,
        clock: Clock | None = None,
    ) -> None:
        # The number of changes, and the credentials. A call refused under a lower number is tried again.
        self._current = (0, first)
        self._vend = vend
        self._clock = clock or SystemClock()
        self._lock = Lock()
        self._due_ms = self._renewal_ms(first)
        self._silent_until_ms = 0

    @property
    def can_refresh(self) -> bool:
        """Whether new credentials can be requested."""
        return self._vend is not None

    def _renewal_ms(self, credentials: Credentials) -> float:
        now_ms = self._clock.now_ms()
        remaining = (credentials.expires_ms or 0) - now_ms
        # Credentials that arrive expired mean clock skew; then only refusals trigger a renewal.
        if self._vend is None or remaining <= 0:
            return float("inf")
        return now_ms + remaining - min(_EARLY_MS, remaining / _EARLY_PART)

    def current(self) -> tuple[int, Credentials]:
        """Return the number of the credentials, which increases at each change, and them; renew them first if due."""
        if self._clock.now_ms() >= self._due_ms:
            with self._lock:
                if self._clock.now_ms() >= self._due_ms and not self._request():
                    self._due_ms = self._clock.now_ms() + _PAUSE_MS
        return self._current

    def renew(self, refused: int) -> bool:
        """Replace the credentials with number ``refused``, which a store refused; False if there are no others."""
        with self._lock:
            if self._current[0] > refused:
                return True
            if self._clock.now_ms() < self._silent_until_ms:
                return False
            # If a store refuses the new ones too, a renewal does not help: do not request one per call.
            self._silent_until_ms = self._clock.now_ms() + _PAUSE_MS
            return self._request()

    def _request(self) -> bool:
        if self._vend is None:
            return False
        try:
            vended = self._vend()
        except LakeError:
            # The current credentials may still be valid; if not, the store's error explains more than this one.
            return False
        number, before = self._current
        if vended == before:
            return False
        self._current = (number + 1, vended)
        self._due_ms = self._renewal_ms(vended)
        return True
