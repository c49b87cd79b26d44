"""Avro files rewritten with wrong values: in their records, schemas, blocks and codecs."""

from __future__ import annotations

import io
import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

_SYNC = 16
BOMB_BYTES = 2**30


@dataclass(frozen=True)
class Opened:
    """An Avro file: schema, records, and what else its header says."""

    schema: Any
    records: list[dict[str, Any]]
    header: Mapping[str, str]
    codec: str


def opened(data: bytes) -> Opened:
    """Read a whole Avro file."""
    reader = fastavro.reader(io.BytesIO(data))
    records = [dict(row) for row in reader]  # type: ignore[call-overload]
    own = ("avro.", "lake.sync-marker")
    header = {key: value for key, value in reader.metadata.items() if not key.startswith(own)}
    return Opened(json.loads(reader.metadata["avro.schema"]), records, header, reader.codec)


def written(file: Opened, *, codec: str | None = None) -> bytes:
    """Write an Avro file; records need not be what Iceberg allows."""
    out = io.BytesIO()
    fastavro.writer(
        out,
        file.schema,
        file.records,
        codec=codec or file.codec,
        metadata=dict(file.header),
        sync_marker=bytes(range(_SYNC)),
        strict_allow_default=False,
    )
    return out.getvalue()


def long(value: int) -> bytes:
    """Return a zig-zag varint, of numbers that have no place in 64 bits too."""
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def head_of(data: bytes) -> tuple[bytes, bytes]:
    """Return a file's bytes up to its first block, and its sync marker."""
    stream = io.BytesIO(data)
    reader = fastavro.block_reader(stream)
    del reader
    sync = data[-_SYNC:]
    at = data.index(sync) + _SYNC
    return data[:at], sync


def block(count: int, body: bytes, sync: bytes, *, length: int | None = None) -> bytes:
    """Return a block."""
    return long(count) + long(len(body) if length is None else length) + body + sync


def wrong_blocks(data: bytes) -> dict[str, bytes]:
    """Return files whose blocks have wrong counts, lengths or markers."""
    head, sync = head_of(data)
    file = opened(data)
    body = _body(data, head)
    rows = len(file.records)
    wrong = {
        f"count {count}": head + block(count, body, sync)
        for count in (0, 1, rows - 1, rows + 1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64, -1, -rows)
        if count != rows
    }
    for length in (
        0,
        1,
        len(body) - 1,
        len(body) + 1,
        2**31,
        2**62,
        2**63 - 1,
        2**63,
        -1,
        -(2**62),
    ):
        wrong[f"length {length}"] = head + block(rows, body, sync, length=length)
    wrong["wrong sync"] = head + block(rows, body, bytes(_SYNC))
    wrong["no block"] = head
    wrong["a block of nothing"] = data + block(0, _empty(file.codec), sync)
    wrong["a block twice"] = data + block(rows, body, sync)
    wrong["a byte behind"] = data + b"\0"
    wrong["no magic"] = b"Obj\x02" + data[4:]
    wrong["nothing"] = b""
    wrong["java"] = b"\xac\xed\x00\x05" + data
    return wrong


def _body(data: bytes, head: bytes) -> bytes:
    at = len(head)
    for _ in range(2):
        while data[at] & 128:
            at += 1
        at += 1
    return data[at:-_SYNC]


def _empty(codec: str) -> bytes:
    return zlib.compress(b"", wbits=-15) if codec == "deflate" else b""


def bombs(data: bytes) -> dict[str, bytes]:
    """Return files of about a mebibyte each whose one block expands to a gibibyte."""
    file = opened(data)
    zeros = bytes(2**20)
    found = {}
    for codec, packed in {
        "deflate": _deflated(zeros),
        "zstandard": _zstd(zeros),
        "snappy": long(2 * BOMB_BYTES)[:5] + bytes(1000),
        "snappy with a small length": bytes(pa.compress(zeros, codec="snappy", asbytes=True))
        + bytes(4),
    }.items():
        empty = written(Opened(file.schema, [], file.header, "null"), codec="null").replace(
            b"\x08null", long(len(codec.split()[0])) + codec.split()[0].encode(), 1
        )
        sync = bytes(range(_SYNC))
        head = empty[: empty.index(sync) + _SYNC]
        for count in (len(file.records), 1_000_000):
            found[f"{codec} bomb of {count}"] = head + block(count, packed, sync)
    return found


