"""Avro object container files: split into header and blocks, and written, with limits.

Records are not interpreted here: a block is a number of objects and their uncompressed bytes.
Format: https://avro.apache.org/docs/1.12.0/specification/#object-container-files.
"""

from __future__ import annotations

import hashlib
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from deflate import DeflateError, deflate_compress, deflate_decompress

from lake.core.base.errors import CorruptFileError, InvalidRequestError, RefusedError

MAGIC = b"Obj\x01"
MAX_HEADER_BYTES = 64 * 1024 * 1024
MAX_INFLATED_BYTES = 1024 * 1024 * 1024
# Manifests compress to about a tenth; a file that inflates to a much larger multiple is not a manifest.
_MOST_RATIO = 100
_UNDOUBTED_BYTES = 64 * 1024 * 1024
MAX_OBJECTS = 1_000_000
# Files with blocks smaller than this are decompressed by one thread at a time.
_SMALL_BLOCK_BYTES = 4 * 1024
_SMALL_BLOCKS = threading.Lock()
# A compressed block of one object has rarely more.
_ONE_OBJECT_BYTES = 1024
# Small blocks that follow each other become one of about this size: work on each costs more than a copy.
_JOINED_BYTES = 1024 * 1024
_SYNC_BYTES = 16
LONG_BYTES = 10
_CRC_BYTES = 4
_T = TypeVar("_T")
Bytes: TypeAlias = bytes | bytearray | memoryview
# The names that Iceberg's `write.avro.compression-codec` uses for Avro's codecs.
AVRO_CODECS = {
    "gzip": "deflate",
    "deflate": "deflate",
    "uncompressed": "null",
    "null": "null",
    "zstd": "zstandard",
    "zstandard": "zstandard",
    "snappy": "snappy",
}
# The other codecs of the specification.
_UNSUPPORTED_CODECS = ("bzip2", "xz")
# The levels of codecs that have levels.
AVRO_LEVELS = {
    "deflate": (-1, 9),
    "zstandard": (
        pa.Codec.minimum_compression_level("zstd"),
        pa.Codec.maximum_compression_level("zstd"),
    ),
}
# A header entry which states that the sync marker is a hash of the header and all blocks. Nothing else in Avro's
# format would reveal a wrong byte in a name or a number.
_SEAL, _SEALED = "lake.sync-marker", "sha256"
# Compresses manifests to within 1.5 % of zlib's level 9 in an eighth of its time.
_DEFLATE_LEVEL = 5
# libdeflate needs the room for all bytes in advance, and room that is not used takes time too. So a block is tried
# with small multiples of its size first. Those that were too small are not tried again; few blocks need more than
# the last.
_RATIOS = [4, 8, 16]
_ROOM_OF_ONE = [_SMALL_BLOCK_BYTES]


class Block(NamedTuple):
    """The objects of one block, or of several small ones that follow each other, uncompressed."""

    objects: int
    data: Bytes


@dataclass(frozen=True, slots=True)
class Container:
    """A container file split into blocks; ``metadata`` is its header."""

    name: str
    metadata: Mapping[str, bytes]
    blocks: tuple[Block, ...]

    @property
    def schema_json(self) -> bytes:
        """The text of the Avro schema, not validated."""
        return self.metadata["avro.schema"]

    @property
    def objects(self) -> int:
        """The number of objects in all blocks."""
        return sum(block.objects for block in self.blocks)

    @property
    def size(self) -> int:
        """The number of uncompressed bytes in all blocks."""
        return sum(len(block.data) for block in self.blocks)


def runs(items: Sequence[_T], size: Callable[[_T], int], limit: int) -> Iterator[list[_T]]:
    """Split items into runs of at most ``limit`` bytes; a larger item is a run of its own."""
    run: list[_T] = []
    total = 0
    for item in items:
        if run and total + size(item) > limit:
            yield run
            run, total = [], 0
        run.append(item)
        total += size(item)
    if run:
        yield run


