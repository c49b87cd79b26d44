"""What all stores have in common: whole objects and parts of them, and deletions of many, each request repeated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, Protocol, TypeVar

import pyarrow as pa

from lake.core.io.objects.requests import ShouldContinue, always
from lake.core.io.objects.whole_objects import Found, Part

_T = TypeVar("_T")


class Objects(Protocol):
    """The requests of a client, each made once; see `WholeObjects`."""

    def get(self, key: str, most: int | None = None) -> Found | None:
        """Return an object."""

    def part(self, key: str, start: int, size: int) -> Part | None:
        """Return bytes of an object."""

    def end(self, key: str, most: int) -> Part | None:
        """Return the last bytes of an object."""

    def has_any(self, prefix: str) -> bool:
        """Whether there is an object below a prefix."""

    def put(self, key: str, data: bytes | bytearray | pa.Buffer) -> None:
        """Write an object."""

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if there is none of its key."""


class Bucket(ABC):
    """One bucket or container; threads may share it.

    Raises:
        UnsupportedError: only Arrow's client supports the settings, or the store does not support the request.
        StoreError: the store refused the request or did not answer.
    """

    # The calls for deletions that are made at the same time.
    deletions_at_once: ClassVar[int] = 4

    @property
    @abstractmethod
    def host(self) -> str:
        """The host of the store, and its port."""

    @abstractmethod
    def objects(self) -> Objects:
        """Return the client with the current login."""

    @abstractmethod
    def retry(self, work: Callable[[], _T]) -> _T:
        """Call ``work`` until the store is neither too busy nor unreachable."""

    @abstractmethod
    def delete(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete at most `most_keys` objects; return the reasons of failures by key."""

    @property
    @abstractmethod
    def most_keys(self) -> int:
        """How many objects one call of `delete` deletes."""

    @abstractmethod
    def contested(self) -> Exception:
        """Return the error of an object that other writers create and delete meanwhile, which is tried again."""

    def delete_all(
        self, keys: Sequence[str], should_continue: ShouldContinue = always
    ) -> dict[str, str]:
        """Delete objects with several concurrent calls; return the reasons of failures by key.

        A missing object counts as deleted.
        """
        most = self.most_keys
        parts = [keys[start : start + most] for start in range(0, len(keys), most)]
        with ThreadPoolExecutor(min(self.deletions_at_once, len(parts)) or 1) as pool:
            each = pool.map(partial(self.delete, should_continue=should_continue), parts)
            return {key: why for failed in each for key, why in failed.items()}

    def put(self, key: str, data: bytes | bytearray | pa.Buffer) -> None:
        """Write an object in one request."""
        self.retry(lambda: self.objects().put(key, data))

    def write_new(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist; return False if there is another one of its key.

        One conditional request is enough. If the store answers that the object exists, it is read: the answer to the
        request that created it may have been lost, or the store may only have been uncertain.
        """

        def request() -> bool:
            objects = self.objects()
            if objects.create(key, data):
                return True
            found = objects.get(key, len(data))
            if found is None:
                raise self.contested()
            return found.data is not None and bytes(found.data) == data

        return self.retry(request)

    def read(self, key: str, most: int | None = None) -> Found | None:
        """Return an object, without its contents if it is longer than ``most`` bytes; None if it does not exist."""
        return self.retry(lambda: self.objects().get(key, most))

    def has_any(self, prefix: str) -> bool:
        """Whether there is an object below a prefix that ends at a slash."""
        return self.retry(lambda: self.objects().has_any(prefix))

    def read_part(self, key: str, start: int, size: int) -> Part | None:
        """Return bytes of an object, fewer than requested at its end; None if it does not exist."""
        return self.retry(lambda: self.objects().part(key, start, size))

    def read_end(self, key: str, most: int) -> Part | None:
        """Return the last bytes of an object, all of a small one; None if it does not exist."""
        return self.retry(lambda: self.objects().end(key, most))
