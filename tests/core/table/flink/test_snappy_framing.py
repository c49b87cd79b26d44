"""Snappy's framing is undone byte for byte, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.checkpoint_writer import frame
from support.tiers import examples

from lake.core.base.errors import CorruptFileError
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.snappy_framing import crc32c, unframe

_STREAM = b"\xff\x06\x00\x00sNaPpY"
_PADDING = b"\xfe\x03\x00\x00\x00\x00\x00"


def _unframe(data: bytes, limit: int = 10**6) -> bytes:
    return unframe(ByteReader(memoryview(data), "x"), limit=limit)


def test_the_checksum_is_castagnolis() -> None:
    # Check values of RFC 3720, B.4.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(data=st.binary(max_size=400), chunk=st.integers(1, 100), plain=st.booleans())
@settings(max_examples=examples(50), deadline=None)
def test_chunks_of_either_kind_give_back_what_they_hold(
    data: bytes, chunk: int, plain: bool
) -> None:
    framed = _STREAM + frame(data, chunk=chunk, plain=plain) + _PADDING + _STREAM
    assert _unframe(framed) == data


def test_a_flipped_bit_anywhere_is_found() -> None:
    framed = frame(b"checkpoints, checkpoints, checkpoints")
    for bit in range(len(framed) * 8):
        damaged = bytearray(framed)
        damaged[bit // 8] ^= 1 << bit % 8
        if damaged[0] >= 0x80:
            # A chunk of a kind that readers must skip.
            assert _unframe(bytes(damaged)) == b""
            continue
        with pytest.raises(CorruptFileError):
            _unframe(bytes(damaged))


@pytest.mark.parametrize(
    "chunk",
    [
        b"\x02\x00\x00\x00",
        b"\xff\x06\x00\x00SnApPy",
        b"\x00\xff\xff\xff",
        b"\x00\x09\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x7f",
        b"\x00\x04\x00\x00\x00\x00\x00\x00",
        b"\x01\x03\x00\x00\x00\x00\x00",
        b"\x00\x00",
    ],
)
def test_invalid_chunks_are_corrupt(chunk: bytes) -> None:
    with pytest.raises(CorruptFileError):
        _unframe(chunk)


def test_a_chunk_of_more_than_64_kib_is_corrupt_and_so_is_more_than_allowed() -> None:
    assert _unframe(frame(bytes(65_536), chunk=65_536)) == bytes(65_536)
    for plain in (False, True):
        with pytest.raises(CorruptFileError):
            _unframe(frame(bytes(65_537), chunk=65_537, plain=plain))
    with pytest.raises(CorruptFileError, match="exceeds 99 bytes"):
        _unframe(frame(bytes(100), chunk=10), limit=99)
