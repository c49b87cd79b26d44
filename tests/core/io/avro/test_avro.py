"""Avro files: taken apart, put together, decoded and encoded, judged by fastavro."""

from __future__ import annotations

import io
import itertools
import json
import random
import struct
import subprocess
import sys
import tracemalloc
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import CorruptFileError, InvalidRequestError, RefusedError
from lake.core.io.avro import container as avro_container
from lake.core.io.avro import decode as avro_decode
from lake.core.io.avro.container import (
    Block,
    Cursor,
    encode_long,
    plain_container,
    read_container,
    write_container,
)
from lake.core.io.avro.decode import layout_of
from lake.core.io.avro.encode import encode_records


def decode(*arguments: Any, **named: Any) -> pa.Table:
    """Decode by the decoder of few records and by that of many, which read the same."""
    found: list[pa.Table | CorruptFileError] = []
    for limit in (1 << 20, -1):
        with patch.object(avro_decode, "_FEW_BYTES", limit):
            try:
                found.append(avro_decode.decode(*arguments, **named))
            except CorruptFileError as error:
                found.append(error)
    few, many = found
    if isinstance(few, CorruptFileError):
        assert isinstance(many, CorruptFileError), many
        raise few
    assert few.equals(many), (few, many)
    assert few.schema.equals(many.schema)
    few.validate(full=True)
    return few


PAIR = {"type": "record", "name": "pair", "fields": [
    {"name": "key", "type": "int", "field-id": 11},
    {"name": "value", "type": "bytes", "field-id": 12},
]}  # fmt: skip
FIELDS: dict[str, tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = {
    "int": ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": ("long", pa.int64(), st.integers(-70, 70)),
    "boolean": ("boolean", pa.bool_(), st.booleans()),
    "float": ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": ("double", pa.float64(), st.floats(allow_nan=False)),
    "string": ("string", pa.string(), st.text(max_size=80)),
    "bytes": ("bytes", pa.binary(), st.binary(max_size=80)),
    "fixed": (
        {"type": "fixed", "size": 3, "name": "three"},
        pa.binary(3),
        st.binary(min_size=3, max_size=3),
    ),
    "list": (
        {"type": "array", "items": "long"},
        pa.list_(pa.int64()),
        st.lists(st.integers(-(2**40), 2**40), max_size=5),
    ),
    "pairs": (
        {"type": "array", "items": PAIR},
        pa.list_(pa.struct([("key", pa.int32()), ("value", pa.binary())])),
        st.lists(
            st.fixed_dictionaries({"key": st.integers(0, 300), "value": st.binary(max_size=9)}),
            max_size=4,
        ),
    ),
}


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": name, "type": kind, "field-id": number}
            for number, (name, kind) in enumerate(fields, 1)
        ],
    }


def layout(schema: Any, *records: int) -> Any:
    return layout_of(json.dumps(schema).encode(), frozenset(records), name="x")


@st.composite
def records(draw: st.DrawFn) -> tuple[dict[str, Any], pa.Table]:
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, max_size=6, unique=True))
    rows = draw(st.integers(0, 12))
    fields, columns = [], {}
    for name in names:
        kind, arrow, values = FIELDS[name]
        optional = draw(st.booleans())
        fields.append((name, ["null", kind] if optional else kind))
        drawn = values | st.none() if optional else values
        columns[name] = pa.array(draw(st.lists(drawn, min_size=rows, max_size=rows)), arrow)
    return record(*fields), pa.table(columns)


def fastavro_file(schema: Any, rows: list[dict[str, Any]], **options: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, schema, rows, **options)
    return sink.getvalue()


