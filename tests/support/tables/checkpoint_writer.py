"""An own writer of checkpoints, to judge the reader by: as the formats are described, not as lake reads them.

Everything is bytes that callers put together:

    state, offsets = operator_bytes({"name": (0, [byte_array(b"…")])})
    subtask = subtask_state(6, managed=operator_handle(offsets, inline(state)))
    metadata(6, 12, [operator(6, "a1" * 16, {0: subtask})])
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence

import fastavro
import pyarrow as pa

MAGIC = struct.pack(">I", 0x4960672D)
JAVA_OBJECT = b"\xac\xed\x00\x05sr\x008org.apache.flink.runtime.checkpoint.CheckpointProperties"
NULL = b"\x00"
States = Mapping[str, tuple[int, Sequence[int]]]


def int32(value: int) -> bytes:
    """Return an int."""
    return struct.pack(">i", value)


def int64(value: int) -> bytes:
    """Return a long."""
    return struct.pack(">q", value)


def text(value: str) -> bytes:
    """Return what Java's writeUTF writes."""
    found = bytearray()
    units = value.encode("utf-16-be", "surrogatepass")
    for (unit,) in struct.iter_unpack(">H", units):
        if 0 < unit < 0x80:
            found.append(unit)
        elif unit < 0x800:
            found += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            found += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return struct.pack(">H", len(found)) + bytes(found)


def block(data: bytes) -> bytes:
    """Return bytes behind their length."""
    return int32(len(data)) + data


def many(items: Sequence[bytes]) -> bytes:
    """Return things behind their number."""
    return int32(len(items)) + b"".join(items)


def versioned(version: int, data: bytes) -> bytes:
    """Return what SimpleVersionedSerialization writes of one thing."""
    return int32(version) + block(data)


def versioned_list(version: int, items: Sequence[bytes]) -> bytes:
    """Return what SimpleVersionedSerialization writes of a list."""
    return int32(version) + many([block(item) for item in items])


# Metadata.


def metadata(
    version: int, checkpoint_id: int, operators: Sequence[bytes], *, masters: int = 0
) -> bytes:
    """Return a ``_metadata`` file."""
    master = b"\xc9\x6b\x16\x96" + block(int32(1) + text("hook") + block(b"state"))
    body = int64(checkpoint_id) + many([master] * masters) + many(operators)
    return MAGIC + int32(version) + body + (JAVA_OBJECT if version >= 4 else b"")


def operator(
    version: int,
    operator_id: str,
    subtasks: Mapping[int, bytes | None] | None,
    *,
    name: str = "",
    parallelism: int = 128,
    coordinator: bytes = NULL,
) -> bytes:
    """Return an operator: a subtask of None has finished, as has an operator whose subtasks are None."""
    found = text(name) + text(name and "uid of " + name) if version >= 5 else b""
    found += bytes.fromhex(operator_id) + int32(parallelism) + int32(128)
    found += coordinator if version >= 3 else int32(1)
    if subtasks is None:
        return found + int32(-1)
    found += int32(len(subtasks))
    for index, state in subtasks.items():
        found += int32(-index - 1) if state is None else int32(index) + state
    return found


def subtask_state(
    version: int,
    *,
    managed: bytes | None = None,
    raw: bytes | None = None,
    keyed: Sequence[bytes] = (NULL, NULL),
    inputs: Sequence[bytes] = (),
    outputs: Sequence[bytes] = (),
    reference: int | None = None,
) -> bytes:
    """Return a subtask's state."""
    found = int64(-1) + int32(0) if version == 2 else b""
    for handle in (managed, raw):
        found += int32(0) if handle is None else int32(1) + handle
    found += b"".join(keyed)
    if version >= 3:
        found += many(inputs) + many(outputs)
    if version >= 7:
        found += b"\x00" if reference is None else b"\x01" + int64(reference)
    return found


# Handles of bytes.


def inline(data: bytes, name: str = "inline") -> bytes:
    """Return handle 1."""
    return b"\x01" + text(name) + block(data)


def file(path: str, size: int) -> bytes:
    """Return handle 2."""
    return b"\x02" + int64(size) + text(path)


def relative(path: str, size: int) -> bytes:
    """Return handle 6."""
    return b"\x06" + text(path) + int64(size)


def key_groups(kind: int, groups: int, stream: bytes, name: str = "id") -> bytes:
    """Return handle 3 (of bytes or keyed), 7 or 12."""
    found = bytes((kind,)) + int32(0) + many([int64(place) for place in range(groups)]) + stream
    return found + text(name) if kind == 12 else found


def segment(path: str, start: int, size: int) -> bytes:
    """Return handle 15."""
    return b"\x0f" + int64(start) + int64(size) + int32(0) + text(path) + text("logical")


EMPTY_SEGMENT = b"\x10"


