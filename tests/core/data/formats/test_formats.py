"""ORC and Avro files hold what was written to them, piece by piece, and say so where they do not."""

from __future__ import annotations

import io
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from support.tables.random_rows import (
    EVERY_TYPE,
    batches,
    fitting,
    read,
    read_settings,
    schemas,
    shown,
    write,
    write_settings,
)
from support.tiers import examples

from lake.core.base.errors import (
    BadInputError,
    CorruptFileError,
    InvalidRequestError,
    LakeError,
    RefusedError,
)
from lake.core.data.rows.reader import FileSlice, read_positions
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema

FORMATS = ["orc", "avro"]
CODECS = {
    "orc": ["zlib", "zstd", "snappy", "lz4", "none"],
    "avro": ["gzip", "zstd", "snappy", "uncompressed"],
}
# Small pieces, so that a few thousand rows have several.
SMALL = {"write__orc__stripe_size_bytes": "32768"}
IDS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
)


def numbered(rows: int, first: int = 0) -> pa.RecordBatch:
    """Return rows that do not compress, numbered from `first`."""
    noise = np.random.default_rng(first).bytes(rows * 40).hex()
    texts = [noise[at * 80 : at * 80 + 80] for at in range(rows)]
    ids = pa.array(np.arange(first, first + rows))
    return pa.RecordBatch.from_arrays([ids, pa.array(texts)], schema=arrow_schema(IDS))


def many(folder: Path, kind: str, rows: int = 6000) -> FileSlice:
    """Return a file of several stripes or blocks, whose ids are its rows' positions."""
    parts = [numbered(1500, first) for first in range(0, rows, 1500)]
    target = write_settings(folder, IDS, write__format__default=kind, **SMALL)
    (file,) = write(replace(target, target_bytes=2**40), *parts)
    return FileSlice.of(file)


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=examples(12))
@given(st.data())
def test_nested_rows_come_back_as_they_were(kind: str, data: Any) -> None:
    schema = data.draw(schemas())
    drawn = data.draw(st.lists(batches(schema), min_size=1, max_size=2))
    rows = [fitting(kind, batch) for batch in drawn]
    codec = data.draw(st.sampled_from(CODECS[kind]))
    options = {"write.format.default": kind, f"write.{kind}.compression-codec": codec}
    with tempfile.TemporaryDirectory() as folder:
        target = replace(write_settings(Path(folder), schema), properties=options)
        files = write(target, *rows)
        found = read(read_settings(schema), *files)

    assert {Path(file.path).suffix for file in files} == {f".{kind}"}
    assert sum(file.record_count for file in files) == found.num_rows
    assert found.schema.equals(arrow_schema(schema), check_metadata=True)
    assert shown(found.to_pylist()) == shown(pa.Table.from_batches(rows).to_pylist())


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=examples(6))
@given(st.data())
def test_every_type_comes_back_to_the_bit(kind: str, data: Any) -> None:
    schema = Schema(
        *(
            NestedField(number, f"c{number}", item, required=False)
            for number, item in enumerate(EVERY_TYPE, 1)
        )
    )
    rows = fitting(kind, data.draw(batches(schema)))
    with tempfile.TemporaryDirectory() as folder:
        target = write_settings(Path(folder), schema, write__format__default=kind)
        found = read(read_settings(schema), *write(target, rows))

    for column, item in zip(rows.columns, found.combine_chunks().columns, strict=True):
        # Integers hold what Python's own times cannot.
        number = pa.int64() if pa.types.is_timestamp(column.type) else column.type
        assert shown(item.chunk(0).view(number).to_pylist()) == shown(
            column.view(number).to_pylist()
        )


@pytest.mark.parametrize("kind", FORMATS)
def test_many_nested_rows_come_back_from_whatever_part_of_a_batch(
    kind: str, tmp_path: Path
) -> None:
    inner = StructType(
        NestedField(3, "texts", ListType(4, StringType(), element_required=False), required=False),
        NestedField(5, "deep", StructType(NestedField(6, "n", LongType())), required=False),
    )
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "part", inner, required=False),
        NestedField(7, "map", MapType(8, IntegerType(), 9, inner, value_required=False)),
    )
    rows = [
        {
            "id": number,
            "part": None if number % 3 == 0 else nested(number),
            "map": None if number % 4 == 0 else [(n, nested(n)) for n in range(number % 5)],
        }
        for number in range(6000)
    ]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(schema))
    target = write_settings(tmp_path, schema, write__format__default=kind)
    found = read(read_settings(schema), *write(target, batch.slice(5, 7), batch.slice(1777)))

    assert shown(found.to_pylist()) == shown(rows[5:12] + rows[1777:])


