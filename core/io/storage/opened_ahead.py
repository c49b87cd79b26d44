"""Open files of an object store before they are read, several at a time.

The first request for a file takes as long as the store is far away, and many small files have no other request. One
reader would spend most of its time on waiting for them one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Protocol, TypeVar, cast

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


def each_opened(
    storage: Storage,
    items: Iterable[_T],
    file_of: Callable[[_T], _Stored] = lambda item: cast("_Stored", item),
) -> Iterator[_T]:
    """Yield items in their order; until the next one, `Storage.open_input` of an item's file needs no request.

    Files of a local disk are opened when they are read.

    Args:
        storage: the storage of the files, all of which are in one store.
        items: the items; some are taken before those in front of them are yielded.
        file_of: returns the file of an item, by default the item.

    Raises:
        LakeError: a file cannot be opened; those in front of it were yielded.
    """
    rest = iter(items)
    first = list(islice(rest, 1))
    every = chain(first, rest)
    if not first or storage.s3(file_of(first[0]).path) is None:
        yield from every
        return

    def opened(item: _T) -> tuple[_T, Any]:
        file = file_of(item)
        return item, storage.open_input(file.path, size=file.size_bytes)

    for item, source in looked_up(opened, every, _THREADS):
        with storage.holding(file_of(item).path, source):
            yield item
