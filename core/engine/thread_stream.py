"""Numbered pieces of work on a few threads, with all results in one stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Generic, TypeVar

from lake.core.base.errors import EngineError

T = TypeVar("T")
# The main thread waits in steps, so that a signal's exception reaches it on every platform.
_WAIT_SECONDS = 0.2
_JOIN_SECONDS = 30.0
_QUEUED = 1024


class _Done:
    """A thread has ended."""


class Pool(Generic[T]):
    """Runs one batch of work. Each batch needs a new pool.

    Args:
        threads: how many pieces run at once.
        on_cancel: called once when the work ends early, before threads are waited for.
        join_seconds: how long to wait for threads after `cancel`.
    """

    def __init__(
        self,
        threads: int,
        *,
        on_cancel: Callable[[], None] | None = None,
        join_seconds: float = _JOIN_SECONDS,
    ) -> None:
        self.stopped = threading.Event()
        self._size = threads
        self._on_cancel = on_cancel
        self._join_seconds = join_seconds
        self._threads: list[threading.Thread] = []
        self._queue: queue.Queue[T | BaseException | _Done] = queue.Queue(_QUEUED)
        self._lock = threading.Lock()

    def spread(self, count: int, work: Callable[[int], Generator[T]]) -> Iterator[T]:
        """Run ``work`` for 0 … count - 1 and yield the results as they come.

        The first exception that a piece raises is raised here. Ending early, for that or by closing the
        iterator, sets `stopped` and returns when the threads have ended.

        Raises:
            EngineError: `cancel` was called before all was done.
        """
        numbers = iter(range(count))
        running = min(self._size, count)
        try:
            for _ in range(running):
                self._launch(numbers, work)
            while running:
                item = self._next()
                if isinstance(item, _Done):
                    running -= 1
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            if running:
                self.cancel()
            self.join()

    def cancel(self) -> None:
        """Cancel the work; any thread may call this, more than once."""
        with self._lock:
            if self.stopped.is_set():
                return
            self.stopped.set()
        if self._on_cancel:
            self._on_cancel()

    def join(self) -> None:
        """Wait for the threads, for a bounded time."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(self._join_seconds)

    def _launch(self, numbers: Iterator[int], work: Callable[[int], Generator[T]]) -> None:
        thread = threading.Thread(target=self._run, args=(numbers, work), name="task", daemon=True)
        thread.start()
        # A thread that did not start cannot be joined.
        self._threads.append(thread)

    def _run(self, numbers: Iterator[int], work: Callable[[int], Generator[T]]) -> None:
        try:
            while (number := self._take(numbers)) is not None:
                with closing(work(number)) as values:
                    for value in values:
                        self._put(value)
                        if self.stopped.is_set():
                            return
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            self._put(error)
        finally:
            self._put(_Done())

    def _take(self, numbers: Iterator[int]) -> int | None:
        with self._lock:
            return None if self.stopped.is_set() else next(numbers, None)

    def _put(self, item: T | BaseException | _Done) -> None:
        while not self.stopped.is_set():
            try:
                self._queue.put(item, timeout=_WAIT_SECONDS)
            except queue.Full:
                continue
            return

    def _next(self) -> T | BaseException | _Done:
        while not self.stopped.is_set():
            try:
                return self._queue.get(timeout=_WAIT_SECONDS)
            except queue.Empty:
                continue
        raise EngineError("the engine was stopped before its tasks were done")
