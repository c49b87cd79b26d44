"""A new large object that is written in parts, several of them at the same time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol, Self

from lake.core.base.errors import LakeError
from lake.core.io.objects.requests import NOT_A_RESPONSE, NOT_FOUND, StoreError, UnsupportedError

# The bytes of the first parts.
_PART_BYTES = 8 * 1024 * 1024
# The most bytes of an object that is written by one request.
PUT_BYTES = 2 * _PART_BYTES
# The number of parts of one size; then it doubles: 10,000 parts hold more than the 5 TiB of S3's largest object.
_SAME_PARTS = 1000
_AT_ONCE = 4


class Parts(Protocol):
    """The requests of one upload."""

    def begin(self) -> str:
        """Begin an upload; return its id."""

    def put(self, upload: str, number: int, data: bytearray) -> str:
        """Write a part, which numbers count from 1; return its ETag."""

    def complete(self, upload: str, tags: Sequence[str], size: int) -> None:
        """Make one object of the parts; `size` are its bytes."""

    def end(self, upload: str) -> None:
        """Forget the parts."""


@dataclass(frozen=True, slots=True)
class PartsOfS3:
    """The requests to S3.

    Args:
        ask: makes one of botocore's requests about the object.
    """

    ask: Callable[..., Any]

    def begin(self) -> str:
        """Begin an upload; return its id."""
        return _required(self.ask("create_multipart_upload"), "UploadId")

    def put(self, upload: str, number: int, data: bytearray) -> str:
        """Write a part, which numbers count from 1; return its ETag."""
        answer = self.ask("upload_part", UploadId=upload, PartNumber=number, Body=data)
        return _required(answer, "ETag")

    def complete(self, upload: str, tags: Sequence[str], size: int) -> None:
        """Make one object of the parts.

        If the store does not know the upload, the answer to an earlier request may have been lost: the object is
        there then, with the ETag of an object of that number of parts.
        """
        listed = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
        try:
            answer = self.ask(
                "complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": listed}
            )
        except StoreError as error:
            if error.status != NOT_FOUND or not self._exists(size, len(tags)):
                raise
        else:
            _required(answer, "ETag")

    def end(self, upload: str) -> None:
        """Forget the parts."""
        self.ask("abort_multipart_upload", UploadId=upload)

    def _exists(self, size: int, parts: int) -> bool:
        try:
            found = self.ask("head_object")
        except StoreError:
            return False
        tag = str(found.get("ETag", "")).strip('"')
        return found.get("ContentLength") == size and tag.endswith(f"-{parts}")


def _required(answer: dict[str, Any], name: str) -> str:
    """Return a part of an answer that every answer of S3 has."""
    if not answer.get(name):
        raise StoreError(f"AWS Error UNKNOWN: the response has no {name}", NOT_A_RESPONSE)
    return str(answer[name])


class Sink(ABC):
    """A stream to a new object, which exists only after `close`. An error in its block abandons it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    @abstractmethod
    def write(self, data: Any) -> int:
        """Write bytes, or an object with them; return their number."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left, and make the object; without an error, it exists."""

    @abstractmethod
    def abandon(self) -> None:
        """Stop writing; the object does not exist."""


class Upload(Sink):
    """A stream to a new object of S3. Four parts are in memory, and the next one.

    Raises:
        StoreError: the store refused the request or did not answer.
        UnsupportedError: it does not support uploads in parts.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._upload = parts.begin()
        self._pool = ThreadPoolExecutor(_AT_ONCE, "upload")
        self._sent: list[Future[str]] = []
        self._next = bytearray()
        self._size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes, or an object with them; return their number.

        Raises:
            StoreError: the store refused an earlier part, or did not answer.
        """
        left = memoryview(data).cast("B")
        while left:
            size = _PART_BYTES << len(self._sent) // _SAME_PARTS
            room = size - len(self._next)
            self._next += left[:room]
            left = left[room:]
            if len(self._next) == size:
                self._send()
        return memoryview(data).nbytes

    def _send(self) -> None:
        if len(self._sent) >= _AT_ONCE:
            self._sent[-_AT_ONCE].result()
        number = len(self._sent) + 1
        self._sent.append(self._pool.submit(self._parts.put, self._upload, number, self._next))
        self._size += len(self._next)
        self._next = bytearray()

    def close(self) -> None:
        """Write what is left, and make the object; without an error, it exists.

        Raises:
            StoreError: the store refused a request, or did not answer.
        """
        if self.closed:
            return
        try:
            if self._next or not self._sent:
                self._send()
            self._parts.complete(self._upload, [sent.result() for sent in self._sent], self._size)
        except BaseException:
            self.abandon()
            raise
        self._end()

    def abandon(self) -> None:
        """Stop writing; the object does not exist, and the store forgets the parts if it answers."""
        if self.closed:
            return
        self._end()
        with suppress(StoreError, UnsupportedError, LakeError):
            self._parts.end(self._upload)

    def _end(self) -> None:
        """Wait for the parts that are being sent: one that arrives after the end of the upload would stay."""
        self.closed = True
        self._pool.shutdown(cancel_futures=True)


class CloudUpload(Sink):
    """A stream to a new object of another store than S3.

    What is abandoned has no name; the store forgets its parts by its own rules.

    Args:
        file: the client's file.
        send: calls a method of it, and translates its errors.
    """

    def __init__(self, file: Any, send: Callable[[Callable[[], Any]], Any]) -> None:
        self._file = file
        self._send = send
        self.closed = False

    def write(self, data: Any) -> int:
        """Write bytes, or an object with them; return their number.

        Raises:
            StoreError: the store refused an earlier part, or did not answer.
        """
        piece = bytes(data)
        self._send(lambda: self._file.write(piece))
        return len(piece)

    def close(self) -> None:
        """Write what is left, and make the object; without an error, it exists.

        Raises:
            StoreError: the store refused a request, or did not answer.
        """
        if not self.closed:
            self.closed = True
            self._send(self._file.close)

    def abandon(self) -> None:
        """Stop writing; the object does not exist."""
        self.closed = True
        self._file = None