# Handles of operator and keyed state, and of what was on its way.


def operator_handle(states: States, stream: bytes) -> bytes:
    """Return handle 4."""
    return b"\x04" + _states(states) + stream


def merged_operator_handle(states: States, stream: bytes, *, empty: bool = False) -> bytes:
    """Return handle 17."""
    folders = text("file:/owned") + text("file:/shared")
    return b"\x11" + _states(states) + folders + bytes((empty,)) + stream


def _states(states: States) -> bytes:
    return many(
        [
            text(name) + bytes((mode,)) + many([int64(place) for place in places])
            for name, (mode, places) in states.items()
        ]
    )


def incremental(kind: int, shared: Mapping[str, bytes], private: Mapping[str, bytes]) -> bytes:
    """Return handle 5 or 11."""
    found = bytes((kind,)) + int64(3) + text("backend") + int32(0) + int32(4)
    found += (int64(99) if kind == 11 else b"") + inline(b"meta")
    for files in (shared, private):
        found += many([text(path) + stream for path, stream in files.items()])
    return found + (text("id") if kind == 11 else b"")


def changelog(kind: int, base: Sequence[bytes], delta: Sequence[bytes]) -> bytes:
    """Return handle 8 or 14."""
    found = bytes((kind,)) + int32(0) + int32(4) + int64(7) + many(base) + many(delta) + int64(2)
    return found + (int64(5) if kind == 14 else b"") + text("id")


def changes(content: Sequence[bytes]) -> bytes:
    """Return handle 9."""
    found = b"\x09" + int32(0) + int32(4) + int64(1) + int64(2)
    return found + many([int32(-1) + block(item) for item in content]) + text("id")


def change_files(kind: int, streams: Sequence[bytes]) -> bytes:
    """Return handle 10 or 13."""
    found = bytes((kind,)) + int32(0) + int32(4) + many([int64(1) + item for item in streams])
    return found + int64(7) + int64(8) + text("id") + (text("store") if kind == 13 else b"")


def channel(version: int, stream: bytes, *, output: bool = False, merged: bool = False) -> bytes:
    """Return a handle of what was on its way to an operator, or from it."""
    if version < 6:
        return int32(0) + int32(1) + int32(2) + many([int64(0), int64(9)]) + int64(18) + stream
    kind = bytes((1 + output + 2 * merged,))
    if merged:
        return kind + int32(0) + int64(18) + stream + block(b"offsets")
    return kind + channel(3, stream)


# An operator's bytes.


def operator_bytes(
    states: Mapping[str, tuple[int, Sequence[bytes]]],
    *,
    version: int = 6,
    compressed: bool = False,
) -> tuple[bytes, dict[str, tuple[int, list[int]]]]:
    """Return the bytes of list states, and where in them each element is."""
    found = int32(version) + (bytes((compressed,)) if version >= 6 else b"")
    found += struct.pack(">hh", len(states), 0) + b"\xac\xed\x00\x05serialisers, never looked into"
    if compressed:
        found += b"\xff\x06\x00\x00sNaPpY"
    offsets: dict[str, tuple[int, list[int]]] = {}
    for name, (mode, elements) in states.items():
        offsets[name] = (mode, [])
        for element in elements:
            offsets[name][1].append(len(found))
            found += frame(element) if compressed else element
    return found, offsets


def frame(data: bytes, *, chunk: int = 50_000, plain: bool = False) -> bytes:
    """Return Snappy's framing of some bytes, without the stream's name."""
    found = b""
    for start in range(0, len(data), chunk):
        part = data[start : start + chunk]
        packed = part if plain else pa.compress(part, codec="snappy", asbytes=True)
        body = struct.pack("<I", _masked(crc32c(part))) + packed
        found += bytes((plain,)) + struct.pack("<I", len(body))[:3] + body
    return found


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) % 2**32


