"""Requests to Google's and Azure's stores about single objects, with the same methods as those of S3.

One client makes all requests (`lake.core.io.objects.cloud_objects`). Requests that a busy store refuses are repeated
here, as often as those to S3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, TypeVar

from lake.core.base.clock import Backoff
from lake.core.base.errors import LakeError
from lake.core.io.objects.azure import AzureObjects
from lake.core.io.objects.bucket import Bucket
from lake.core.io.objects.cloud_objects import CloudObjects, Entry
from lake.core.io.objects.gcs import GcsObjects
from lake.core.io.objects.requests import (
    BACKOFF,
    NOT_FOUND,
    UNTRIED,
    ShouldContinue,
    StoredObject,
    StoreError,
    always,
    retried,
)
from lake.core.io.objects.upload import CloudUpload

_T = TypeVar("_T")
_CLIENTS: dict[str, Callable[[Mapping[str, str], str], CloudObjects]] = {
    "gs": GcsObjects.of,
    "abfss": AzureObjects.of,
}
SCHEMES = frozenset(_CLIENTS)
# A status with which a request is not repeated.
_STOPPED = 400


class Cloud(Bucket):
    """One bucket or container, by one login; threads may share it."""

    # The files that are deleted before the table is read again.
    most_deleted: ClassVar[int] = 1000

    def __init__(self, objects: CloudObjects, backoff: Backoff = BACKOFF) -> None:
        self._objects = objects
        self._backoff = backoff

    @property
    def host(self) -> str:
        """The host of the store, and its port."""
        return self._objects.address.host

    def objects(self) -> CloudObjects:
        """Return the client."""
        return self._objects

    @classmethod
    def of(cls, scheme: str, authority: str, properties: Mapping[str, str]) -> Cloud:
        """Return the client of a bucket or container.

        Args:
            scheme: one of `SCHEMES`.
            authority: the bucket or container, as a location names it.
            properties: storage properties.

        Raises:
            BadInputError: the settings do not name a store.
        """
        return cls(_CLIENTS[scheme](properties, authority))

    @property
    def keys_of_request(self) -> int:
        """How many objects one request deletes."""
        return self._objects.keys_of_request

    def waiting(self, backoff: Backoff) -> Cloud:
        """Return the same bucket with other waits between requests that are repeated."""
        return Cloud(self._objects, backoff)

    @property
    def most_keys(self) -> int:
        """How many objects one call of `delete` deletes."""
        return self._objects.most_keys

    def delete(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete at most `most_keys` objects; return the reasons of failures by key.

        ``should_continue`` is called before each request, or before each hundred of Google's.
        """
        try:
            self._delete_at_once(keys, should_continue)
        except (StoreError, LakeError) as error:
            # Another error is that of one of them.
            if not isinstance(error, StoreError) or error.is_busy or str(error) == UNTRIED:
                return dict.fromkeys(keys, str(error))
            if len(keys) == 1:
                return {} if error.status == NOT_FOUND else {keys[0]: str(error)}
            failed: dict[str, str] = {}
            for key in keys:
                failed |= self.delete([key], should_continue)
            return failed
        return {}

    def _delete_at_once(self, keys: Sequence[str], should_continue: ShouldContinue) -> None:
        def request() -> None:
            if not should_continue():
                raise StoreError(UNTRIED, _STOPPED)
            self._objects.delete(keys)

        self.retry(request)

    def remove(self, key: str) -> None:
        """Delete one object; a missing one counts as deleted.

        Raises:
            StoreError: the store refused the request, or did not answer.
        """
        try:
            self._delete_at_once([key], always)
        except StoreError as error:
            if error.status != NOT_FOUND:
                raise

    def create(self, key: str, data: bytes, *, over: str | None = None) -> str | None:
        """Create an object, or replace the version with the tag ``over``; return the new tag.

        Returns:
            None if another writer created or replaced the object first.
        """
        return self.retry(lambda: self._objects.replace(key, data, over))

    def get(self, key: str, most: int) -> StoredObject | None:
        """Return a small object, its version's tag, and its age by the store's clock; None if it does not exist."""

        def request() -> StoredObject | None:
            found = self._objects.versioned(key, most)
            if found is None:
                return None
            entry, data = found
            age = self._objects.seconds() - (entry.changed_seconds or 0.0)
            return StoredObject(data, entry.tag, age)

        return self.retry(request)

    def find(self, key: str) -> Entry | None:
        """Return an object's description; None if it does not exist."""
        return self.retry(lambda: self._objects.find(key))

    def head(self, key: str) -> tuple[int, int] | None:
        """Return an object's length in bytes and its last change in ms; None if it does not exist."""
        found = self.find(key)
        return (found.size, int((found.changed_seconds or 0) * 1000)) if found else None

    def entries(self, folder: str, *, recursive: bool) -> list[Entry]:
        """Return what is in a folder, or all objects below it."""
        return self.retry(lambda: self._objects.entries(folder, recursive=recursive))

    def writer(self, key: str, newest: Callable[[], Cloud] | None = None) -> CloudUpload:
        """Return a stream to a new large object.

        Args:
            key: the object's key.
            newest: returns the same bucket with the newest login, which each request has; None to keep this one.
        """
        objects = self._objects.renewing(lambda: newest().objects()) if newest else self._objects
        return CloudUpload(objects.writer(key), objects.send)

    def abort_uploads(self, prefix: str, name_part: str = "") -> int:
        """Return 0: Azure forgets parts after a week, and Google by a rule of the bucket; neither lists them here."""
        del prefix, name_part
        return 0

    def contested(self) -> StoreError:
        """Return the error of an object that other writers create and delete meanwhile."""
        return StoreError(f"{self._objects.name} Error: created and deleted meanwhile")

    def retry(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` until the store is neither too busy nor unreachable."""
        return retried(work, self._backoff)