def read_container(
    data: bytes, *, name: str, max_objects: int = MAX_OBJECTS, max_bytes: int = MAX_INFLATED_BYTES
) -> Container:
    """Split a container file into its blocks, to the last byte.

    Args:
        data: the complete file.
        name: its location, for messages.
        max_objects: the maximum number of objects.
        max_bytes: the maximum number of bytes to which its blocks may inflate.

    Raises:
        CorruptFileError: it is cut short, has bytes after its last block, does not decompress, exceeds a
            limit, or was written by `write_container` and has a wrong byte.
    """
    max_bytes = min(max_bytes, max(_UNDOUBTED_BYTES, _MOST_RATIO * len(data)))
    cursor = Cursor(data, name)
    header = read_header(cursor)
    at = len(cursor.taken)
    is_sealed, digest = header.is_sealed, hashlib.sha256(header.packed)
    inflate, room = _INFLATE[header.codec], max_bytes
    blocks, pieces = list[Block](), list[Bytes]()
    objects, joined_objects, joined_at = 0, 0, room
    # A file may have one block for each object: this inlines `Header.inflate`.
    with _decompression_lock(header, data, at), _decompression_errors(name):
        for count, packed in _split(header, data, at):
            if is_sealed:
                digest.update(encode_long(count) + encode_long(len(packed)))
                digest.update(packed)
            objects += count
            if objects > max_objects:
                raise CorruptFileError(f"{name}: more than {max_objects} objects")
            piece = inflate(packed, room)
            room -= len(piece)
            if room < 0:
                raise _too_many_bytes(name)
            pieces.append(piece)
            if joined_at - room >= _JOINED_BYTES:
                blocks.append(_joined(objects - joined_objects, pieces))
                pieces, joined_objects, joined_at = [], objects, room
    if pieces:
        blocks.append(_joined(objects - joined_objects, pieces))
    if is_sealed and digest.digest()[:_SYNC_BYTES] != header.sync:  # check: manifest-seal
        raise CorruptFileError(
            f"{name} is damaged: its sync marker is not the hash of its contents"
        )
    return Container(name, header.metadata, tuple(blocks))


