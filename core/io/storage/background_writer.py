"""Write many small files concurrently, so that the latency of a disk or store is not paid once per file."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Self, TypeVar

import pyarrow as pa

from lake.core.base.interrupts import uninterrupted
from lake.core.io.storage.storage import MAX_METADATA_BYTES, Storage

_T = TypeVar("_T")
_THREADS = 16
# Above this amount of pending data, a write waits.
_PENDING_BYTES = 64 * 1024 * 1024


class WriteBehind(Storage):
    """A storage that writes in the background and reads pending files from memory.

    The end of the block waits for pending writes. Threads must not share an instance.
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
        """Return a whole file, even if its write is pending."""
        if location in self._pending:
            return self._pending[location][1]
        return self._storage.read(location, limit=limit)

    def read_unchanging(self, location: str, *, certain: bool = False) -> bytes:
        """Return a whole file that is written once, even if its write is pending."""
        if location in self._pending:
            return self._pending[location][1]
        return self._storage.read_unchanging(location, certain=certain)

    def built_from(
        self,
        location: str,
        kind: str,
        build: Callable[[bytes, str], tuple[_T, int]],
        *,
        certain: bool = False,
    ) -> _T:
        """Return what a function builds from a file that is written once, even if its write is pending."""
        if location in self._pending:
            return build(self._pending[location][1], location)[0]
        return self._storage.built_from(location, kind, build, certain=certain)

    def write(self, location: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
        """Start to write a whole file; `settle` raises if the write failed."""
        if self._bytes > _PENDING_BYTES:
            self.settle()
        content = bytes(data)
        self._bytes += len(content)
        # A stop between the two lines would leave a write that nothing waits for: its file would stay.
        with uninterrupted():
            future = self._pool.submit(self._storage.write, location, content, durable=durable)
            self._pending[location] = (future, content)

    def settle(self) -> None:
        """Wait until all files are written.

        Raises:
            LakeError: a file could not be written; other writes may still be pending.
        """
        for future, _ in self._pending.values():
            future.result()
        self._pending.clear()
        self._bytes = 0

    def give_up(self) -> None:
        """Cancel the writes that have not started, and wait for the others, whether they succeed or fail."""
        futures = [future for future, _ in self._pending.values()]
        for future in futures:
            future.cancel()
        wait(futures)
        self._pending.clear()
        self._bytes = 0
