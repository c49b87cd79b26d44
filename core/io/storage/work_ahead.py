"""Work that threads do before its results are taken."""

from __future__ import annotations

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
