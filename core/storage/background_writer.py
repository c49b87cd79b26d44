"""Many small files written at once: a disk or store that takes its time keeps nobody waiting for each of them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self

import pyarrow as pa

from lake.core.storage.storage import MAX_METADATA_BYTES, Storage

_THREADS = 16
# So much may be under way before a write waits.
_PENDING_BYTES = 64 * 1024 * 1024


class WriteBehind(Storage):
    """A storage that writes in the background and reads what is under way from memory.

    Leaving the block waits for what is under way. Not to be shared by threads.

    Args:
        storage: what is behind it.
    """

    def __init__(self, storage: Storage) -> None:
        super().__init__(renewed=storage.renewed)
        self._storage = storage
        self._pool = ThreadPoolExecutor(_THREADS)
        self._pending: dict[str, tuple[Future[None], bytes]] = {}
        self._bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()
        self._pool.shutdown()

    def resolve(self, location: str) -> tuple[Any, str]:
        """Return the PyArrow file system and the path in it that a location names."""
        return self._storage.resolve(location)

    def read(self, location: str, *, limit: int = MAX_METADATA_BYTES) -> bytes:
        """Return a whole file, also one that is still being written."""
        if location in self._pending:
            return self._pending[location][1]
        return self._storage.read(location, limit=limit)

    def write(self, location: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
        """Begin to write a whole file; `settle` tells whether that succeeded."""
        if self._bytes > _PENDING_BYTES:
            self.settle()
        content = bytes(data)
        self._bytes += len(content)
        future = self._pool.submit(self._storage.write, location, content, durable=durable)
        self._pending[location] = (future, content)

    def settle(self) -> None:
        """Wait until everything is written.

        Raises:
            LakeError: something could not be; others may still be under way.
        """
        for future, _ in self._pending.values():
            future.result()
        self._pending.clear()
        self._bytes = 0

    def give_up(self) -> None:
        """Begin no write any more and wait for those that have begun, however they end."""
        futures = [future for future, _ in self._pending.values()]
        for future in futures:
            future.cancel()
        wait(futures)
        self._pending.clear()
        self._bytes = 0
