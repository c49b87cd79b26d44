"""Open files of an object store before they are read, several at a time.

The first request for a file takes as long as the store is far away, and many small files have no other request. One
reader would spend most of its time on waiting for them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from lake.core.io.storage.storage import Storage
from lake.core.io.work_ahead import looked_up

_T = TypeVar("_T")
# Twice as many files wait to be read, of which a small one is in memory as a whole.
_THREADS = 8


class _Stored(Protocol):
    """What is known of a file."""

    @property
    def path(self) -> str:
        """Its location."""

    @property
    def size_bytes(self) -> int:
        """Its length."""


def itself(item: Any) -> Any:
    """Return an item that is a file itself."""
    return item


def each_opened(
    storage: Storage,
    items: Iterable[_T],
    file_of: Callable[[_T], _Stored] = itself,
    before: Callable[[_T], None] | None = None,
) -> Iterator[_T]:
    """Yield items in their order; until the next one, `Storage.open_input` of an item's file needs no request.

    Files of a local disk are opened when they are read.

    Args:
        storage: the storage of the files, all of which are in one store.
        items: the items; some are taken before those in front of them are yielded.
        file_of: returns the file of an item, by default the item.
        before: reads what else an item needs, see `each_looked_up`; None if it needs nothing.

    Raises:
        LakeError: a file cannot be opened; those in front of it were yielded.
    """

    def opened(item: _T) -> Any:
        file = file_of(item)
        return storage.open_input(file.path, size=file.size_bytes)

    for item, source in _looked_up(storage, items, file_of, before, opened):
        with storage.holding(file_of(item).path, source) if source is not None else nullcontext():
            yield item


def each_looked_up(
    storage: Storage,
    items: Iterable[_T],
    before: Callable[[_T], None],
    file_of: Callable[[_T], _Stored] = itself,
) -> Iterator[_T]:
    """Yield items in their order, each after a thread has read what it needs.

    Args:
        storage: the storage of the files, all of which are in one store.
        items: the items; some are taken before those in front of them are yielded.
        before: reads from the store; not called for an item of the file of the one in front of it, and for those of a
            local disk.
        file_of: returns the file of an item, by default the item.

    Raises:
        LakeError: something cannot be read; the items in front were yielded.
    """
    return (item for item, _ in _looked_up(storage, items, file_of, before, lambda _: None))


def _looked_up(
    storage: Storage,
    items: Iterable[_T],
    file_of: Callable[[_T], _Stored],
    before: Callable[[_T], None] | None,
    work: Callable[[_T], Any],
) -> Iterator[tuple[_T, Any]]:
    rest = iter(items)
    first = list(islice(rest, 1))
    every = chain(first, rest)
    if not first or storage.s3(file_of(first[0]).path) is None:
        yield from ((item, None) for item in every)
        return

    def with_paths() -> Iterator[tuple[_T, bool]]:
        last = None
        for item in every:
            path = file_of(item).path
            yield item, path != last
            last = path

    def done(pair: tuple[_T, bool]) -> tuple[_T, Any]:
        item, is_new = pair
        if is_new and before is not None:
            before(item)
        return item, work(item)

    yield from looked_up(done, with_paths(), _THREADS)