def nested(number: int) -> dict[str, Any]:
    return {
        "texts": None if number % 5 == 0 else [str(number), None][: number % 3],
        "deep": None if number % 2 else {"n": number},
    }


@settings(deadline=None, max_examples=examples(6))
@given(st.data())
def test_fastavro_reads_the_same_nested_rows(data: Any) -> None:
    schema = data.draw(schemas())
    rows = data.draw(batches(schema))
    with tempfile.TemporaryDirectory() as folder:
        target = write_settings(Path(folder), schema, write__format__default="avro")
        (file,) = write(target, rows)
        with open(file.path.removeprefix("file://"), "rb") as source:
            found = list(fastavro.reader(source))

    assert len(found) == rows.num_rows
    # What fastavro makes of times and decimals is its own; the shape and the NULLs are not.
    assert [outline(row) for row in found] == [outline(row) for row in maps_as_dicts(rows, schema)]


def outline(value: Any) -> Any:
    """Return a value's shape: which parts it has and which of them are NULL."""
    if isinstance(value, dict):
        return {key: outline(item) for key, item in value.items()}
    if isinstance(value, list):
        return [outline(item) for item in value]
    return value is None


def maps_as_dicts(rows: pa.RecordBatch, schema: Schema) -> list[Any]:
    """Return rows whose maps are as Avro has them: objects by text, else lists of pairs."""
    return [
        {item.name: as_avro(row[item.name], item.field_type) for item in schema.fields}
        for row in rows.to_pylist()
    ]


