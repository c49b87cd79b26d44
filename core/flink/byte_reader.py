"""Java's DataInput over bytes that are not trusted.

Nothing is allocated for a length before that many bytes are known to be there, so a lying length costs
nothing. Numbers are big-endian.
"""

from __future__ import annotations

import struct

from lake.core.errors import CorruptFileError, RefusedError

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_LONG_BYTES = 8
# The longest lead byte of Java's modified UTF-8, which spells everything else in surrogates.
_FOUR_BYTES = 0xF0


class ByteReader:
    """A position in some bytes of a file.

    Args:
        data: the bytes; slices share them.
        name: the file, for messages.
        offset: where in the file ``data`` begins.
    """

    __slots__ = ("_at", "_data", "_name", "_offset")

    def __init__(self, data: memoryview, name: str, offset: int = 0) -> None:
        self._data = data
        self._name = name
        self._offset = offset
        self._at = 0

    @property
    def name(self) -> str:
        """What messages call the file."""
        return self._name

    @property
    def position(self) -> int:
        """How many bytes of this reader are behind."""
        return self._at

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def corrupt(self, problem: str) -> CorruptFileError:
        """Return an error that names the file and the place."""
        return CorruptFileError(f"{self._name}, byte {self._offset + self._at}: {problem}")

    def refused(self, problem: str, *, hint: str | None = None) -> RefusedError:
        """Return a refusal that names the file and the place."""
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
        """Read a boolean that is kept as an int."""
        value = self.int32()
        if value not in (0, 1):
            raise self.corrupt(f"{value} is neither 0 nor 1")
        return value == 1

    def size(self) -> int:
        """Read a long that is a size or a place and so not negative."""
        value = self.int64()
        if value < 0:
            raise self.corrupt(f"a size of {value} bytes")
        return value

    def count(self, width: int) -> int:
        """Read the int that says how many things follow, of at least ``width`` bytes each.

        Raises:
            CorruptFileError: it is negative, or there is no room for so many.
        """
        value = self.int32()
        if not 0 <= value * width <= self.remaining or value < 0:
            raise self.corrupt(f"{value} things announced, {self.remaining} bytes left")
        return value

    def take(self, length: int) -> memoryview:
        """Return the next bytes without copying them."""
        at = self._need(length)
        return self._data[at : at + length]

    def block(self) -> memoryview:
        """Return bytes that follow their length, an int."""
        return self.take(self.count(1))

    def reader(self, length: int) -> ByteReader:
        """Return a reader of the next bytes alone."""
        place = self._offset + self._at
        return ByteReader(self.take(length), self._name, place)

    def rest(self) -> memoryview:
        """Return what is left without stepping over it."""
        return self._data[self._at :]

    def between(self, start: int, end: int) -> ByteReader:
        """Return a reader of the bytes from one place to another, counted from the first byte."""
        return ByteReader(self._data[start:end], self._name, self._offset + start)

    def longs(self) -> memoryview:
        """Return longs that follow their number, as they are."""
        return self.take(self.count(_LONG_BYTES) * _LONG_BYTES)

    def skip_text(self) -> None:
        """Skip what Java's writeUTF wrote."""
        self.take(self._number(_UINT16))

    def text(self) -> str:
        """Read what Java's writeUTF wrote: NUL in two bytes, characters above U+FFFF as surrogates."""
        data = bytes(self.take(self._number(_UINT16)))
        if data.isascii() and b"\x00" not in data:
            return data.decode("ascii")
        if b"\x00" in data or any(byte >= _FOUR_BYTES for byte in data):
            raise self.corrupt("a text that is not modified UTF-8")
        try:
            halves = data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
            return halves.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
        except UnicodeDecodeError as error:
            raise self.corrupt("a text that is not modified UTF-8") from error

    def silence_shutdown(self) -> None:
        """Check that nothing is left."""
        if self.remaining:
            raise self.corrupt(f"{self.remaining} bytes too many")

    def _number(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self._data, self._need(kind.size))[0]
        return value

    def _need(self, length: int) -> int:
        """Step over bytes and return where they begin."""
        at = self._at
        if not 0 <= length <= len(self._data) - at:
            raise self.corrupt(f"{length} bytes wanted, {len(self._data) - at} left")
        self._at = at + length
        return at