def renamed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name things by field id, as `decode` does."""

    def item(value: Any) -> Any:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return [{"11": pair["key"], "12": pair["value"]} for pair in value]
        return value

    return [
        {str(number): item(value) for number, value in enumerate(row.values(), 1)} for row in rows
    ]


@settings(deadline=None, max_examples=examples(80))
@given(records(), st.sampled_from(["gzip", "zstd", "snappy", "uncompressed"]))
def test_what_is_encoded_is_what_fastavro_reads(drawn: Any, codec: str) -> None:
    schema, table = drawn
    data = write_container(schema, encode_records(schema, table), metadata={}, codec=codec)
    if codec in {"gzip", "uncompressed"}:
        assert list(fastavro.reader(io.BytesIO(data))) == table.to_pylist()
    container = read_container(data, name="x")
    names = [str(number) for number in range(1, table.num_columns + 1)]
    read = decode(layout(schema), container.blocks, names, name="x")
    assert read.to_pylist() == renamed(table.to_pylist())


@settings(deadline=None, max_examples=examples(60))
@given(records(), st.integers(20, 400))
def test_what_fastavro_writes_is_what_is_decoded(drawn: Any, block_bytes: int) -> None:
    schema, table = drawn
    rows = table.to_pylist()
    data = fastavro_file(schema, rows, codec="deflate", sync_interval=block_bytes)
    container = read_container(data, name="x")
    names = [str(number) for number in range(table.num_columns, 0, -1)]
    read = decode(
        layout_of(container.schema_json, frozenset(), name="x"), container.blocks, names, name="x"
    )
    assert read.select(sorted(names, key=int)).to_pylist() == renamed(rows)


def one_by_one(schema: Any, rows: list[dict[str, Any]], codec: str) -> bytes:
    """Return a file with a block for each record, as PyIceberg writes manifests."""
    with patch.object(avro_container, "_JOINED_BYTES", 0):
        blocks = read_container(fastavro_file(schema, rows, sync_interval=1), name="x").blocks
    assert [block.objects for block in blocks] == [1] * len(rows)
    return write_container(schema, blocks, metadata={}, codec=codec)


@settings(deadline=None, max_examples=examples(80))
@given(
    records(),
    st.sampled_from(["gzip", "zstd", "snappy", "uncompressed"]),
    st.sampled_from([1, 60, 4_000_000]),
)
def test_a_file_with_a_block_for_each_record_is_decoded(
    drawn: Any, codec: str, run_bytes: int
) -> None:
    """Whether or not the blocks are joined, and are decoded at once."""
    schema, table = drawn
    rows = table.to_pylist()
    data = one_by_one(schema, rows, codec)
    if codec in {"gzip", "uncompressed"}:
        assert list(fastavro.reader(io.BytesIO(data))) == rows
    names = [str(number) for number in range(1, table.num_columns + 1)]
    for joined_bytes in (0, run_bytes):
        with (
            patch.object(avro_container, "_JOINED_BYTES", joined_bytes),
            patch.object(avro_decode, "_RUN_BYTES", run_bytes),
        ):
            read = decode(layout(schema), read_container(data, name="x").blocks, names, name="x")
        assert read.to_pylist() == renamed(rows)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_is_encoded_as_fastavro_does(value: int) -> None:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, "long", value)
    assert encode_long(value) == sink.getvalue()


def test_many_rows_are_cut_into_blocks() -> None:
    schema = record(("n", "long"), ("s", "string"))
    table = pa.table({"n": range(40_000), "s": ["x" * 300] * 40_000})
    blocks = list(encode_records(schema, table))
    assert sum(block.objects for block in blocks) == 40_000
    assert all(block.objects <= 16_384 and len(block.data) <= 4 * 2**20 for block in blocks)
    data = write_container(schema, blocks, metadata={}, codec="uncompressed")
    assert [row["n"] for row in fastavro.reader(io.BytesIO(data))] == list(range(40_000))


def test_a_record_larger_than_a_block_stands_alone() -> None:
    schema = record(("s", "string"))
    table = pa.table({"s": ["a", "b" * 5_000_000, "c"]})
    assert [block.objects for block in encode_records(schema, table)] == [1, 1, 1]


def test_a_required_field_without_a_value_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="n: 1 values are missing"):
        list(encode_records(record(("n", "long")), pa.table({"n": pa.array([1, None])})))


def test_an_unknown_codec_is_refused_both_ways() -> None:
    with pytest.raises(InvalidRequestError, match="lzma"):
        write_container(record(("n", "long")), [], metadata={}, codec="lzma")
    data = fastavro_file(record(("n", "long")), [{"n": 1}], codec="xz")
    with pytest.raises(RefusedError, match="codec xz"):
        read_container(data, name="x")
    with pytest.raises(CorruptFileError, match="unknown Avro codec 'x~'"):
        read_container(data.replace(b"\x04xz", b"\x04x~"), name="x")


def sample() -> bytes:
    return fastavro_file(
        record(("n", "long"), ("s", "string")),
        [{"n": n, "s": "text" * n} for n in range(30)],
        sync_interval=200,
    )


def test_a_file_cut_anywhere_but_at_a_blocks_edge_is_refused() -> None:
    data = sample()
    whole = read_container(data, name="x")
    shorter = 0
    for length in range(len(data)):
        try:
            part = read_container(data[:length], name="x")
        except CorruptFileError:
            continue
        shorter += 1
        assert part.objects < whole.objects
        (all_bytes,) = (block.data for block in whole.blocks)
        assert bytes(all_bytes).startswith(b"".join(block.data for block in part.blocks))
    # At a block's edge the cut file is a valid shorter one: only the level above knows better.
    assert shorter == len(list(fastavro.block_reader(io.BytesIO(data))))


def test_a_wrong_byte_is_reported_or_changes_nothing() -> None:
    schema = record(("number", "long"), ("name", "string"))
    data = write_container(
        schema,
        encode_records(schema, pa.table({"number": [1, 2, 3], "name": ["a", "b", "c"]}), 30),
        metadata={"mark": "m"},
    )
    whole = read_container(data, name="x")
    reported = 0
    for at, bit in itertools.product(range(len(data)), (0, 4, 7)):
        wrong = bytearray(data)
        wrong[at] ^= 1 << bit
        try:
            found = read_container(bytes(wrong), name="x")
        except CorruptFileError:
            reported += 1
            continue
        # The wrong byte is in a field that protects the others.
        assert found.blocks == whole.blocks
        assert len(found.metadata.items() ^ whole.metadata.items()) == 2

    assert reported > 2.5 * len(data)


@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 18, b"\x02\x02a" + b"x" * 16])
def test_bytes_behind_the_last_block_are_refused(tail: bytes) -> None:
    with pytest.raises(CorruptFileError):
        read_container(sample() + tail, name="x")


def test_a_file_of_another_format_is_not_an_avro_file() -> None:
    for data in (b"", b"PAR1", b"Obj\x02" + b"\x00" * 40):
        with pytest.raises(CorruptFileError):
            read_container(data, name="x")


def test_a_header_without_a_schema_is_refused() -> None:
    with pytest.raises(CorruptFileError, match=r"avro\.schema"):
        read_container(b"Obj\x01\x00" + b"s" * 16, name="x")


def test_a_bomb_stops_at_the_limit() -> None:
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = machine.compress(bytes(50_000_000)) + machine.flush()
    assert len(packed) < 100_000
    data = write_container(record(("n", "long")), [Block(1, b"\x00")], metadata={}, codec="gzip")
    sync = data[-16:]
    header = data[: data.index(sync) + 16]
    bomb = header + encode_long(1) + encode_long(len(packed)) + packed + sync
    with pytest.raises(CorruptFileError, match="more bytes"):
        read_container(bomb, name="x", max_bytes=1_000_000)


def test_many_small_bombs_stop_at_the_limit_of_all_blocks() -> None:
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packed.compress(bytes(20_000)) + packed.flush()
    header, sync = empty_file()
    block = encode_long(1) + encode_long(len(bomb)) + bomb + sync

    assert read_container(header + block * 50, name="x", max_bytes=1_000_000).size == 1_000_000
    with pytest.raises(CorruptFileError, match="more bytes"):
        read_container(header + block * 51, name="x", max_bytes=1_000_000)


@pytest.mark.parametrize("size", [100, 40_000])
def test_a_deflate_stream_that_is_cut_short_is_refused_in_small_and_large_blocks(size: int) -> None:
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = machine.compress(random.Random(1).randbytes(size)) + machine.flush()
    header, sync = empty_file()
    whole, cut = (
        header + encode_long(1) + encode_long(len(body)) + body + sync
        for body in (packed, packed[:-1])
    )

    assert read_container(whole, name="x").size == size
    with pytest.raises(CorruptFileError, match="does not decompress"):
        read_container(cut, name="x")


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1_100, 5_000)), min_size=1, max_size=8))
def test_blocks_that_inflate_to_any_multiple_of_their_size_are_read_in_any_order(
    blocks: list[tuple[int, int]],
) -> None:
    data = [random.Random(size).randbytes(size) * copies for copies, size in blocks]
    container = write_container({"type": "bytes"}, [Block(1, one) for one in data], metadata={})
    found = read_container(container, name="f")
    assert b"".join(bytes(block.data) for block in found.blocks) == b"".join(data)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-9000, 9000), st.binary(max_size=3))
def test_an_integer_is_read_as_it_was_written_whatever_follows_it(value: int, rest: bytes) -> None:
    cursor = Cursor(encode_long(value) + rest, "x")

    assert (cursor.long(), bytes(cursor.take(len(rest)))) == (value, rest)
    assert cursor.at_end


LONG = b"\xff" * 10 + b"\x01"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (encode_long(-1) + encode_long(3) + b"\x01\x02\x03{sync}", "a block of -1 objects"),
        (encode_long(1) + encode_long(-3) + b"{sync}", "damaged at byte"),
        (encode_long(1) + encode_long(2**60) + b"{sync}", "damaged at byte"),
        (encode_long(1) + LONG + b"{sync}", "more than 10 bytes"),
        (LONG + encode_long(0) + b"{sync}", "more than 10 bytes"),
        (encode_long(1) + encode_long(1) + b"\x03" + bytes(16), "sync marker"),
        (encode_long(1) + b"\xff", "damaged at byte"),
    ],
)
def test_a_wrong_block_behind_many_small_ones_is_refused(wrong: bytes, why: str) -> None:
    header, sync = empty_file()
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    empty = packed.compress(b"\x00") + packed.flush()
    small = encode_long(1) + encode_long(len(empty)) + empty + sync
    last = wrong.replace(b"{sync}", sync)
    tail = b"" if wrong.endswith(b"\xff") else small

    assert read_container(header + small * 200, name="x").objects == 200
    with pytest.raises(CorruptFileError, match=why):
        read_container(header + small * 200 + last + tail, name="x")


def test_a_damaged_file_of_small_blocks_holds_up_no_other_thread() -> None:
    schema = record(("n", "long"), ("s", "string"))
    rows = [{"n": n, "s": f"text {n}"} for n in range(300)]
    whole = one_by_one(schema, rows, "gzip")
    damaged = whole[:-20] + b"\xff" * 4 + whole[-16:]

    def objects(data: bytes) -> int:
        try:
            return read_container(data, name="x").objects
        except CorruptFileError:
            return -1

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(objects, [whole, damaged] * 20))

    assert found == [300, -1] * 20


def empty_file() -> tuple[bytes, bytes]:
    """Return a file without blocks, and its sync marker."""
    data = fastavro_file(record(("n", "long")), [], codec="deflate")
    return data, data[-16:]


def test_more_objects_than_allowed_are_refused() -> None:
    with pytest.raises(CorruptFileError, match="more than 29 objects"):
        read_container(sample(), name="x", max_objects=29)


def test_a_block_too_small_for_its_objects_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(CorruptFileError, match="too small"):
        decode(layout(record(("n", "long"))), [Block(10**12, b"\x00")], ["1"], name="x")


def test_nulls_of_a_wide_record_that_nothing_reads_take_no_memory() -> None:
    wide = {"type": "record", "name": "wide", "fields": [
        {"name": f"f{number}", "type": "long", "field-id": number} for number in range(100, 1100)
    ]}  # fmt: skip
    # Such a record is one byte, and would be a thousand values.
    block = Block(4096, b"\x02\x00" * 4096)
    tracemalloc.start()
    read = decode(layout(record(("n", "long"), ("wide", ["null", wide]))), [block], ["1"], name="x")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert read["1"].to_pylist() == [1] * 4096
    assert most < 8 * 1024 * 1024


@pytest.mark.parametrize(
    "blocks",
    [
        [Block(2, b"\x02\x04ab" * 3)],
        [Block(3, b"\x02\x04ab" * 3 + b"\x03"), Block(3, b"\x02\x04ab" * 3)],
        [Block(3, b"\x02\x04ab" * 3 + b"\x7f" * 9)],
        [Block(4, b"\x02\x04ab" * 3)],
        [Block(3, b"\x02\x04ab\x02\x04ab\x02\x04a")],
    ],
    ids=["one left", "a byte left in the middle", "rubbish left", "one missing", "a byte missing"],
)
def test_blocks_that_hold_other_records_than_they_say_are_refused(blocks: Any) -> None:
    # The decoder alone would never return from some of these.
    with pytest.raises(CorruptFileError):
        decode(
            layout(record(("n", "long"), ("s", "string"))),
            blocks,
            ["1", "2"],
            name="x",
        )


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_a_damaged_file_is_refused_or_read_and_never_hurts(data: st.DataObject) -> None:
    original = write_container(
        record(("n", ["null", "long"]), ("p", {"type": "array", "items": PAIR}), ("s", "string")),
        encode_records(
            record(
                ("n", ["null", "long"]), ("p", {"type": "array", "items": PAIR}), ("s", "string")
            ),
            pa.table(
                {
                    "n": pa.array([1, None, 2**40] * 5),
                    "p": pa.array(
                        [[{"key": 7, "value": b"12345678"}] * 3] * 15, FIELDS["pairs"][1]
                    ),
                    "s": ["some text"] * 15,
                }
            ),
        ),
        metadata={},
        codec=data.draw(st.sampled_from(["uncompressed", "gzip", "snappy", "zstd"])),
    )
    damaged = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(damaged) - 1))
        damaged[position] = data.draw(
            st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)
        )
    try:
        container = read_container(bytes(damaged), name="x")
        found = layout_of(container.schema_json, frozenset(), name="x")
        table = decode(found, container.blocks, sorted(found.columns), name="x")
    except CorruptFileError:
        return
    table.validate(full=True)
    assert table.num_rows == container.objects


def test_optional_records_and_lists_of_them_are_read_alike_whichever_way_round_the_union_is() -> (
    None
):
    deep = {"type": "record", "name": "deep", "fields": [
        {"name": "flag", "type": ["boolean", "null"], "field-id": 21},
        {"name": "pair", "type": ["null", PAIR], "field-id": 22},
        {"name": "numbers", "type": {"type": "array", "items": ["long", "null"]}, "field-id": 23},
        {"name": "real", "type": "float", "field-id": 24},
    ]}  # fmt: skip
    schema = record(
        ("deep", ["null", deep]), ("many", [{"type": "array", "items": "deep"}, "null"])
    )
    one = {"flag": None, "pair": {"key": 1, "value": b"x"}, "numbers": [5, None], "real": 0.5}
    two = {"flag": True, "pair": None, "numbers": [], "real": -1.0}
    rows = [
        {"deep": one, "many": [two, one]},
        {"deep": None, "many": None},
        {"deep": two, "many": []},
    ]
    blocks = read_container(fastavro_file(schema, rows), name="x").blocks

    read = decode(layout(schema), blocks, ["1", "2"], name="x").to_pylist()

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(item) for item in value]
        if not isinstance(value, dict):
            return value
        start = 11 if "key" in value else 21
        return {str(number): named(item) for number, item in enumerate(value.values(), start)}

    assert read == [{"1": named(row["deep"]), "2": named(row["many"])} for row in rows]


def test_nested_records_become_columns_named_by_their_path_of_ids() -> None:
    inner = {"type": "record", "name": "inner", "fields": [
        {"name": "x", "type": "int", "field-id": 5},
        {"name": "empty", "type": {"type": "record", "name": "e", "fields": []}, "field-id": 6},
        {"name": "y", "type": ["null", "string"], "field-id": 7},
    ]}  # fmt: skip
    schema = record(("a", "long"), ("b", inner), ("c", "boolean"))
    rows = [
        {"a": n, "b": {"x": -n, "empty": {}, "y": None if n % 2 else "t"}, "c": True}
        for n in range(4)
    ]
    container = read_container(fastavro_file(schema, rows), name="x")
    flat = layout(schema, 2, 6)
    assert flat.columns == {"1", "2.5", "2.7", "3"}
    read = decode(flat, container.blocks, ["2.7", "2.5"], name="x")
    assert read.to_pylist() == [{"2.7": row["b"]["y"], "2.5": row["b"]["x"]} for row in rows]


def test_named_types_are_followed_and_unknown_fields_skipped() -> None:
    three = {"type": "fixed", "size": 3, "name": "three", "namespace": "of.bytes"}
    schema = record(("a", three), ("b", ["null", "of.bytes.three"]), ("c", "of.bytes.three"))
    schema["fields"].append({"name": "no id", "type": {"type": "map", "values": "double"}})
    schema["fields"].append({"name": "last", "type": {"type": "string"}, "field-id": 9})
    rows = [{"a": b"abc", "b": None, "c": b"xyz", "no_id": {"k": 1.5}, "last": "end"}]
    schema["fields"][3]["name"] = "no_id"
    container = read_container(fastavro_file(schema, rows), name="x")
    read = decode(layout(schema), container.blocks, ["9", "3", "2"], name="x")
    assert read.to_pylist() == [{"9": "end", "3": b"xyz", "2": None}]


def test_logical_types_are_left_to_the_reader() -> None:
    stamp = {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": False}
    schema = record(("t", stamp), ("d", ["null", {"type": "int", "logicalType": "date"}]))
    blocks = [Block(1, encode_long(-5) + b"\x02" + encode_long(-7))]
    assert decode(layout(schema), blocks, ["1", "2"], name="x").to_pylist() == [{"1": -5, "2": -7}]


def doubling(levels: int) -> Any:
    kind: Any = "long"
    for level in range(levels):
        kind = {"type": "record", "name": f"r{level}", "fields": [
            {"name": "a", "type": kind, "field-id": 1},
            {"name": "b", "type": f"r{level - 1}" if level else "long", "field-id": 2},
        ]}  # fmt: skip
    return record(("top", kind))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("long", "a record is expected"),
        ({"type": "record", "fields": 3}, "a record is expected"),
        (record(("a", ["int", "string"])), "a union"),
        (record(("a", ["null", "null"])), "a union"),
        (record(("a", ["null", "int", "long"])), "a union"),
        (record(("a", "mystery")), "unknown type"),
        (record(("a", {"type": "enum", "symbols": ["A"], "name": "e"})), "unknown type"),
        (record(("a", {"type": "array", "items": "null"})), "a list of nothing"),
        (
            record(("a", {"type": "map", "values": {"type": "record", "name": "e", "fields": []}})),
            "a list of nothing",
        ),
        (record(("a", {"type": "fixed", "size": -1, "name": "f"})), "a fixed type"),
        (record(("a", {"type": "fixed", "size": 10**9, "name": "f"})), "a fixed type"),
        ({"type": "record", "name": "r", "fields": [{"name": "a"}]}, "a field has no type"),
        (record(("a", ["null", ["null", "int"]])), "a union in a union"),
        (doubling(40), "the schema is too large"),
    ],
)  # fmt: skip
def test_a_schema_that_iceberg_never_writes_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(CorruptFileError, match=why):
        layout(schema)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"type": ' * 100_000, b"[" * 100_000])
def test_a_schema_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(CorruptFileError, match="no usable Avro schema"):
        layout_of(text, frozenset(), name="x")


def test_two_fields_with_one_id_are_refused() -> None:
    schema = record(("a", "int"), ("b", "int"))
    schema["fields"][1]["field-id"] = 1
    with pytest.raises(CorruptFileError, match="two fields with id 1"):
        layout(schema)


def test_a_plain_container_is_what_fastavro_reads() -> None:
    schema = record(("n", "double"))
    blocks = [struct.pack("<d", 1.5), struct.pack("<dd", 2.5, 3.5)]
    data = b"".join(plain_container(json.dumps(schema), 3, blocks))
    assert [row["n"] for row in fastavro.reader(io.BytesIO(data))] == [1.5, 2.5, 3.5]


def test_equal_input_gives_equal_bytes() -> None:
    schema = record(("n", "long"))
    made = {
        write_container(schema, [Block(1, b"\x02")], metadata={"k": "v"}, codec="gzip")
        for _ in range(2)
    }
    assert len(made) == 1


def test_processes_that_a_command_starts_have_not_the_settings_of_its_decoder() -> None:
    """PyArrow in Spark's workers would take them for its own allocator."""
    code = """
import os
from lake.core.io.avro.decode import _decoder
before = dict(os.environ)
assert _decoder() is _decoder()
assert dict(os.environ) == before
"""
    subprocess.run([sys.executable, "-c", code], check=True)