def as_avro(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {item.name: as_avro(value[item.name], item.field_type) for item in kind.fields}
    if isinstance(kind, ListType):
        return [as_avro(item, kind.element_type) for item in value]
    if isinstance(kind, MapType):
        pairs = [(key, as_avro(item, kind.value_type)) for key, item in value]
        if isinstance(kind.key_type, StringType):
            return dict(pairs)
        return [{"key": key, "value": item} for key, item in pairs]
    return value


# Pieces of a file


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=examples(6))
@given(cuts=st.lists(st.floats(0, 1), max_size=5))
def test_slices_by_bytes_hold_every_row_once(kind: str, cuts: Sequence[float]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = many(Path(folder), kind)
        ends = sorted({0, *(int(cut * file.size_bytes) for cut in cuts), file.size_bytes})
        found = [
            ids
            for start, end in itertools.pairwise(ends)
            for ids in positions(replace(file, start=start, length=end - start))
        ]

    assert found == list(range(6000))


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=examples(6))
@given(cuts=st.lists(st.integers(0, 6000), max_size=5))
def test_slices_by_rows_hold_every_row_once(kind: str, cuts: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = many(Path(folder), kind)
        ends = sorted({0, *cuts, 6000})
        found = [
            ids
            for start, end in itertools.pairwise(ends)
            for ids in positions(replace(file, skip_rows=start, take_rows=end - start))
        ]

    assert found == list(range(6000))


def positions(file: FileSlice) -> list[int]:
    """Return a slice's ids, which must be the rows' positions."""
    found: list[int] = []
    plain = replace(read_settings(IDS), batch_bytes=64 * 1024)
    for at, batch in read_positions(Storage(), file, plain):
        assert batch.column(0).to_pylist() == at.tolist()
        found += at.tolist()
    return found


@pytest.mark.parametrize("kind", FORMATS)
def test_files_have_pieces_and_record_their_offsets(kind: str, tmp_path: Path) -> None:
    file = many(tmp_path, kind)
    target = write_settings(tmp_path, IDS, write__format__default=kind, **SMALL)
    (entry,) = write(replace(target, target_bytes=2**40), numbered(3000))

    path = file.path.removeprefix("file://")
    if kind == "orc":
        assert orc.ORCFile(path).nstripes > 2
        assert len(entry.split_offsets) == orc.ORCFile(entry.path.removeprefix("file://")).nstripes
        assert entry.split_offsets[0] == 3
        assert list(entry.split_offsets) == sorted(set(entry.split_offsets))
    else:
        with open(path, "rb") as source:
            assert len(list(fastavro.block_reader(source))) > 2
        assert entry.split_offsets == ()
    assert entry.format == kind.upper()


@pytest.mark.parametrize("kind", FORMATS)
def test_files_end_near_the_target_size(kind: str, tmp_path: Path) -> None:
    target = write_settings(
        tmp_path, IDS, target_bytes=200_000, write__format__default=kind, **SMALL
    )
    files = write(target, *(numbered(2000, first) for first in range(0, 20_000, 2000)))

    assert sum(file.record_count for file in files) == 20_000
    assert all(100_000 < file.size_bytes < 400_000 for file in files[:-1])
    assert len(files) > 2


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_without_any_wanted_column_has_as_many_rows(kind: str, tmp_path: Path) -> None:
    file = many(tmp_path, kind)
    added = Schema(NestedField(9, "later", LongType(), required=False, initial_default=7))
    cut = replace(file, skip_rows=1000, take_rows=3000)

    assert read(read_settings(added), cut).column(0).to_pylist() == [7] * 3000


# What is not as promised


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("rows", [5999, 6001, 0])
def test_another_number_of_rows_than_promised_is_an_error(
    kind: str, rows: int, tmp_path: Path
) -> None:
    file = replace(many(tmp_path, kind), record_count=rows)

    with pytest.raises(CorruptFileError, match="rows, but the table's metadata says"):
        read(read_settings(IDS), file)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_anywhere_is_refused(kind: str, tmp_path: Path) -> None:
    file = many(tmp_path, kind, 1500)
    path = Path(file.path.removeprefix("file://"))
    whole = path.read_bytes()
    for size in [*range(0, len(whole), len(whole) // 40), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError):
            read(read_settings(IDS), file)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_mutated_file_is_refused_or_has_as_many_rows(kind: str, tmp_path: Path) -> None:
    file = many(tmp_path, kind, 1500)
    path = Path(file.path.removeprefix("file://"))
    whole = path.read_bytes()
    refused = 0
    for seed in range(60):
        path.write_bytes(mutated(whole, seed))
        try:
            assert read(read_settings(IDS), file).num_rows == 1500
        except CorruptFileError:
            refused += 1
    assert refused > 30


def mutated(data: bytes, seed: int) -> bytes:
    """Return bytes of which some are others, are gone or came in between."""
    chance = np.random.default_rng(seed)
    changed = bytearray(data)
    # Every other time near the end or the beginning, which contain the structure.
    reach = len(data) if seed % 2 else 600
    for _ in range(int(chance.integers(1, 6))):
        at = int(chance.integers(reach))
        at = at if seed % 4 == 1 else len(changed) - 1 - min(at, len(changed) - 1)
        kind = chance.integers(4)
        if kind == 0:
            del changed[at : at + int(chance.integers(1, 40))]
        elif kind == 1:
            changed[at:at] = chance.bytes(int(chance.integers(1, 40)))
        else:
            changed[min(at, len(changed) - 1)] = int(chance.integers(256))
    return bytes(changed)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_null_in_a_required_column_is_not_written(kind: str, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "a", IntegerType(), required=True))
    rows = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int32())], ["a"])

    with pytest.raises(BadInputError, match="do not match"):
        write(write_settings(tmp_path, schema, write__format__default=kind), rows)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_unknown_codec_is_refused(kind: str, tmp_path: Path) -> None:
    properties = {"write.format.default": kind, f"write.{kind}.compression-codec": "best"}
    target = replace(write_settings(tmp_path, IDS), properties=properties)

    with pytest.raises(InvalidRequestError, match="is 'best'; it must be one of"):
        write(target, numbered(1))


