"""Files that lake writes: every type, read back by lake and by PyIceberg; sizes, names, failures."""

from __future__ import annotations

import itertools
import re
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from support.tables.iceberg_tables import (
    FixedClock,
    make_table,
    open_session,
    pyiceberg_table,
)
from support.tables.random_rows import (
    EVERY_TYPE,
    batch_of,
    batches,
    read,
    read_settings,
    schemas,
    shown,
    write,
    write_settings,
)
from support.tiers import examples

from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.data.rows import writer as writing
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

IDS = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "text", StringType(), required=False),
)
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "id_bucket"))
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))


def numbered(rows: int, first: int = 0, text: str | None = None) -> pa.RecordBatch:
    """Return rows numbered from `first`; texts do not compress unless given."""
    ids = pa.array(np.arange(first, first + rows))
    noise = np.random.default_rng(first).bytes(rows * 16).hex()
    texts = [noise[at * 32 : at * 32 + 32] if text is None else text for at in range(rows)]
    return pa.RecordBatch.from_arrays([ids, pa.array(texts)], schema=arrow_schema(IDS))


def below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# Every type


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_nested_rows_come_back_as_they_were(data: Any) -> None:
    schema = data.draw(schemas())
    rows = data.draw(st.lists(batches(schema), min_size=1, max_size=2))
    with tempfile.TemporaryDirectory() as folder:
        files = write(write_settings(Path(folder), schema), *rows)
        found = read(read_settings(schema), *files)

    assert sum(file.record_count for file in files) == found.num_rows
    assert found.schema.equals(arrow_schema(schema), check_metadata=True)
    assert shown(found.to_pylist()) == shown(pa.Table.from_batches(rows).to_pylist())


@settings(deadline=None, max_examples=examples(30))
@given(st.data())
def test_every_type_comes_back_to_the_bit(data: Any) -> None:
    schema = Schema(
        *(
            NestedField(number, f"c{number}", kind, required=False)
            for number, kind in enumerate(EVERY_TYPE, 1)
        )
    )
    rows = data.draw(batches(schema))
    with tempfile.TemporaryDirectory() as folder:
        found = read(read_settings(schema), *write(write_settings(Path(folder), schema), rows))

    for column, item in zip(rows.columns, found.combine_chunks().columns, strict=True):
        # Integers hold what Python's own times cannot.
        number = pa.int64() if pa.types.is_timestamp(column.type) else column.type
        assert shown(item.chunk(0).view(number).to_pylist()) == shown(
            column.view(number).to_pylist()
        )


@settings(deadline=None, max_examples=examples(8))
@given(st.data())
def test_pyiceberg_reads_the_same_nested_rows(data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder)
        # PyIceberg numbers the columns of a new table itself.
        schema = make_table(warehouse, schema=data.draw(schemas())).schema()
        rows = data.draw(batches(schema))
        session = open_session(warehouse, FixedClock())
        table = session.table("db.t")
        operation = session.ids.uuid()
        files = write(WriteSettings.of(table, operation), rows)
        commit_snapshot(
            session, table, AppendFiles(added=files), CommitRequest(operation_id=operation)
        )
        found = pyiceberg_table(warehouse).scan().to_arrow()
        session.close()

    kind = schema.as_struct()
    assert shown(without_null_lists(found.to_pylist(), kind)) == shown(
        without_null_lists(rows.to_pylist(), kind)
    )


def without_null_lists(rows: list[Any], kind: StructType) -> list[Any]:
    """Return rows with empty lists and maps for NULL ones: PyIceberg confuses them."""
    return [_without_null_lists(row, kind) for row in rows]


def _without_null_lists(value: Any, kind: IcebergType) -> Any:
    if isinstance(kind, ListType):
        return [_without_null_lists(item, kind.element_type) for item in value or []]
    if isinstance(kind, MapType):
        return [(key, _without_null_lists(item, kind.value_type)) for key, item in value or []]
    if isinstance(kind, StructType) and value is not None:
        fields = kind.fields
        return {
            item.name: _without_null_lists(value[item.name], item.field_type) for item in fields
        }
    return value


def test_nested_uuids_are_marked_as_such(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "top", UUIDType(), required=False),
        NestedField(
            2,
            "struct",
            StructType(NestedField(3, "inside", UUIDType(), required=False)),
            required=False,
        ),
        NestedField(4, "list", ListType(5, UUIDType(), element_required=False), required=False),
        NestedField(6, "map", MapType(7, UUIDType(), 8, UUIDType()), required=False),
    )
    one = uuid.uuid4().bytes
    row = {"top": one, "struct": {"inside": one}, "list": [one, None], "map": [(one, one)]}
    empty = {"top": None, "struct": None, "list": None, "map": None}

    (file,) = write(write_settings(tmp_path, schema), batch_of(schema, [row, empty]))

    stored = pq.ParquetFile(file.path.removeprefix("file://")).schema
    assert [stored.column(index).logical_type.type for index in range(5)] == ["UUID"] * 5
    assert shown(read(read_settings(schema), file).to_pylist()) == shown([row, empty])