def _joined(objects: int, pieces: Sequence[Bytes]) -> Block:
    return Block(objects, pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _split(header: Header, data: bytes, at: int) -> Iterator[tuple[int, memoryview]]:
    """Yield the number of objects in each block, and the block's compressed bytes.

    A file may have one block for each object: this inlines `Header.next_block`.

    Raises:
        CorruptFileError: a block is cut short or does not end in the file's sync marker.
    """
    view, end, name = memoryview(data), len(data), header.name
    while at < end:
        count, at = long_at(data, at, name)
        size, at = long_at(data, at, name)
        stop = at + size
        if size < 0 or stop + _SYNC_BYTES > end:
            raise CorruptFileError(f"{name} is cut short or damaged at byte {at}")
        header.check(count, data[stop : stop + _SYNC_BYTES])
        yield count, view[at:stop]
        at = stop + _SYNC_BYTES


def _decompression_lock(header: Header, data: bytes, at: int) -> AbstractContextManager[Any]:
    """Return the lock that a thread holds while it decompresses the blocks that begin at a position.

    libdeflate releases the interpreter's lock for each block. If the blocks are small, threads that decompress at the
    same time would spend most of that time on passing the lock to each other.
    """
    return _SMALL_BLOCKS if header.sync in data[at : at + _SMALL_BLOCK_BYTES] else nullcontext()


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a container file, which applies to all of its blocks."""

    name: str
    packed: bytes
    metadata: Mapping[str, bytes]
    codec: str
    sync: bytes

    @property
    def is_sealed(self) -> bool:
        """Whether the sync marker is a hash of the contents."""
        return self.metadata.get(_SEAL) == _SEALED.encode()

    def next_block(self, cursor: Cursor) -> tuple[int, memoryview]:
        """Return the number of objects in the next block, and its compressed bytes.

        Raises:
            CorruptFileError: it is cut short or does not end in the file's sync marker.
        """
        count, packed = cursor.long(), cursor.take(cursor.long())
        self.check(count, cursor.take(_SYNC_BYTES))
        return count, packed

    def check(self, count: int, sync: Bytes) -> None:
        """Check the number of objects that a block declares, and the sync marker after it.

        Raises:
            CorruptFileError: the number is negative, or the marker is not the file's.
        """
        if count < 0:
            raise CorruptFileError(f"{self.name}: a block of {count} objects")
        if sync != self.sync:  # check: sync-marker
            raise CorruptFileError(f"{self.name}: a block does not end in the file's sync marker")

    def inflate(self, packed: memoryview, limit: int) -> Bytes:
        """Return a block's bytes, at most ``limit`` of them.

        Raises:
            CorruptFileError: it does not decompress, or exceeds the limit.
        """
        with _decompression_errors(self.name):
            block = _INFLATE[self.codec](packed, limit)
        if len(block) > limit:
            raise _too_many_bytes(self.name)
        return block


def read_header(cursor: Cursor) -> Header:
    """Read a container file up to its first block.

    Raises:
        CorruptFileError: it is not a container file, or its codec is not known.
        RefusedError: its codec is not supported.
    """
    metadata = _read_header(cursor)
    packed = cursor.taken[len(MAGIC) :]
    if "avro.schema" not in metadata:
        raise CorruptFileError(f"{cursor.name}: no avro.schema in the header")
    codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
    if codec in _UNSUPPORTED_CODECS:
        raise RefusedError(
            f"{cursor.name} is not supported: it is compressed with the Avro codec {codec}",
            hint=f"lake reads {', '.join(_INFLATE)}",
        )
    if codec not in _INFLATE:
        raise CorruptFileError(f"{cursor.name}: unknown Avro codec {codec!r}")
    return Header(cursor.name, packed, metadata, codec, bytes(cursor.take(_SYNC_BYTES)))


def write_container(
    schema: Any,
    blocks: Iterable[Block],
    *,
    metadata: Mapping[str, str],
    codec: str = "gzip",
    level: int | None = None,
) -> bytes:
    """Build a container file; equal input gives equal bytes.

    Args:
        schema: the Avro schema, JSON-ready.
        blocks: objects in the schema's binary encoding.
        metadata: further header entries; keys that start with ``avro.`` are reserved for the format.
        codec: Iceberg's name (``gzip``, ``zstd``, ``snappy``, ``uncompressed``) or Avro's name of the codec.
        level: the codec's level, within `AVRO_LEVELS`; None for its default.

    Raises:
        InvalidRequestError: there is no such codec.
    """
    if codec.lower() not in AVRO_CODECS:
        raise InvalidRequestError(
            f"unknown Avro codec {codec!r}", hint="Choose gzip, zstd, snappy or uncompressed."
        )
    avro_codec = AVRO_CODECS[codec.lower()]
    deflate = _DEFLATE[avro_codec]
    schema_json = json.dumps(schema, separators=(",", ":"))
    header = {
        **metadata,
        _SEAL: _SEALED,
        "avro.schema": schema_json,
        "avro.codec": avro_codec,
    }
    parts = [_header_map(header)]
    digest = hashlib.sha256(parts[0])
    bodies: list[bytes] = []
    for count, data in blocks:
        packed = deflate(data, level)
        bodies.append(encode_long(count) + encode_long(len(packed)) + packed)
        digest.update(bodies[-1])
    # A marker must not occur in the data by chance. A hash of the data is as unlikely to occur in it as random
    # bytes are; it also keeps the file reproducible, and reveals any wrong byte to its readers.
    sync = digest.digest()[:_SYNC_BYTES]
    parts.append(sync)
    for body in bodies:
        parts += (body, sync)
    return MAGIC + b"".join(parts)


class BlockWriter:
    """Writes a container file one block at a time."""

    def __init__(
        self,
        sink: BinaryIO,
        schema: Any,
        *,
        metadata: Mapping[str, str],
        codec: str,
        seed: str,
        level: int | None = None,
    ) -> None:
        """Write the header.

        Args:
            sink: the file to write to.
            schema: the Avro schema, JSON-ready.
            metadata: further header entries.
            codec: Avro's name of the codec.
            seed: a text that is unique to this file; the sync marker is derived from it.
            level: the codec's level, within `AVRO_LEVELS`; None for its default.
        """
        schema_json = json.dumps(schema, separators=(",", ":"))
        header = _header_map({**metadata, "avro.schema": schema_json, "avro.codec": codec})
        self._sync = hashlib.sha256(header + seed.encode()).digest()[:_SYNC_BYTES]
        self._sink = sink
        self._level = level
        self._deflate = _DEFLATE[codec]
        sink.write(MAGIC + header + self._sync)

    def write(self, block: Block) -> None:
        """Write a block."""
        packed = self._deflate(block.data, self._level)
        self._sink.write(
            encode_long(block.objects) + encode_long(len(packed)) + packed + self._sync
        )


def plain_container(schema_json: str, objects: int, data: Sequence[Bytes]) -> list[Bytes]:
    """Return the parts of an uncompressed container file with one block, for libraries that read files."""
    sync = hashlib.sha256(MAGIC).digest()[:_SYNC_BYTES]
    header = MAGIC + _header_map({"avro.schema": schema_json, "avro.codec": "null"}) + sync
    block = encode_long(objects) + encode_long(sum(len(piece) for piece in data))
    return [header, block, *data, sync]


def encode_long(value: int) -> bytes:
    """Return an integer as a zig-zag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Cursor:
    """A position in a file's bytes that cannot move beyond them."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = memoryview(data)
        self._at = 0
        self.name = name

    @property
    def at_end(self) -> bool:
        """Whether all bytes have been read."""
        return self._at == len(self._data)

    @property
    def taken(self) -> bytes:
        """The bytes before the position."""
        return bytes(self._data[: self._at])

    def take(self, length: int) -> memoryview:
        """Return the next ``length`` bytes.

        Raises:
            CorruptFileError: fewer are left.
        """
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise CorruptFileError(f"{self.name} is cut short or damaged at byte {self._at}")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def sized(self) -> bytes:
        """Return the next bytes, before which is their number.

        Raises:
            CorruptFileError: fewer are left, or their number is not valid.
        """
        # A header has 30 of these: this inlines `long` and `take`.
        length, at = long_at(self._data, self._at, self.name)
        end = at + length
        if length < 0 or end > len(self._data):
            raise CorruptFileError(f"{self.name} is cut short or damaged at byte {at}")
        self._at = end
        return bytes(self._data[at:end])

    def long(self) -> int:
        """Return the next integer.

        Raises:
            CorruptFileError: the bytes end within it, or it is too long.
        """
        value, self._at = long_at(self._data, self._at, self.name)
        return value


def long_at(data: Bytes, at: int, name: str) -> tuple[int, int]:
    """Return the integer at a position, and the position after it.

    Raises:
        CorruptFileError: the bytes end within it, or it is too long.
    """
    if at + 1 < len(data):
        # Most take one byte or two.
        first, second = data[at], data[at + 1]
        if first < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return (first >> 1) ^ -(first & 1), at + 1
        if second < 0x80:  # noqa: PLR2004
            return (second << 6 | (first & 0x7F) >> 1) ^ -(first & 1), at + 2
    ahead = data[at : at + LONG_BYTES]
    value = shift = 0
    for byte in ahead:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return (value >> 1) ^ -(value & 1), at + shift // 7
    if len(ahead) < LONG_BYTES:
        raise CorruptFileError(f"{name} is cut short or damaged at byte {at}")
    raise CorruptFileError(f"{name}: an integer of more than {LONG_BYTES} bytes")


def _read_header(cursor: Cursor) -> dict[str, bytes]:
    if cursor.take(len(MAGIC)) != MAGIC:
        raise CorruptFileError(f"{cursor.name} is not an Avro file")
    metadata: dict[str, bytes] = {}
    size = 0
    while (count := cursor.long()) != 0:
        if count < 0:
            count = -count
            cursor.long()
        for _ in range(count):
            key, value = cursor.sized(), cursor.sized()
            size += len(key) + len(value)
            if size > MAX_HEADER_BYTES:
                raise CorruptFileError(f"{cursor.name}: a header of more than {size} bytes")
            metadata[key.decode("utf-8", "replace")] = value
    return metadata


def _header_map(entries: Mapping[str, str]) -> bytes:
    parts = [encode_long(len(entries))]
    for key, value in entries.items():
        for text in (key.encode(), value.encode()):
            parts += (encode_long(len(text)), text)
    parts.append(encode_long(0))
    return b"".join(parts)


@contextmanager
def _decompression_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (zlib.error, pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{name}: a block does not decompress") from error


def _too_many_bytes(name: str) -> CorruptFileError:
    return CorruptFileError(f"{name} inflates to more bytes than lake reads from one file")


def _inflate_deflate(packed: memoryview, limit: int) -> Bytes:
    # A block of one object compresses less than one of many.
    size = len(packed)
    rooms = [ratio * size for ratio in _RATIOS] if size > _ONE_OBJECT_BYTES else _ROOM_OF_ONE
    for room in rooms:
        try:
            block = deflate_decompress(packed, min(limit + 1, room))
        except DeflateError:
            # It inflates to more bytes than that, or it is damaged: libdeflate does not report which.
            continue
        if room > rooms[0]:
            _RATIOS[:] = [ratio for ratio in _RATIOS if ratio * size >= room]
        return block
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    whole = machine.decompress(packed, limit + 1)
    if len(whole) <= limit and not machine.eof:
        raise ValueError("the block is cut short")
    return whole


def _inflate_zstandard(packed: memoryview, limit: int) -> bytes:
    with pa.CompressedInputStream(pa.py_buffer(packed), "zstd") as stream:
        return bytes(stream.read(limit + 1))


def _inflate_snappy(packed: memoryview, limit: int) -> Bytes:
    body, checksum = packed[:-_CRC_BYTES], packed[-_CRC_BYTES:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            break
    if size > limit:
        raise ValueError(f"{size} bytes are more than {limit}")
    block = memoryview(pa.decompress(body, decompressed_size=size, codec="snappy"))
    if zlib.crc32(block) != int.from_bytes(checksum, "big"):
        raise ValueError("the checksum does not match")
    return block


def _deflate_deflate(data: Bytes, level: int | None) -> bytes:
    return bytes(deflate_compress(data, _DEFLATE_LEVEL if level is None else level))


def _deflate_snappy(data: Bytes, _level: int | None) -> bytes:
    packed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return packed + zlib.crc32(data).to_bytes(_CRC_BYTES, "big")


def _deflate_zstandard(data: Bytes, level: int | None) -> bytes:
    return bytes(pa.Codec("zstd", level).compress(data, asbytes=True))


_INFLATE: Mapping[str, Callable[[memoryview, int], Bytes]] = {
    "null": lambda packed, _limit: packed,
    "deflate": _inflate_deflate,
    "snappy": _inflate_snappy,
    "zstandard": _inflate_zstandard,
}
_DEFLATE: Mapping[str, Callable[[Bytes, int | None], bytes]] = {
    "null": lambda data, _level: bytes(data),
    "deflate": _deflate_deflate,
    "snappy": _deflate_snappy,
    "zstandard": _deflate_zstandard,
}