def crc32c(data: bytes) -> int:
    """Return Castagnoli's CRC, bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ 0x82F63B78 * (value & 1)
    return value ^ 0xFFFFFFFF


def byte_array(data: bytes) -> bytes:
    """Return an element of a ListState<byte[]>."""
    return block(data)


def java_string(value: str) -> bytes:
    """Return an element of a ListState<String>."""
    units = [unit for (unit,) in struct.iter_unpack(">H", value.encode("utf-16-be"))]
    return b"".join(_variable(number) for number in (len(units) + 1, *units))


def _variable(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def sorted_map(entries: Mapping[int, bytes | None]) -> bytes:
    """Return an element of a ListState<SortedMap<Long, byte[]>>."""
    return many(
        [
            int64(key) + (b"\x01" if value is None else b"\x00" + block(value))
            for key, value in entries.items()
        ]
    )


# Iceberg's parts.

MANIFEST_SCHEMA = {
    "type": "record",
    "name": "GenericManifestFile",
    "namespace": "org.apache.iceberg",
    "fields": [
        {"name": "manifest_path", "type": "string", "doc": "where", "field-id": 500},
        {"name": "manifest_length", "type": "long", "field-id": 501},
        {"name": "partition_spec_id", "type": "int", "field-id": 502},
        {"name": "content", "type": "int", "field-id": 517},
        {"name": "sequence_number", "type": "long", "field-id": 515},
        {"name": "min_sequence_number", "type": "long", "field-id": 516},
        {"name": "added_snapshot_id", "type": ["null", "long"], "default": None, "field-id": 503},
        {"name": "added_files_count", "type": ["null", "int"], "default": None, "field-id": 504},
        {"name": "added_rows_count", "type": ["null", "long"], "default": None, "field-id": 512},
        {
            "name": "partitions",
            "default": None,
            "field-id": 507,
            "type": [
                "null",
                {
                    "type": "array",
                    "element-id": 508,
                    "items": {
                        "type": "record",
                        "name": "GenericPartitionFieldSummary",
                        "fields": [
                            {"name": "contains_null", "type": "boolean", "field-id": 509},
                            {"name": "contains_nan", "type": ["null", "boolean"], "field-id": 518},
                            {"name": "lower_bound", "type": ["null", "bytes"], "field-id": 510},
                            {"name": "upper_bound", "type": ["null", "bytes"], "field-id": 511},
                        ],
                    },
                },
            ],
        },
        {"name": "key_metadata", "type": ["null", "bytes"], "default": None, "field-id": 519},
    ],
}


def manifest(
    path: str,
    *,
    length: int = 7000,
    spec_id: int = 0,
    content: int = 0,
    files: int | None = 4,
    rows: int | None = 80,
) -> bytes:
    """Return an encoded ManifestFile."""
    summary = {
        "contains_null": False,
        "contains_nan": None,
        "lower_bound": b"a",
        "upper_bound": b"z",
    }
    record = {
        "manifest_path": path,
        "manifest_length": length,
        "partition_spec_id": spec_id,
        "content": content,
        "sequence_number": -1,
        "min_sequence_number": -1,
        "added_snapshot_id": 0,
        "added_files_count": files,
        "added_rows_count": rows,
        "partitions": [summary, summary],
        "key_metadata": None,
    }
    return encoded(MANIFEST_SCHEMA, record)


def encoded(schema: object, record: object) -> bytes:
    """Return a record as Iceberg's AvroEncoderUtil encodes it."""
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(schema), record)
    return b"\xc2\x01" + text(json.dumps(schema, separators=(",", ":"))) + datum.getvalue()


def delta_manifests(
    data: bytes = b"", deletes: bytes = b"", referenced: Sequence[str] = (), *, version: int = 2
) -> bytes:
    """Return a versioned DeltaManifests."""
    if version == 1:
        return versioned(1, data)
    return versioned(2, block(data) + block(deletes) + many([text(path) for path in referenced]))


def iceberg_committable(job: str, operator_id: str, checkpoint_id: int, content: bytes) -> bytes:
    """Return an IcebergCommittable of version 1."""
    return text(job) + text(operator_id) + int64(checkpoint_id) + block(content)


def dynamic_committable(
    version: int,
    table: str,
    branch: str,
    job: str,
    operator_id: str,
    checkpoint_id: int,
    contents: Sequence[bytes],
) -> bytes:
    """Return a DynamicCommittable of version 1, which has one DeltaManifests, or 2."""
    found = text(table) + text(branch)
    if version == 1:
        found += int32(0) + int32(0) + b"\x00" + many([int32(1), int32(2)])
    found += text(job) + text(operator_id) + int64(checkpoint_id)
    return found + (many([block(item) for item in contents]) if version > 1 else block(*contents))


def collector(release: str, committables: Mapping[int, Sequence[tuple[int, bytes, int]]]) -> bytes:
    """Return a versioned CommittableCollector.

    Args:
        release: of Flink: "1.18", "1.20" or "2".
        committables: checkpoint to committables with their version and state.
    """
    numbers = {"1.18": (0, 0), "1.20": (1, 1), "2": (1, 2)}
    checkpoint_version, subtask_version = numbers[release]
    checkpoints = []
    for checkpoint_id, items in committables.items():
        requests = [versioned(kind, item) + int32(0) + int32(state) for kind, item, state in items]
        subtask = int32(0) if subtask_version else b""
        subtask += versioned_list(0, requests) + int32(len(requests))
        subtask += (int32(0) if subtask_version < 2 else b"") + int32(0)
        number = int32(1) if checkpoint_version else b""
        checkpoints.append(
            int64(checkpoint_id) + number + versioned_list(subtask_version, [subtask])
        )
    return versioned(2, b"\xb9\x1f\x25\x2c" + versioned_list(checkpoint_version, checkpoints))
