"""Snappy's framing format, which Flink uses to compress operator state.

Source: Snappy's framing_format.txt.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from lake.core.table.flink.byte_reader import ByteReader

_STREAM_NAME = b"sNaPpY"
_COMPRESSED, _PLAIN, _STREAM = 0x00, 0x01, 0xFF
_SKIPPABLE = range(0x80, _STREAM)
_MAX_CHUNK = 65_536
_MASK = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
_WORD = 0xFFFFFFFF


def unframe(source: ByteReader, *, limit: int) -> bytes:
    """Return the uncompressed contents of all chunks.

    Raises:
        CorruptFileError: they violate the format, fail their checksum or contain more than ``limit`` bytes.
    """
    found = bytearray()
    while source.remaining:
        found += _chunk(source)
        if len(found) > limit:
            raise source.corrupt(f"compressed state exceeds {limit} bytes")
    return bytes(found)


def _chunk(source: ByteReader) -> bytes:
    kind = source.int8() & 0xFF
    chunk = source.reader(int.from_bytes(source.take(3), "little"))
    if kind in (_COMPRESSED, _PLAIN):
        expected = int.from_bytes(chunk.take(4), "little")
        packed = chunk.take(chunk.remaining)
        data = _inflate(source, packed) if kind == _COMPRESSED else bytes(packed)
        if len(data) > _MAX_CHUNK or _masked_checksum(data) != expected:
            raise source.corrupt("a compressed chunk has a wrong checksum")
        return data
    if kind == _STREAM and bytes(chunk.take(chunk.remaining)) == _STREAM_NAME:
        return b""
    if kind not in _SKIPPABLE:
        raise source.corrupt(f"a compressed chunk has the unknown kind {kind}")
    return b""


def _inflate(source: ByteReader, packed: memoryview) -> bytes:
    size = 0
    for position, byte in enumerate(packed[:3]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            break
    if size > _MAX_CHUNK:
        raise source.corrupt(f"a compressed chunk has {size} bytes")
    try:
        return bytes(pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True))
    except (OSError, ValueError) as error:
        raise source.corrupt("a chunk does not decompress") from error


def _masked_checksum(data: bytes) -> int:
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + _MASK) & _WORD


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) checksum."""
    table, value = _table(), _WORD
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ _WORD


@cache
def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        value = entry
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        entries.append(value)
    return tuple(entries)
