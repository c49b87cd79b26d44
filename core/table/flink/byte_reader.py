"""Java's DataInput over untrusted bytes.

Memory is allocated for a length only if that many bytes are present, so a wrong length has no
cost. Numbers are big-endian.
"""

from __future__ import annotations

import struct

from lake.core.base.errors import CorruptFileError, RefusedError

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_LONG_BYTES = 8
# The first lead byte of four-byte UTF-8, which Java's modified UTF-8 replaces by surrogates.
_FOUR_BYTES = 0xF0


class ByteReader:
    """A position in a part of a file's bytes.

    Args:
        data: the bytes; slices share them.
        name: the file's location, for messages.
        offset: the offset of ``data`` in the file.
    """

    __slots__ = ("_at", "_data", "_name", "_offset")

    def __init__(self, data: memoryview, name: str, offset: int = 0) -> None:
        self._data = data
        self._name = name
        self._offset = offset
        self._at = 0

    @property
    def name(self) -> str:
        """The file's location, for messages."""
        return self._name

    @property
    def position(self) -> int:
        """The number of bytes of this reader that were read."""
        return self._at

    @property
    def remaining(self) -> int:
        """The number of bytes left."""
        return len(self._data) - self._at

    def corrupt(self, problem: str) -> CorruptFileError:
        """Return an error with the file and the position."""
        return CorruptFileError(f"{self._name}, byte {self._offset + self._at}: {problem}")

    def refused(self, problem: str, *, hint: str | None = None) -> RefusedError:
        """Return a refusal with the file and the position."""
        message = f"{self._name}, byte {self._offset + self._at}: {problem}"
        return RefusedError(message, hint=hint)

    def int8(self) -> int:
        """Read a signed byte."""
        value = self._data[self._need(1)]
        return value - 256 if value > 127 else value  # noqa: PLR2004 - two's complement

    def int16(self) -> int:
        """Read a signed short."""
        return self._number(_INT16)

    def int32(self) -> int:
        """Read an int."""
        return self._number(_INT32)

    def int64(self) -> int:
        """Read a long."""
        return self._number(_INT64)

    def boolean(self) -> bool:
        """Read a boolean, which is a byte 0 or 1 as Java writes it."""
        value = self.int8()
        if value not in (0, 1):
            raise self.corrupt(f"{value} is neither true nor false")
        return value == 1

    def flag(self) -> bool:
        """Read a boolean that is stored as an int."""
        value = self.int32()
        if value not in (0, 1):
            raise self.corrupt(f"{value} is neither 0 nor 1")
        return value == 1

    def size(self) -> int:
        """Read a long that is a size or a position, and so not negative."""
        value = self.int64()
        if value < 0:
            raise self.corrupt(f"the size {value} is negative")
        return value

    def count(self, width: int) -> int:
        """Read an int that is the number of following items, of at least ``width`` bytes each.

        Raises:
            CorruptFileError: it is negative, or the remaining bytes are too few.
        """
        value = self.int32()
        if not 0 <= value * width <= self.remaining or value < 0:
            raise self.corrupt(f"{value} items declared, but {self.remaining} bytes left")
        return value

    def take(self, length: int) -> memoryview:
        """Return the next bytes without copying them."""
        at = self._need(length)
        return self._data[at : at + length]

    def block(self) -> memoryview:
        """Return bytes that are preceded by their length, an int."""
        return self.take(self.count(1))

    def reader(self, length: int) -> ByteReader:
        """Return a reader of only the next bytes."""
        start = self._offset + self._at
        return ByteReader(self.take(length), self._name, start)

    def rest(self) -> memoryview:
        """Return the remaining bytes without moving the position."""
        return self._data[self._at :]

    def between(self, start: int, end: int) -> ByteReader:
        """Return a reader of the bytes between two positions, counted from the first byte."""
        return ByteReader(self._data[start:end], self._name, self._offset + start)

    def longs(self) -> memoryview:
        """Return longs that are preceded by their number, without decoding them."""
        return self.take(self.count(_LONG_BYTES) * _LONG_BYTES)

    def skip_text(self) -> None:
        """Skip a text written by Java's writeUTF."""
        self.take(self._number(_UINT16))

    def text(self) -> str:
        """Read a text written by Java's writeUTF: NUL takes two bytes, characters above U+FFFF are surrogates."""
        data = bytes(self.take(self._number(_UINT16)))
        if data.isascii() and b"\x00" not in data:
            return data.decode("ascii")
        if b"\x00" in data or any(byte >= _FOUR_BYTES for byte in data):
            raise self.corrupt("a text is not modified UTF-8")
        try:
            halves = data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except UnicodeDecodeError as error:
            raise self.corrupt("a text is not modified UTF-8") from error

    def expect_end(self) -> None:
        """Check that all bytes were read."""
        if self.remaining:
            raise self.corrupt(f"{self.remaining} unexpected bytes at the end")

    def _number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self._data, self._need(kind.size))[0]
        return value

    def _need(self, length: int) -> int:
        """Move past bytes and return their start."""
        at = self._at
        if not 0 <= length <= len(self._data) - at:
            raise self.corrupt(f"{length} bytes expected, but {len(self._data) - at} left")
        self._at = at + length
        return at