def test_a_missing_value_in_a_required_column_is_refused(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    rows = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=arrow_schema(schema))

    with pytest.raises(BadInputError, match="id"):
        write(write_settings(tmp_path, schema), rows)

    assert below(tmp_path) == []


def test_pages_carry_checksums_and_columns_their_ids(tmp_path: Path) -> None:
    (file,) = write(write_settings(tmp_path, IDS), numbered(10))
    path = tmp_path / Path(file.path).name
    content = path.read_bytes()
    stored = pq.ParquetFile(path)

    assert [item.metadata[b"PARQUET:field_id"] for item in stored.schema_arrow] == [b"1", b"2"]
    assert stored.metadata.row_group(0).column(0).compression == "ZSTD"
    flipped = 0
    for offset in range(4, stored.metadata.row_group(0).total_byte_size // 2, 7):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 4]) + content[offset + 1 :])
        try:
            found = read(read_settings(IDS), file)
        except BadInputError:
            flipped += 1
        else:
            assert found.to_pylist() == numbered(10).to_pylist()
    assert flipped > 10


# Sizes


def test_files_are_rolled_near_the_target(tmp_path: Path) -> None:
    target = 1024 * 1024
    rows = [numbered(5_000, first) for first in range(0, 200_000, 5_000)]

    files = write(write_settings(tmp_path, IDS, target_bytes=target), *rows)

    assert len(files) > 3
    assert all(0.8 * target < file.size_bytes < 1.25 * target for file in files[:-1])
    assert [file.size_bytes for file in files] == [
        Path(file.path.removeprefix("file://")).stat().st_size for file in files
    ]
    found = read(read_settings(IDS), *files)
    assert found["id"].to_pylist() == list(range(200_000))
    for file in files:
        footer = pq.read_metadata(file.path.removeprefix("file://"))
        assert len(file.split_offsets) == footer.num_row_groups
        assert list(file.split_offsets) == sorted(file.split_offsets)


def test_a_huge_batch_is_cut_into_files_of_the_target_size(tmp_path: Path) -> None:
    target = 1024 * 1024

    files = write(write_settings(tmp_path, IDS, target_bytes=target), numbered(150_000))

    assert len(files) > 3
    assert max(file.size_bytes for file in files) < 1.25 * target
    assert read(read_settings(IDS), *files)["id"].to_pylist() == list(range(150_000))


def test_rows_that_take_no_memory_are_written_at_once(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(
            1,
            "nothing",
            StructType(NestedField(2, "text", StringType(), required=False)),
            required=False,
        )
    )
    rows = pa.RecordBatch.from_arrays(
        [pa.nulls(1000, arrow_schema(schema).field(0).type)], schema=arrow_schema(schema)
    )

    (file,) = write(write_settings(tmp_path, schema), rows)

    assert pq.read_metadata(file.path.removeprefix("file://")).num_row_groups == 1
    assert read(read_settings(schema), file).num_rows == 1000


@pytest.mark.parametrize("batch", [[], [numbered(0)], [numbered(0), numbered(0)]])
def test_no_rows_make_no_file(tmp_path: Path, batch: list[pa.RecordBatch]) -> None:
    assert write(write_settings(tmp_path, IDS), *batch) == []
    assert write(write_settings(tmp_path, IDS, BY_BUCKET), *batch) == []
    assert below(tmp_path) == []


# Partitions


@settings(deadline=None, max_examples=examples(15))
@given(
    st.lists(st.lists(st.integers(0, 12), max_size=30), max_size=6), st.sampled_from([300, 2**28])
)
def test_partitions_keep_all_rows_under_any_budget(cuts: list[list[int]], budget: int) -> None:
    counter = itertools.count()
    rows = [[(number, f"t{next(counter)}") for number in cut] for cut in cuts]
    made = [batch_of(IDS, [{"id": number, "text": text} for number, text in cut]) for cut in rows]
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(writing, "_BUFFER_BYTES", budget)
        patch.setattr(writing, "_MOST_OPEN_FILES", 3)
        patch.setattr(writing, "_MOST_SMALL", 2)
        files = write(write_settings(Path(folder), IDS, BY_ID), *made)
        found = {file.path: read(read_settings(IDS), file).to_pylist() for file in files}

    assert all(len(each) > 0 for each in found.values())
    assert all(len({row["id"] for row in each}) == 1 for each in found.values())
    by_id: dict[int, list[str]] = {}
    for file in files:
        each = found[file.path]
        by_id.setdefault(each[0]["id"], []).extend(row["text"] for row in each)
        assert file.partition == (each[0]["id"].to_bytes(8, "little", signed=True),)
        assert f"/id={each[0]['id']}/" in file.path
    expected: dict[int, list[str]] = {}
    for number, text in itertools.chain(*rows):
        expected.setdefault(number, []).append(text)
    assert by_id == expected


def test_more_partitions_than_a_process_may_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "_BUFFER_BYTES", 64)
    monkeypatch.setattr(writing, "_MOST_OPEN_FILES", 20)
    opened: Counter[int] = Counter()

    class Counting(Storage):
        def open_output(self, location: str) -> Any:
            opened[0] += 1
            opened[1] = max(opened[1], opened[0])
            return super().open_output(location)

        def persist(self, location: str) -> None:
            opened[0] -= 1
            super().persist(location)

    with open_writer(
        Counting(), write_settings(tmp_path, IDS, BY_ID), task=0, attempt="a"
    ) as writer:
        for _ in range(2):
            for first in range(0, 60, 5):
                writer.write(numbered(5, first, "x"))
        files = writer.close()

    assert opened[1] <= 20 + 5 + 1
    assert sorted(read(read_settings(IDS), *files)["id"].to_pylist()) == sorted([*range(60)] * 2)