def _deflated(zeros: bytes) -> bytes:
    machine = zlib.compressobj(9, wbits=-15)
    parts = [machine.compress(zeros) for _ in range(BOMB_BYTES // len(zeros))]
    return b"".join([*parts, machine.flush()])


def _zstd(zeros: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        for _ in range(BOMB_BYTES // len(zeros)):
            stream.write(zeros)
    return sink.getvalue().to_pybytes()


Edit = Callable[[list[dict[str, Any]]], None]


def _each(path: str, value: Any) -> Edit:
    def edit(rows: list[dict[str, Any]]) -> None:
        *outer, last = path.split(".")
        place: Any = rows[0]
        for name in outer:
            place = place[name]
        if last not in place:
            raise KeyError(last)
        place[last] = value(place[last]) if callable(value) else value

    return edit


_HUGE = "x" * 2**20
# What a manifest's entry must not say: counts, statuses and paths that other numbers contradict.
ENTRY_EDITS: dict[str, Edit] = {
    **{f"status {value}": _each("status", value) for value in (-1, 2, 3, 7, 2**31 - 1)},
    **{
        f"{name} {value}": _each(f"data_file.{name}", value)
        for name in ("record_count", "file_size_in_bytes")
        for value in (-1, 0, 2**31, 2**62, 2**63 - 1, -(2**63))
    },
    **{f"content {value}": _each("data_file.content", value) for value in (-1, 1, 2, 3, 2**31 - 1)},
    **{
        f"path {value[:12]!r}": _each("data_file.file_path", value)
        for value in ("", "/", "..", "s3://", "file:///etc/passwd", _HUGE, "\0", "relative")
    },
    **{f"sequence {value}": _each("sequence_number", value) for value in (-1, 10_000, 2**63 - 1)},
    **{
        f"file sequence {value}": _each("file_sequence_number", value)
        for value in (-1, 10_000, 2**63 - 1)
    },
    **{f"format {value!r}": _each("data_file.file_format", value) for value in ("", "X", "ORC")},
    "partition": _each("data_file.partition", dict.fromkeys),
    "key metadata": _each("data_file.key_metadata", b"\1\2"),
    "offsets": _each("data_file.split_offsets", [400, 4, -4, 2**62]),
    "offsets beyond": _each("data_file.split_offsets", [10**12]),
    "sort order": _each("data_file.sort_order_id", 99),
    "equality ids": _each("data_file.equality_ids", [1, 999]),
    "bounds": _each("data_file.lower_bounds", [{"key": 1, "value": b"\xff"}]),
    "huge bounds": _each("data_file.upper_bounds", [{"key": 2, "value": _HUGE.encode()}]),
    "counts": _each("data_file.value_counts", [{"key": 1, "value": -5}]),
    "another snapshot": _each("snapshot_id", 1),
    "no rows": lambda rows: rows.clear(),
    "the first away": lambda rows: rows.__delitem__(0),
}
LIST_EDITS: dict[str, Edit] = {
    **{
        f"{name} {value}": _each(name, value)
        for name in (
            "added_files_count",
            "existing_files_count",
            "deleted_files_count",
            "added_rows_count",
            "existing_rows_count",
            "deleted_rows_count",
        )
        for value in (-1, 0, 1, 2**31 - 1)
    },
    **{
        f"length {value}": _each("manifest_length", value) for value in (-1, 0, 1, 2**31, 2**63 - 1)
    },
    **{
        f"path {value[:12]!r}": _each("manifest_path", value)
        for value in ("", "/", "..", "file:///etc/passwd", _HUGE, "\0", "gs9://other/x.avro")
    },
    **{f"spec {value}": _each("partition_spec_id", value) for value in (-1, 1, 77, 2**31 - 1)},
    **{f"content {value}": _each("content", value) for value in (-1, 1, 2, 3)},
    **{
        f"sequence {value}": _each("sequence_number", value) for value in (-1, 0, 10_000, 2**63 - 1)
    },
    **{
        f"least sequence {value}": _each("min_sequence_number", value)
        for value in (-1, 10_000, 2**63 - 1)
    },
    "added by": _each("added_snapshot_id", 1),
    "key metadata": _each("key_metadata", b"\1\2"),
    "partitions": _each("partitions", []),
    "partition bounds": _each(
        "partitions",
        [
            {
                "contains_null": True,
                "contains_nan": None,
                "lower_bound": b"\xff" * 99,
                "upper_bound": b"",
            }
        ],
    ),
    "the first again": lambda rows: rows.append(rows[0]),
    "the first twice for the last": lambda rows: rows.__setitem__(-1, rows[0]),
    "no rows": lambda rows: rows.clear(),
    "the first away": lambda rows: rows.__delitem__(0),
    "the last away": lambda rows: rows.__delitem__(-1),
    "the first two exchanged": lambda rows: rows.insert(0, rows.pop()),
    "one path twice": lambda rows: rows[-1].__setitem__("manifest_path", rows[0]["manifest_path"]),
}
# Of lists and manifests: what one of them has twice, which a commit that copies it would write twice.
OWN_EDITS: dict[str, Edit] = {
    "everything twice": lambda rows: rows.extend(list(rows)),
    "the last again": lambda rows: rows.append(rows[-1]),
    "the last first, again": lambda rows: rows.insert(0, rows[-1]),
    "one entry as deleted, too": lambda rows: rows.append({**rows[0], "status": 2}),
    "all existing": lambda rows: _all_have(rows, 0),
    "all added": lambda rows: _all_have(rows, 1),
    "all deleted": lambda rows: _all_have(rows, 2),
    "one path with another spelling": lambda rows: rows.append(_spelled_otherwise(rows[0])),
    "another spelling": lambda rows: rows.__setitem__(0, _spelled_otherwise(rows[0])),
}


def _all_have(rows: list[dict[str, Any]], status: int) -> None:
    for row in rows:
        _each("status", status)([row])


def _spelled_otherwise(row: dict[str, Any]) -> dict[str, Any]:
    if "manifest_path" in row:
        return {**row, "manifest_path": row["manifest_path"].replace("/metadata/", "//metadata/")}
    file = dict(row["data_file"])
    file["file_path"] = file["file_path"].replace("/data/", "//data/")
    return {**row, "data_file": file}


def wrong_records(data: bytes, wrong: Mapping[str, Edit]) -> dict[str, bytes]:
    """Return files with an untrue record each; those that the file's schema cannot hold are left out."""
    found = {}
    for name, edit in wrong.items():
        file = opened(data)
        try:
            edit(file.records)
            found[name] = written(file)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            continue
    return found


def with_length(data: bytes, path: Path, length: int) -> bytes:
    """Return a manifest list that gives a manifest another length."""
    file = opened(data)
    for row in file.records:
        if row["manifest_path"].endswith(path.name):
            row["manifest_length"] = length
    return written(file)


def wrong_schemas(data: bytes) -> dict[str, bytes]:
    """Return files whose header contains another schema than they are written with."""
    return {name: _with_schema(data, text) for name, text in _schemas(opened(data).schema).items()}


def _schemas(schema: Any) -> dict[str, str]:
    def changed(change: Callable[[Any], None]) -> str:
        copy = json.loads(json.dumps(schema))
        change(copy)
        return json.dumps(copy)

    deep: Any = "long"
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    doubling = [
        {
            "name": f"f{level}",
            "field-id": 9000 + level,
            "type": {
                "type": "record",
                "name": f"r{level}",
                "fields": [
                    {"name": side, "type": "long" if level == 0 else f"r{level - 1}"}
                    for side in "ab"
                ],
            },
        }
        for level in range(64)
    ]
    found = {
        "no JSON": "{",
        "null": "null",
        "a number": "1",
        "a text": '"string"',
        "no fields": json.dumps({"type": "record", "name": "r", "fields": []}),
        "recursive": changed(
            lambda one: one["fields"].append(
                {"name": "self", "field-id": 9999, "type": ["null", one["name"]]}
            )
        ),
        "deep": json.dumps(schema)[:-2]
        + ',{"name":"d","field-id":9998,"type":'
        + "[" * 5000
        + "]" * 5000
        + "}]}",
        "doubling": changed(lambda one: one.__setitem__("fields", doubling + one["fields"])),
        "ids twice": changed(
            lambda one: one["fields"][1].update({"field-id": one["fields"][0]["field-id"]})
        ),
        "huge names": changed(lambda one: one.__setitem__("name", _HUGE)),
    }
    for index, field in enumerate(schema["fields"]):
        found[f"without {field['name']}"] = changed(lambda one, at=index: one["fields"].pop(at))  # type: ignore[misc]
        found[f"renamed {field['name']}"] = changed(
            lambda one, at=index: one["fields"][at].__setitem__("name", "other")  # type: ignore[misc]
        )
        for kind in ("string", "null", "double", {"type": "fixed", "name": "fx", "size": 2**31}):
            found[f"{field['name']} as {kind}"] = changed(
                lambda one, at=index, new=kind: one["fields"][at].__setitem__("type", new)  # type: ignore[misc]
            )
        found[f"{field['name']} with no id"] = changed(
            lambda one, at=index: one["fields"][at].pop("field-id", None)  # type: ignore[misc]
        )
    return found


def _with_schema(data: bytes, schema: str) -> bytes:
    head, sync = head_of(data)
    reader = fastavro.reader(io.BytesIO(data))
    entries = {**reader.metadata, "avro.schema": schema}
    parts = [b"Obj\x01", long(len(entries))]
    for key, value in entries.items():
        for text in (key.encode(), value.encode()):
            parts += [long(len(text)), text]
    return b"".join([*parts, b"\0", sync]) + data[len(head) :]


def flipped(data: bytes, chance: random.Random) -> bytes:
    """Return a file with some bits or bytes changed, dropped, repeated or replaced by great numbers."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(found))
        kind = chance.choice(("bit", "bit", "bit", "byte", "drop", "repeat", "great"))
        if kind == "bit":
            found[at] ^= 1 << chance.randrange(8)
        elif kind == "byte":
            found[at] = chance.randrange(256)
        elif kind == "drop":
            del found[at : at + chance.choice((1, 1, 2, 16, 300))]
        elif kind == "repeat":
            found[at:at] = found[at : at + chance.choice((1, 16, 300))]
        else:
            great = chance.choice(
                (b"\xff" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"\x01", b"\x80" * 12)
            )
            found[at : at + len(great)] = great
        if not found:
            break
    return bytes(found)
