"""A large object of a store as a file for Arrow: few requests, several at a time, before their bytes are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from io import SEEK_CUR, SEEK_END, SEEK_SET
from typing import Self, TypeAlias

import pyarrow as pa

from lake.core.io.objects.requests import StoreError
from lake.core.io.objects.whole_objects import Part

# The first byte of a part of a file, and the one after its last.
Range: TypeAlias = tuple[int, int]
Fetch: TypeAlias = Callable[[int, int], Part]
# The most bytes of one request.
_REQUEST_BYTES = 8 * 1024 * 1024
# Ranges with fewer bytes between them are fetched together: a request takes as long.
_GAP_BYTES = 1024 * 1024
# The bytes of the first request for a read that was not announced; following ones double them.
_LEAST_BYTES = 256 * 1024
# The most bytes of reads that were not announced that a file keeps.
_KEPT_BYTES = 2 * _REQUEST_BYTES
# Ranges that are read later are fetched together with others up to this size.
_AHEAD_BYTES = 32 * 1024 * 1024
# The requests of all files at the same time.
_REQUESTS = 16


class LargeFile(pa.PythonFile):  # type: ignore[misc]
    """An object of a store, for random access by one thread."""

    def __new__(cls, source: _Bytes) -> Self:
        """Create a file; pyarrow's class takes its arguments here."""
        made: Self = super().__new__(cls, source, mode="r")
        return made

    def __init__(self, source: _Bytes) -> None:
        self._source = source

    @classmethod
    def of(cls, fetch: Fetch, end: Part) -> LargeFile:
        """Return the file of an object.

        Args:
            fetch: returns a part of the object by its start and its length.
            end: the last bytes of the object.
        """
        return cls(_Bytes(fetch, end))

    def fetch(self, ranges: Sequence[Range], later: Sequence[Range] = ()) -> None:
        """Begin to fetch ranges that will be read, instead of those that were announced before.

        Args:
            ranges: those that are read next.
            later: those that may be read after them; fetched if all are few bytes together.
        """
        self._source.announce(ranges, later)

    def holds(self, start: int, stop: int) -> bool:
        """Whether bytes can be read without another request."""
        return self._source.holds(start, stop)

    @property
    def tag(self) -> str:
        """The ETag of the object's version."""
        return self._source.end.tag


@dataclass(frozen=True, slots=True)
class _Block:
    """Bytes that are fetched, or will be."""

    start: int
    stop: int
    data: Future[pa.Buffer]


@dataclass
class _Bytes:
    """The bytes of an object; what `pyarrow.PythonFile` asks of a file."""

    fetch: Fetch
    end: Part
    closed: bool = field(default=False, init=False)
    _at: int = field(default=0, init=False)
    _announced: dict[Range, _Block] = field(default_factory=dict, init=False)
    _others: list[_Block] = field(default_factory=list, init=False)
    # The last request that was not announced: where reads after it ask for the next one, its end, and its size.
    _mark: int = field(default=-1, init=False)
    _next: int = field(default=-1, init=False)
    _window: int = field(default=_LEAST_BYTES, init=False)

    def __post_init__(self) -> None:
        known = Future[pa.Buffer]()
        known.set_result(self.end.data)
        self._end = _Block(self.end.start, self.end.size, known)

    def readable(self) -> bool:
        """Return True."""
        return True

    def writable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._at

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        """Move to a position and return it."""
        self._at = {SEEK_SET: 0, SEEK_CUR: self._at, SEEK_END: self.end.size}[whence] + offset
        return self._at

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Forget all bytes."""
        self.closed = True
        for block in (*self._announced.values(), *self._others):
            block.data.cancel()
        self._announced, self._others = {}, []

    def read(self, size: int | None = None) -> memoryview:
        """Return the next bytes, fewer at the end of the file."""
        return memoryview(self.read_buffer(size))

    def read_buffer(self, size: int | None = None) -> pa.Buffer:
        """Return the next bytes without a copy, if one request fetched them.

        Raises:
            StoreError: the store refused a request or did not answer, or the object changed.
        """
        at = self._at
        most = self.end.size if size is None or size < 0 else at + size
        stop = max(at, min(most, self.end.size))
        pieces = []
        while at < stop:
            block = self._block(at) or self._load(at, stop)
            piece = block.data.result().slice(at - block.start, min(stop, block.stop) - at)
            pieces.append(piece)
            at += piece.size
        if self._window > _LEAST_BYTES and self._mark < stop and not self._block(self._next):
            self._load(self._next, self._next)
        self._at = stop
        return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))

    def announce(self, ranges: Sequence[Range], later: Sequence[Range]) -> None:
        """Begin to fetch ranges; see `LargeFile.fetch`."""
        now, after = list(self._requests(ranges)), list(self._requests(later))
        if sum(stop - start for start, stop in (*now, *after)) > _AHEAD_BYTES:
            after = []
        known = self._announced
        self._announced = {
            wanted: known.get(wanted) or self._submit(*wanted) for wanted in (*now, *after)
        }
        for wanted in known.keys() - self._announced.keys():
            known[wanted].data.cancel()

    def holds(self, start: int, stop: int) -> bool:
        """Whether bytes are fetched, or will be."""
        while start < stop:
            block = self._block(start)
            if block is None:
                return False
            start = block.stop
        return True

    def _requests(self, ranges: Sequence[Range]) -> Iterator[Range]:
        """Yield the ranges of requests for ranges that are not at the known end; those of a footer may be wrong."""
        last = self._end.start
        together: list[list[int]] = []
        for start, stop in sorted((max(start, 0), min(stop, last)) for start, stop in ranges):
            if start >= stop:
                continue
            if together and start - together[-1][1] <= _GAP_BYTES:
                together[-1][1] = max(together[-1][1], stop)
            else:
                together.append([start, stop])
        for start, stop in together:
            yield from _cut(start, stop)

    def _block(self, at: int) -> _Block | None:
        """Return the block with a byte."""
        for block in (self._end, *self._announced.values(), *self._others):
            if block.start <= at < block.stop:
                return block
        return None

    def _load(self, at: int, stop: int) -> _Block:
        """Request bytes that no block has, with more after them if the file is read from one end to the other."""
        if at in {0, self._next}:
            self._window = min(2 * self._window, _REQUEST_BYTES)
        else:
            self._window = _LEAST_BYTES
        start, stop = at, max(stop, at + self._window)
        blocks = (self._end, *self._announced.values(), *self._others)
        stop = min([stop, *(block.start for block in blocks if block.start > start)])
        kept = sum(block.stop - block.start for block in self._others)
        while self._others and kept + stop - start > _KEPT_BYTES:
            oldest = self._others.pop(0)
            kept -= oldest.stop - oldest.start
        new = [self._submit(*part) for part in _cut(start, stop)]
        self._others += new
        self._mark, self._next = start, stop
        return new[0]

    def _submit(self, start: int, stop: int) -> _Block:
        return _Block(start, stop, _threads().submit(self._fetched, start, stop))

    def _fetched(self, start: int, stop: int) -> pa.Buffer:
        part = self.fetch(start, stop - start)
        if (part.size, part.tag) != (self.end.size, self.end.tag):  # check: one-version-of-object
            raise StoreError("AWS Error UNKNOWN: the object changed while it was read")
        return part.data


def _cut(start: int, stop: int) -> Iterator[Range]:
    for begin in range(start, stop, _REQUEST_BYTES):
        yield begin, min(begin + _REQUEST_BYTES, stop)


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_REQUESTS, "fetch")
