"""Work that threads do before its results are taken."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")
_Result = TypeVar("_Result")


def ahead(
    pool: ThreadPoolExecutor,
    work: Callable[[_T], _Result],
    items: Iterable[_T],
    most: int,
) -> Iterator[_Result]:
    """Yield the results of work in the order of its items; at most ``most`` wait to be taken."""
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
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
