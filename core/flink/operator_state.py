"""The elements of an operator's list states, found in the bytes that one subtask kept.

Source: Flink's DefaultOperatorStateBackendSnapshotStrategy and OperatorBackendSerializationProxy. The bytes begin
with what describes the serialisers, Java objects among it. That is never looked into: the checkpoint's
metadata tells where each element begins, and each ends where the next of any state begins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lake.core.flink.byte_reader import ByteReader
from lake.core.flink.snappy_framing import unframe
from lake.core.flink.state_handles import SPLIT_DISTRIBUTE, ListState, OperatorHandle
from lake.core.storage.storage import MAX_METADATA_BYTES

_COMPRESSIBLE = 6
_VERSIONS = (5, _COMPRESSIBLE)
_OFFSET_BYTES = 8
# Far more than a committer ever has; each costs a hundred bytes and more.
_MAX_ELEMENTS = 100_000
_MAX_CHECKPOINTS = 100_000
# The only text that is read is a job's id.
_MAX_TEXT = 1000


def elements(handle: OperatorHandle, source: ByteReader) -> Iterator[tuple[str, ByteReader]]:
    """Yield the elements of the states that a handle was searched for, each with its state's name.

    Args:
        handle: of the subtask's operator state.
        source: the bytes that the handle names, whole.

    Raises:
        CorruptFileError: the bytes are not what the handle says.
        RefusedError: they are of a version that this release does not know, shared out unusually, or too many.
    """
    states = handle.list_states()
    if not any(states[name].offsets for name in handle.names):
        return
    whole = source.remaining
    compressed = _header(source)
    places = {name: _places(state, source) for name, state in states.items()}
    edges = sorted({place for each in places.values() for place in each})
    if edges[0] < source.position or edges[-1] > whole:
        raise source.corrupt(f"elements from byte {edges[0]} to byte {edges[-1]} of {whole}")
    ends = dict(zip(edges, [*edges[1:], whole], strict=True))
    for name in sorted(handle.names):
        if states[name].mode != SPLIT_DISTRIBUTE:
            mode = states[name].mode
            raise source.refused(f"state {name} is shared out in the unexpected way {mode}")
        for place in places[name]:
            element = source.between(place, ends[place])
            yield name, _inflated(element) if compressed else element


def _places(state: ListState, source: ByteReader) -> tuple[int, ...]:
    number = len(state.offsets) // _OFFSET_BYTES
    if number > _MAX_ELEMENTS:
        raise source.refused(f"a state of {number} elements")
    return struct.unpack(f">{number}q", state.offsets)


def _header(source: ByteReader) -> bool:
    """Read the header and return whether the elements are compressed."""
    version = source.int32()
    if version not in _VERSIONS:
        raise source.refused(f"operator state of version {version}; known are {_VERSIONS}")
    compressed = source.boolean() if version >= _COMPRESSIBLE else False
    lists = source.int16()
    if lists < 1:
        raise source.corrupt(f"{lists} list states described, but one is named")
    return compressed


def _inflated(element: ByteReader) -> ByteReader:
    data = unframe(element, limit=MAX_METADATA_BYTES)
    return ByteReader(memoryview(data), f"{element.name} (uncompressed)")


def java_string(source: ByteReader) -> str:
    """Read what Flink's StringSerializer wrote, up to the last byte.

    Raises:
        CorruptFileError: it is null or not a text.
    """
    length = _variable(source) - 1
    if not 0 <= length <= _MAX_TEXT:
        raise source.corrupt(f"a text of {length} characters")
    units = b"".join(_unit(source) for _ in range(length))
    source.silence_shutdown()
    try:
        return units.decode("utf-16-be")
    except UnicodeDecodeError as error:
        raise source.corrupt("a text that is not UTF-16") from error


def _unit(source: ByteReader) -> bytes:
    value = _variable(source)
    if value > 0xFFFF:  # noqa: PLR2004 - UTF-16
        raise source.corrupt(f"a character of the number {value}")
    return value.to_bytes(2, "big")


def _variable(source: ByteReader) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = source.int8() & 0xFF
        value |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004 - the last byte has no high bit
            return value
    raise source.corrupt("a number of more than five bytes")


def sorted_map(source: ByteReader) -> dict[int, ByteReader]:
    """Read what Flink's SortedMapSerializer wrote of longs and byte arrays.

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
            raise source.corrupt(f"null for checkpoint {key}")
        found[key] = source.reader(source.count(1))
        last = key
    source.silence_shutdown()
    return found
