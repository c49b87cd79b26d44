"""A lock on S3: an object made only where there is none, kept young by its owner, taken over from the dead by one.

The conditions of its requests (`If-None-Match`, `If-Match`) make each step one that only one run can do; a store that
heeds none lets two runs that begin in the same moment both go on, which is safe. Ages go by the store's own clock.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace

from lake.core.clock import Clock, SystemClock
from lake.core.locks.local import TTL_SECONDS, Heartbeat, Owner, owner_in
from lake.core.process_identity import still_runs
from lake.core.storage.s3 import Held, UnsupportedError
from lake.core.storage.storage import Storage

_LONGEST = 4096
_TRIES = 10


class S3Lock:
    """A lock object of one's own, from when it was made to `release`."""

    def __init__(
        self, storage: Storage, location: str, tag: str, owner: Owner, clock: Clock
    ) -> None:
        self._clock = clock
        self._storage = storage
        self._location = location
        self._tag = tag
        self._owner = owner
        self._heartbeat = Heartbeat(self._beat)

    def _beat(self) -> bool:
        with suppress(OSError, UnsupportedError):
            tag = _put(self._storage, self._location, self._owner, self._clock, over=self._tag)
            if tag is None:
                # Another has taken it over.
                return False
            self._tag = tag
        return True

    def release(self) -> None:
        """Remove the object, unless another run has taken it over."""
        self._heartbeat.stop()
        with suppress(OSError, UnsupportedError):
            held = _get(self._storage, self._location)
            if held and _is_of(held, self._owner):
                self._storage.ask_s3(self._location, lambda bucket, key: bucket.remove(key))


def take(
    storage: Storage, location: str, me: Owner, clock: Clock | None = None
) -> S3Lock | Owner | None:
    """Take a lock: the lock, or else its owner, or None where there can be none.

    Args:
        storage: the table's.
        location: the object's.
        me: who asks.
        clock: the time that the object states; its age is by the store's clock.
    """
    clock = clock or SystemClock()
    for _ in range(_TRIES):
        try:
            held = _get(storage, location)
            # An answer was lost: it was made all the same.
            if held and _is_of(held, me):
                return S3Lock(storage, location, held.tag, me, clock)
            if held and not _is_dead(held):
                return owner_in(held.data)
            tag = _put(storage, location, me, clock, over=held.tag if held else None)
        except (OSError, UnsupportedError):
            return None
        if tag is not None:
            return S3Lock(storage, location, tag, me, clock)
    # So many others come and go that one of them is at work.
    return Owner()


def _get(storage: Storage, location: str) -> Held | None:
    return storage.ask_s3(location, lambda bucket, key: bucket.get(key, _LONGEST))


def _put(
    storage: Storage, location: str, owner: Owner, clock: Clock, *, over: str | None
) -> str | None:
    told = json.dumps(asdict(replace(owner, heartbeat_ms=clock.now_ms())))
    return storage.ask_s3(
        location, lambda bucket, key: bucket.create(key, told.encode(), over=over)
    )


def _is_of(held: Held, owner: Owner) -> bool:
    return owner_in(held.data).operation_id == owner.operation_id


def _is_dead(held: Held) -> bool:
    owner = owner_in(held.data)
    if owner.process and still_runs(owner.process) is False:
        return True
    return abs(held.age_seconds) > TTL_SECONDS
