"""A lock in an object store: created only if there is none, refreshed by its owner, taken over after its death.

Conditional requests (`If-None-Match`, `If-Match`, Google's generations) ensure that only one run succeeds in each
step. A store that ignores them lets two runs that start at the same time both continue, which is safe. Ages are
measured by the store's clock.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import LakeError
from lake.core.base.process_identity import still_runs
from lake.core.io.objects.requests import StoredObject, UnsupportedError
from lake.core.io.storage.storage import Storage
from lake.core.transaction.locks.local import TTL_SECONDS, Heartbeat, Owner, owner_in

_LONGEST = 4096
_TRIES = 10


class S3Lock:
    """A lock object that this process owns until `release`."""

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
        with suppress(OSError, UnsupportedError, LakeError):
            tag = _put(self._storage, self._location, self._owner, self._clock, over=self._tag)
            if tag is None:
                held = _get(self._storage, self._location)
                if not (held and _is_of(held, self._owner)):
                    # Another has taken it over.
                    return False
                # A response was lost: the object was refreshed nevertheless.
                tag = held.tag
            self._tag = tag
        return True

    def release(self) -> None:
        """Remove the object, unless another run has taken it over."""
        self._heartbeat.stop()
        with suppress(OSError, UnsupportedError, LakeError):
            held = _get(self._storage, self._location)
            if held and _is_of(held, self._owner):
                self._storage.ask_s3(self._location, lambda bucket, key: bucket.remove(key))


def take(
    storage: Storage, location: str, me: Owner, clock: Clock | None = None
) -> S3Lock | Owner | None:
    """Acquire a lock: return the lock, its owner if it is held, or None if there cannot be one.

    Args:
        storage: the table's storage.
        location: the location of the object.
        me: the owner to write.
        clock: the time in the object's contents; its age is measured by the store's clock.
    """
    clock = clock or SystemClock()
    for _ in range(_TRIES):
        try:
            held = _get(storage, location)
            # A response was lost: the object was created nevertheless.
            if held and _is_of(held, me):
                return S3Lock(storage, location, held.tag, me, clock)
            if held and not _is_stale(held):
                return owner_in(held.data)
            tag = _put(storage, location, me, clock, over=held.tag if held else None)
        except (OSError, UnsupportedError):
            return None
        if tag is not None:
            return S3Lock(storage, location, tag, me, clock)
    # After this many changes of owners, another process is certainly working.
    return Owner()


def _get(storage: Storage, location: str) -> StoredObject | None:
    return storage.ask_s3(location, lambda bucket, key: bucket.get(key, _LONGEST))


def _put(
    storage: Storage, location: str, owner: Owner, clock: Clock, *, over: str | None
) -> str | None:
    contents = json.dumps(asdict(replace(owner, heartbeat_ms=clock.now_ms())))
    return storage.ask_s3(
        location, lambda bucket, key: bucket.create(key, contents.encode(), over=over)
    )


def _is_of(held: StoredObject, owner: Owner) -> bool:
    return owner_in(held.data).operation_id == owner.operation_id


def _is_stale(held: StoredObject) -> bool:
    owner = owner_in(held.data)
    if owner.process and still_runs(owner.process) is False:
        return True
    return abs(held.age_seconds) > TTL_SECONDS