@pytest.mark.parametrize(
    ("micros", "said"),
    [
        (-1, "before 1970"),
        (-86_400_000_001, "before 1970"),
        (253_402_300_799_000_000, "out of range"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_times_that_readers_of_orc_would_get_wrong_are_not_written(
    nested: bool, micros: int, said: str, tmp_path: Path
) -> None:
    kind = ListType(2, TimestampType()) if nested else TimestampType()
    schema = Schema(NestedField(1, "at", kind, required=False))
    times = pa.array([0, None, micros, -86_400_000_000], pa.timestamp("us"))
    column = pa.ListArray.from_arrays([0, 1, 4], times) if nested else times
    rows = pa.RecordBatch.from_arrays([column], ["at"])

    with pytest.raises(RefusedError, match=said):
        write(write_settings(tmp_path, schema, write__format__default="orc"), rows)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_times_that_pyarrow_would_read_wrong_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    far = pa.array([0, 253_402_300_799_000_000], pa.timestamp("us"))
    orc.write_table(pa.table({"at": far}), str(path))
    schema = Schema(NestedField(1, "at", TimestampType(), required=False))
    file = FileSlice(path=str(path), format="ORC", size_bytes=9, record_count=2, spec_id=0)

    with pytest.raises(RefusedError, match="after 2261"):
        read(read_settings(schema), file)


# Files of others


def test_avro_files_without_ids_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.avro"
    fields = [
        {"name": "text", "type": ["string", "null"]},
        {"name": "other", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "id", "type": "int"},
    ]
    rows = [{"text": None, "other": "B", "id": 3}, {"text": "x", "other": "A", "id": 4}]
    with path.open("wb") as sink:
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, rows)
    file = FileSlice(
        path=str(path), format="AVRO", size_bytes=path.stat().st_size, record_count=2, spec_id=0
    )

    found = read(read_settings(IDS), file).to_pylist()
    assert found == [{"id": 3, "text": None}, {"id": 4, "text": "x"}]

    mapping = '[{"field-id": 2, "names": ["other"]}, {"field-id": 1, "names": ["id"]}]'
    mapped = read(replace(read_settings(IDS), name_mapping=mapping), file).to_pylist()
    assert mapped == [{"id": 3, "text": "B"}, {"id": 4, "text": "A"}]


def test_orc_files_without_ids_are_read_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.orc"
    orc.write_table(pa.table({"text": ["a", None], "id": pa.array([1, 2], pa.int16())}), str(path))
    file = FileSlice(
        path=str(path), format="ORC", size_bytes=path.stat().st_size, record_count=2, spec_id=0
    )

    found = read(read_settings(IDS), file).to_pylist()
    assert found == [{"id": 1, "text": "a"}, {"id": 2, "text": None}]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ('"string"', RefusedError),
        ("[]", RefusedError),
        ("{", CorruptFileError),
        ('{"type":' * 5000, CorruptFileError),
        *(
            (f'{{"type": "record", "name": "r", "fields": [{field}]}}', expected)
            for field, expected in (
                ('{"name": "a", "type": "r"}', RefusedError),
                ('{"name": "a", "type": "s"}', CorruptFileError),
                ('{"name": "a", "type": ["int", "long"]}', RefusedError),
                ('{"type": "int"}', CorruptFileError),
                ('{"name": "a", "type": {"type": "array", "items": "null"}}', RefusedError),
                (
                    '{"name": "a", "type": {"type": "fixed", "name": "f", "size": 1000000000}}',
                    CorruptFileError,
                ),
            )
        ),
    ],
    ids=range(10),
)
def test_a_schema_that_no_table_has_is_refused(
    schema: str, expected: type[LakeError], tmp_path: Path
) -> None:
    sink = io.BytesIO()
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": []}, [])
    plain = sink.getvalue()
    start = plain.index(b"avro.schema") + len(b"avro.schema")
    length = len(schema) << 1
    varint = bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    path = tmp_path / "x.avro"
    # The header may go on behind its schema or not: the schema is looked at before any block.
    path.write_bytes(
        plain[:start] + bytes([*varint, length]) + schema.encode() + b"\x00" + bytes(16)
    )
    file = FileSlice(path=str(path), format="AVRO", size_bytes=1, record_count=0, spec_id=0)

    with pytest.raises(expected):
        read(read_settings(IDS), file)