# Names and failures


def test_names_differ_between_tasks_attempts_and_operations(tmp_path: Path) -> None:
    first, second = write_settings(tmp_path, IDS), write_settings(tmp_path, IDS)
    names = []
    for chosen, task, attempt in [
        (first, 0, "a"),
        (first, 0, "b"),
        (first, 1, "a"),
        (second, 0, "a"),
    ]:
        with open_writer(Storage(), chosen, task=task, attempt=attempt) as writer:
            writer.write(numbered(5))
            names += [Path(file.path).name for file in writer.close()]

    assert len(set(names)) == 4
    assert all(first.operation_id in name for name in names[:3])


@pytest.mark.parametrize("spec", [BY_BUCKET, BY_ID], ids=str)
def test_an_error_leaves_nothing(tmp_path: Path, spec: PartitionSpec) -> None:
    chosen = write_settings(tmp_path, IDS, spec, target_bytes=1)

    with (
        pytest.raises(ZeroDivisionError),
        open_writer(Storage(), chosen, task=0, attempt="a") as writer,
    ):
        writer.write(numbered(50_000 if spec is BY_BUCKET else 50))
        writer.close()
        raise ZeroDivisionError

    assert below(tmp_path) == []


def test_leaving_without_closing_leaves_nothing(tmp_path: Path) -> None:
    with open_writer(
        Storage(), write_settings(tmp_path, IDS, target_bytes=1), task=0, attempt="a"
    ) as writer:
        writer.write(numbered(50_000))
        assert below(tmp_path) != []

    assert below(tmp_path) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    class Full(Storage):
        def open_output(self, location: str) -> Any:
            return pa.PythonFile(_FullAfter(super().open_output(location), 300_000), mode="w")

    with (
        pytest.raises(OSError, match="full"),
        open_writer(
            Full(), write_settings(tmp_path, IDS, target_bytes=10**6), task=0, attempt="a"
        ) as writer,
    ):
        for first in range(0, 100_000, 1000):
            writer.write(numbered(1000, first))
        writer.close()

    assert below(tmp_path) == []


class _FullAfter:
    """A file on a disk with little room."""

    def __init__(self, sink: Any, room: int) -> None:
        self._sink, self._room = sink, room
        self.closed = False

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError("the disk is full")
        return int(self._sink.write(data))

    def tell(self) -> int:
        return int(self._sink.tell())

    def flush(self) -> None:
        self._sink.flush()

    def close(self) -> None:
        self.closed = True
        self._sink.close()


def test_settings_come_back_from_plain_values(tmp_path: Path) -> None:
    chosen = write_settings(tmp_path, IDS, BY_BUCKET, target_bytes=5, write__parquet__x="y")

    assert WriteSettings.from_plain(chosen.to_plain()) == chosen


@pytest.mark.parametrize(
    "properties",
    [
        {"write__parquet__compression_codec": "lzo"},
        {"write__parquet__compression_codec": "gzip", "write__parquet__compression_level": "30"},
        {"write__metadata__metrics__default": "truncate(0)"},
        {"write__metadata__metrics__column__id": "everything"},
    ],
    ids=str,
)
def test_wrong_properties_are_refused(tmp_path: Path, properties: dict[str, str]) -> None:
    with pytest.raises(InvalidRequestError):
        write(write_settings(tmp_path, IDS, **properties), numbered(1))

    assert below(tmp_path) == []


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "\u00b2", "-1", ""], ids=range(5))
@pytest.mark.parametrize(
    "name", ["compression_level", "page_size_bytes", "dict_size_bytes", "row_group_size_bytes"]
)
def test_numbers_that_no_writer_takes_are_refused(tmp_path: Path, name: str, number: str) -> None:
    properties = {"write__parquet__compression_codec": "gzip", f"write__parquet__{name}": number}

    with pytest.raises(InvalidRequestError, match=re.escape(name.replace("_", "-"))):
        write(write_settings(tmp_path, IDS, **properties), numbered(3))

    assert below(tmp_path) == []


@pytest.mark.parametrize("codec", ["zstd", "gzip", "snappy", "lz4", "brotli", "uncompressed"])
def test_the_tables_codec_is_used(tmp_path: Path, codec: str) -> None:
    chosen = write_settings(tmp_path, IDS, write__parquet__compression_codec=codec)

    (file,) = write(chosen, numbered(10))

    used = pq.read_metadata(file.path.removeprefix("file://")).row_group(0).column(0).compression
    assert used.lower() == codec
    assert read(read_settings(IDS), file).to_pylist() == numbered(10).to_pylist()
