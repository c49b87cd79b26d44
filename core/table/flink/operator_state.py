"""The elements of an operator's list states, in the bytes of one subtask.

Source: Flink's DefaultOperatorStateBackendSnapshotStrategy and OperatorBackendSerializationProxy. The bytes begin
with a description of the serialisers, which includes Java objects and is never deserialised: the checkpoint's
metadata contains the offset of each element, and each ends where the next element of any state begins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lake.core.io.storage.storage import MAX_METADATA_BYTES
from lake.core.table.flink.byte_reader import ByteReader
from lake.core.table.flink.snappy_framing import unframe
from lake.core.table.flink.state_handles import SPLIT_DISTRIBUTE, ListState, OperatorHandle

_COMPRESSIBLE = 6
_VERSIONS = (5, _COMPRESSIBLE)
_OFFSET_BYTES = 8
# Far more than a committer ever has; each takes at least a hundred bytes.
_MAX_ELEMENTS = 100_000
_MAX_CHECKPOINTS = 100_000
# The only text that is read is a job id.
_MAX_TEXT = 1000


def elements(handle: OperatorHandle, source: ByteReader) -> Iterator[tuple[str, ByteReader]]:
    """Yield the elements of a handle's wanted states, each with its state's name.

    Raises:
        CorruptFileError: the bytes do not match the handle.
        RefusedError: they have an unknown version, an unexpected redistribution mode, or too many elements.
    """
    states = handle.list_states()
    if not any(states[name].offsets for name in handle.names):
        return
    whole = source.remaining
    compressed = _header(source)
    offsets = {name: _offsets(state, source) for name, state in states.items()}
    edges = sorted({offset for each in offsets.values() for offset in each})
    if edges[0] < source.position or edges[-1] > whole:
        raise source.corrupt(f"elements from byte {edges[0]} to byte {edges[-1]} of {whole}")
    ends = dict(zip(edges, [*edges[1:], whole], strict=True))
    for name in sorted(handle.names):
        if states[name].mode != SPLIT_DISTRIBUTE:
            mode = states[name].mode
            raise source.refused(f"state {name} has the unexpected redistribution mode {mode}")
        for offset in offsets[name]:
            element = source.between(offset, ends[offset])
            yield name, _inflated(element) if compressed else element


def _offsets(state: ListState, source: ByteReader) -> tuple[int, ...]:
    number = len(state.offsets) // _OFFSET_BYTES
    if number > _MAX_ELEMENTS:
        raise source.refused(f"a state has {number} elements")
    return struct.unpack(f">{number}q", state.offsets)


def _header(source: ByteReader) -> bool:
    """Read the header and return whether the elements are compressed."""
    version = source.int32()
    if version not in _VERSIONS:
        raise source.refused(f"operator state has version {version}; supported are {_VERSIONS}")
    compressed = source.boolean() if version >= _COMPRESSIBLE else False
    lists = source.int16()
    if lists < 1:
        raise source.corrupt(f"{lists} list states are described, but the metadata names one")
    return compressed


def _inflated(element: ByteReader) -> ByteReader:
    data = unframe(element, limit=MAX_METADATA_BYTES)
    return ByteReader(memoryview(data), f"{element.name} (uncompressed)")


def java_string(source: ByteReader) -> str:
    """Read a text written by Flink's StringSerializer, to the last byte.

    Raises:
        CorruptFileError: it is null or not a text.
    """
    length = _variable(source) - 1
    if not 0 <= length <= _MAX_TEXT:
        raise source.corrupt(f"invalid text length {length}")
    units = b"".join(_unit(source) for _ in range(length))
    source.expect_end()
    try:
        return units.decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise source.corrupt("a text is not UTF-16") from error


def _unit(source: ByteReader) -> bytes:
    value = _variable(source)
    if value > 0xFFFF:  # noqa: PLR2004 - UTF-16
        raise source.corrupt(f"invalid character {value}")
    return value.to_bytes(2, "big")


def _variable(source: ByteReader) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = source.int8() & 0xFF
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return value
    raise source.corrupt("a number has more than five bytes")


def sorted_map(source: ByteReader) -> dict[int, ByteReader]:
    """Read a map of longs to byte arrays, written by Flink's SortedMapSerializer.

    Raises:
        CorruptFileError: it is not such a map.
        RefusedError: it has too many entries.
    """
    found: dict[int, ByteReader] = {}
    last = -1
    number = source.count(13)
    if number > _MAX_CHECKPOINTS:
        raise source.refused(f"{number} checkpoints to commit")
    for _ in range(number):
        key = source.int64()
        if key <= last:
            raise source.corrupt(f"checkpoint {key} after checkpoint {last}")
        if source.boolean():
            raise source.corrupt(f"checkpoint {key} has a null value")
        found[key] = source.reader(source.count(1))
        last = key
    source.expect_end()
    return found
