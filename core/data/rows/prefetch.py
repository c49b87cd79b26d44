"""Read batches in a thread while the caller works."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

AHEAD_BYTES = 64 * 1024 * 1024
# Small batches have an overhead.
_MOST_AHEAD = 256


class _Sized(Protocol):
    """A batch, or something else that takes memory."""

    @property
    def nbytes(self) -> int:
        """Its bytes."""


_Batch = TypeVar("_Batch", bound=_Sized)


def prefetch(batches: Iterator[_Batch], most_bytes: int = AHEAD_BYTES) -> Generator[_Batch]:
    """Read in a thread while the caller works, limited to some bytes ahead (but at least one batch)."""
    ahead = _PrefetchQueue(most_bytes)
    thread = threading.Thread(target=ahead.fill, args=(batches,), name="read-ahead", daemon=True)
    thread.start()
    try:
        while (item := ahead.take()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        ahead.stop()
        thread.join()
        # An unfinished reader keeps its file open.
        if isinstance(batches, Generator):
            batches.close()


class _PrefetchQueue:
    """Batches that were read and not yet taken. None or an error marks the end."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._items: deque[Any] = deque()
        self._bytes = 0
        self._stopped = False
        self._changed = threading.Condition()

    def fill(self, batches: Iterator[_Sized]) -> None:
        """Read until the end, an error, or `stop`."""
        try:
            for batch in batches:
                if not self._put(batch, batch.nbytes):
                    return
            self._put(None, 0)
        except BaseException as error:  # noqa: BLE001 - `take` raises it again
            self._put(error, 0)

    def _put(self, item: Any, size: int) -> bool:
        with self._changed:
            while self._items and not self._stopped and self._is_full(size):
                self._changed.wait()
            self._items.append(item)
            self._bytes += size
            self._changed.notify_all()
            return not self._stopped

    def _is_full(self, size: int) -> bool:
        return self._bytes + size > self._most_bytes or len(self._items) >= _MOST_AHEAD

    def take(self) -> Any:
        """Wait for the next batch and return it."""
        with self._changed:
            while not self._items:
                self._changed.wait()
            item = self._items.popleft()
            self._bytes -= 0 if item is None or isinstance(item, BaseException) else item.nbytes
            self._changed.notify_all()
            return item

    def stop(self) -> None:
        """End the reading thread."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
