"""Work that threads do before its results are taken."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Self, TypeVar

from lake.core.io.objects.waits import answer_of, only_read

_T = TypeVar("_T")
_Result = TypeVar("_Result")


def ahead(
    pool: ThreadPoolExecutor | ReadingThreads,
    work: Callable[[_T], _Result],
    items: Iterable[_T],
    most: int,
    result: Callable[[Future[_Result]], _Result] = Future.result,
) -> Iterator[_Result]:
    """Yield the results of work in the order of its items; at most ``most`` wait to be taken.

    Args:
        pool: the threads.
        work: what is done with each item.
        items: the items.
        most: how many results may wait.
        result: waits for a result.
    """
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > most:
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        for future in waiting:
            future.cancel()


def computed(
    work: Callable[[_T], _Result], items: Iterable[_T], workers: int | None = None
) -> Iterator[_Result]:
    """Yield the results of work of the processors in the order of its items.

    Args:
        work: what is done with each item; it waits for no store by itself.
        items: the items, the next of which are taken before the results are.
        workers: the number of threads; None for one per processor.
    """
    workers = workers or os.cpu_count() or 1
    # One item too is left to a thread. Callers compute members of objects, which Python 3.11 locks for the class:
    # what waits in such a call, as the simulated worlds do, would make all others wait.
    with ThreadPoolExecutor(workers) as pool:
        yield from ahead(pool, work, items, workers)


def looked_up(
    work: Callable[[_T], _Result], items: Iterable[_T], threads: int
) -> Iterator[_Result]:
    """Yield the results of work that only reads, and that may wait for a server, in the order of its items.

    If the caller ends early, as at a stop signal, it does not wait for what is under way: a server may never answer.

    Args:
        work: what is done with each item.
        items: the items; twice as many as threads are taken before their results are.
        threads: the number of threads.
    """
    with ReadingThreads(threads) as pool:
        yield from ahead(pool, work, items, 2 * threads, answer_of)


class ReadingThreads:
    """Threads that only read, for which neither their user nor the end of the process waits.

    What takes their results does so by `answer_of`.

    Args:
        most: the number of threads.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._started = 0
        self._lock = Lock()
        self._tasks = SimpleQueue[Callable[[], None] | None]()

    def __enter__(self) -> Self:
        """Return them."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Let each thread end after its work."""
        for _ in range(self._started):
            self._tasks.put(None)

    def submit(self, work: Callable[[_T], _Result], item: _T, /) -> Future[_Result]:
        """Let a thread do work."""
        future = Future[_Result]()
        self._tasks.put(partial(_complete, future, work, item))
        with self._lock:
            begins = self._started < self._most
            self._started += begins
        if begins:
            Thread(target=self._run, name="look-up", daemon=True).start()
        return future

    def map(self, work: Callable[[_T], _Result], items: Sequence[_T]) -> Iterator[_Result]:
        """Yield the results of work in the order of its items, all of which are begun at once."""
        return ahead(self, work, items, len(items), answer_of)

    def _run(self) -> None:
        only_read()
        while (task := self._tasks.get()) is not None:
            task()


def _complete(future: Future[_Result], work: Callable[[_T], _Result], item: _T) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(work(item))
    except BaseException as error:  # noqa: BLE001 - the caller raises it
        future.set_exception(error)
