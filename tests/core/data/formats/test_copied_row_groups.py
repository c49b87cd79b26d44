"""Row groups are copied as they are stored, small ones are merged, and what could change a row is decoded."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.footer_edits import Struct as Tree
from hostile.footer_edits import edited, mutated
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, ListType, LongType, NestedField, StringType
from support.tables.random_rows import (
    batches,
    read_settings,
    schemas,
    shown,
    write,
    write_settings,
)
from support.tiers import examples

from lake.core.base.errors import LakeError
from lake.core.data.formats.parquet.copying import source, target
from lake.core.data.formats.parquet.copying.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    UUID,
    Field,
    Items,
    ThriftError,
    read_struct,
    structs_of,
    write_struct,
)
from lake.core.data.rows.reader import FileSlice
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.storage import Storage
from lake.core.maintain.compaction.tasks import RewriteReport, RewriteTask, rewrite
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.manifests.data_files import DataFile

IDS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType(), required=False),
    NestedField(3, "ratio", DoubleType(), required=False),
    NestedField(4, "list", ListType(5, LongType(), element_required=False), required=False),
)
# Numbers of fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
SCHEMA, GROUPS, KEY_VALUES, CREATED_BY, ORDERS, ENCRYPTION = 2, 4, 5, 6, 7, 8
COLUMNS, META_DATA = 1, 3
NO_INDEX = (4, 5, 6, 7)


def numbered(rows: int, first: int = 0) -> pa.RecordBatch:
    """Return rows that do not compress, numbered from `first`."""
    noise = np.random.default_rng(first).bytes(rows * 40).hex()
    texts = [noise[at * 80 : at * 80 + 80] if at % 7 else None for at in range(rows)]
    ids = np.arange(first, first + rows)
    ratios = [None if at % 5 == 0 else math.nan if at % 11 == 0 else at / 3 for at in range(rows)]
    lists = [None if at % 3 == 0 else [at, None][: at % 3] for at in range(rows)]
    columns = [
        pa.array(ids),
        pa.array(texts),
        pa.array(ratios),
        pa.array(lists, pa.list_(pa.int64())),
    ]
    return pa.RecordBatch.from_arrays(
        [column.cast(item.type) for column, item in zip(columns, arrow_schema(IDS), strict=True)],
        schema=arrow_schema(IDS),
    )


def path_of(file: DataFile) -> Path:
    return Path(file.path.removeprefix("file://"))


def changed(file: DataFile, change: Callable[[Tree], object]) -> DataFile:
    """Change the footer of a file."""
    return with_bytes(file, edited(path_of(file).read_bytes(), change))


def with_bytes(file: DataFile, data: bytes) -> DataFile:
    path_of(file).write_bytes(data)
    return replace(file, size_bytes=len(data))


def chunks_of(tree: Tree, column: int | None = None) -> list[Any]:
    groups = tree[GROUPS][1][1]
    found = [group[COLUMNS][1][1] for group in groups]
    return [chunk for chunks in found for chunk in (chunks if column is None else [chunks[column]])]


def rewritten(
    folder: Path,
    files: Sequence[DataFile],
    *,
    least: int | None = 1,
    most: int = 2**40,
    schema: Schema = IDS,
    target_bytes: int = 2**40,
    **properties: str,
) -> RewriteReport:
    """Rewrite files as a task of a compaction does, and compare every value."""
    task = RewriteTask(
        task=1,
        files=[FileSlice.of(file) for file in files],
        rows=sum(file.record_count for file in files),
        reading=read_settings(schema),
        write=write_settings(folder, schema, target_bytes=target_bytes, **properties),
        verify=True,
        copied_bytes=least,
        most_copied_bytes=most,
        nan_counts=[file.nan_value_counts for file in files],
    )
    (report,) = rewrite(task, TaskContext(Storage(), "b"))
    assert report.rows == sum(file.record_count for file in files)
    return report


def rows_in(files: Sequence[DataFile]) -> list[str]:
    """Return the rows of files as PyArrow reads them, in no order."""
    return sorted(
        shown(row) for file in files for row in pq.ParquetFile(path_of(file)).read().to_pylist()
    )


def row_groups(file: DataFile) -> list[int]:
    """Return the stored sizes of the row groups of a file."""
    metadata = pq.read_metadata(path_of(file))
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    return [
        sum(group.column(at).total_compressed_size for at in range(group.num_columns))
        for group in groups
    ]


def only_nan(files: Sequence[DataFile]) -> set[int]:
    """Return the ids of columns that have only NaN in one of the files, whose bounds a copy does not know."""
    return {
        column
        for file in files
        for column, count in file.nan_value_counts.items()
        if 0 < count == file.value_counts[column] - file.null_value_counts[column]
    }


def without(bounds: Mapping[int, bytes], columns: set[int]) -> dict[int, bytes]:
    """Return the bounds of the other columns."""
    return {column: bound for column, bound in bounds.items() if column not in columns}


@settings(deadline=None, max_examples=examples(40))
@given(st.data())
def test_any_rows_are_the_same_after_a_copy(data: Any) -> None:
    schema = data.draw(schemas())
    options = {
        "write__parquet__compression_codec": data.draw(
            st.sampled_from(["snappy", "zstd", "gzip", "uncompressed", "lz4", "brotli"])
        ),
        "write__parquet__page_version": data.draw(st.sampled_from(["v1", "v2"])),
        "write__parquet__page_row_limit": str(data.draw(st.integers(1, 20))),
    }
    blooms = dict(options)
    for item in schema.fields:
        if isinstance(item.field_type, StringType | LongType) and data.draw(st.booleans()):
            blooms[f"write__parquet__bloom_filter_enabled__column__{item.name}"] = "true"
    drawn = data.draw(st.lists(batches(schema), min_size=1, max_size=3))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [write(write_settings(folder, schema, **blooms), rows)[0] for rows in drawn]
        if data.draw(st.booleans()):
            files[0] = changed(
                files[0],
                lambda tree: [
                    chunk.pop(number, None) for chunk in chunks_of(tree) for number in NO_INDEX
                ],
            )
        report = rewritten(folder, files, schema=schema, **options)
        decoded = rewritten(folder, files, schema=schema, least=None, **options)

        assert report.decoded == {}
        assert report.copied == len(files)
        assert rows_in(report.files) == rows_in(files)
        (copied,), (encoded,) = report.files, decoded.files
        assert copied.record_count == encoded.record_count
        assert copied.value_counts == encoded.value_counts
        assert copied.lower_bounds == without(encoded.lower_bounds, only_nan(files))
        assert copied.upper_bounds == without(encoded.upper_bounds, only_nan(files))
        for column, count in copied.null_value_counts.items():
            assert encoded.null_value_counts[column] == count
        for column, count in copied.nan_value_counts.items():
            assert encoded.nan_value_counts[column] == count
        # A second copy reads what the first one wrote.
        again = rewritten(folder, report.files, schema=schema, **options)
        assert (again.copied, again.decoded) == (len(files), {})
        assert rows_in(again.files) == rows_in(files)


def test_large_row_groups_are_copied_and_small_ones_become_large_ones(tmp_path: Path) -> None:
    small = {"write__parquet__row_group_size_bytes": "200000"}
    rows = [numbered(4000 if number % 10 == 0 else 150, number) for number in range(40)]
    files = [file for part in rows for file in write(write_settings(tmp_path, IDS, **small), part)]
    sizes = [size for file in files for size in row_groups(file)]
    least = 25_000
    assert sum(size < least for size in sizes) >= 36

    report = rewritten(tmp_path, files, least=least, **small)

    (file,) = report.files
    after = row_groups(file)
    assert report.copied == sum(size >= least for size in sizes)
    assert after[: report.copied] == [size for size in sizes if size >= least]
    assert all(size >= least for size in after[:-1])
    assert rows_in(report.files) == rows_in(files)
    assert len(after) > report.copied + 2
    assert len(file.split_offsets) == len(after)


def test_slices_of_a_file_take_each_row_group_once(tmp_path: Path) -> None:
    (file,) = write(
        write_settings(tmp_path, IDS, write__parquet__row_group_size_bytes="100000"),
        *(numbered(500, at) for at in range(0, 5000, 500)),
    )
    count = pq.read_metadata(path_of(file)).num_row_groups
    assert count > 4
    cuts = [0, 700, 701, 2500, 4999, 5000]
    for least, copied in ((1, count), (10**9, 0)):
        written, total = [], 0
        for number, (start, end) in enumerate(pairwise(cuts)):
            part = replace(FileSlice.of(file), skip_rows=start, take_rows=end - start)
            task = RewriteTask(
                task=number,
                files=[part],
                rows=end - start,
                reading=read_settings(IDS),
                write=write_settings(tmp_path, IDS),
                verify=True,
                copied_bytes=least,
                most_copied_bytes=2**40,
                nan_counts=[{}],
            )
            (report,) = rewrite(task, TaskContext(Storage(), "b"))
            written += report.files
            total += report.copied

        assert total == copied
        assert rows_in(written) == rows_in([file])


def test_the_files_of_copies_end_near_their_target_size(tmp_path: Path) -> None:
    files = [write(write_settings(tmp_path, IDS), numbered(2000, at))[0] for at in range(6)]
    one = files[0].size_bytes

    report = rewritten(tmp_path, files, target_bytes=int(one * 2.5))

    assert [pq.read_metadata(path_of(file)).num_row_groups for file in report.files] == [2, 2, 2]
    assert rows_in(report.files) == rows_in(files)


def test_numbers_of_nan_are_those_of_the_entries_where_these_have_them(tmp_path: Path) -> None:
    files = [write(write_settings(tmp_path, IDS), numbered(200, at))[0] for at in (0, 1000)]
    nans = sum(file.nan_value_counts[3] for file in files)
    assert nans

    (known,) = rewritten(tmp_path, files).files
    (unknown,) = rewritten(tmp_path, [files[0], replace(files[1], nan_value_counts={})]).files
    (mixed,) = rewritten(tmp_path, files, least=files[0].size_bytes - 3000).files

    assert known.nan_value_counts == {3: nans}
    assert unknown.nan_value_counts == {}
    assert mixed.nan_value_counts == {3: nans}


def text(value: str) -> tuple[int, bytes]:
    return BINARY, value.encode()


def meta_of(tree: Tree, column: int = 0) -> Any:
    return chunks_of(tree, column)[0][META_DATA][1]


def footer_of(file: DataFile) -> Any:
    """Return the footer of a file as values."""
    data = path_of(file).read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    return read_struct(data[-8 - size : -8])[0]


def first_element(tree: Tree) -> Any:
    return tree[SCHEMA][1][1][1]


OTHER_WRITERS = (
    "parquet-mr version 1.8.2 (build c)",
    "parquet-cpp version 1.5.0",
    "x",
    "\u0130 1.2",
)
EDITS: Mapping[str, tuple[str, Callable[[Tree], object]]] = {
    "another name": ("schema", lambda tree: first_element(tree).update({4: text("other")})),
    "another id": ("schema", lambda tree: tree[SCHEMA][1][1][6].update({9: (I32, 77)})),
    "no orders": ("column-orders", lambda tree: tree.pop(ORDERS)),
    "a note": (
        "key-values",
        lambda tree: tree.update({KEY_VALUES: (LIST, (STRUCT, [{1: text("org.apache.spark.x")}]))}),
    ),
    "no writer": ("writer", lambda tree: tree.pop(CREATED_BY)),
    **{
        name: ("writer", lambda tree, name=name: tree.update({CREATED_BY: text(name)}))
        for name in OTHER_WRITERS
    },
    "a new field": ("footer", lambda tree: tree.update({42: (I64, 4)})),
    "a new field of row groups": (
        "footer",
        lambda tree: tree[GROUPS][1][1][0].update({42: (I64, 4)}),
    ),
    "a new field of chunks": ("footer", lambda tree: chunks_of(tree)[0].update({42: (I64, 4)})),
    "a new field of columns": ("footer", lambda tree: meta_of(tree).update({42: (I64, 4)})),
    "an index page": ("footer", lambda tree: meta_of(tree).update({10: (I64, 4)})),
    "another path": ("footer", lambda tree: meta_of(tree).update({3: (LIST, (BINARY, [b"x"]))})),
    "an early index": ("footer", lambda tree: chunks_of(tree)[0].update({4: (I64, 3)})),
    "a late index": ("footer", lambda tree: chunks_of(tree)[0].update({4: (I64, 2**62)})),
    "an index elsewhere": ("footer", lambda tree: chunks_of(tree)[0].update({4: (I64, 5)})),
    "an index of another column": (
        "pages",
        lambda tree: chunks_of(tree)[0].update(
            {number: chunks_of(tree)[1][number] for number in (4, 5)}
        ),
    ),
    "no offset index": ("pages", lambda tree: [chunks_of(tree)[0].pop(at) for at in (4, 5)]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_file_that_cannot_be_copied_is_decoded(name: str, tmp_path: Path) -> None:
    reason, change = EDITS[name]
    files = [write(write_settings(tmp_path, IDS), numbered(300, at))[0] for at in (0, 300)]
    expected = rows_in(files)
    files[1] = changed(files[1], change)

    report = rewritten(tmp_path, files)

    assert (report.copied, report.decoded) == (1, {reason: 1})
    assert rows_in(report.files) == expected


CONTRADICTIONS: Mapping[str, Callable[[Tree], object]] = {
    "fewer bytes": lambda tree: meta_of(tree).update({7: (I64, 50)}),
    "more bytes": lambda tree: meta_of(tree).update({7: (I64, 2**62)}),
    "a late page": lambda tree: meta_of(tree).update({9: (I64, 2**62)}),
    "an early dictionary": lambda tree: meta_of(tree).update({11: (I64, 1)}),
    "fewer values": lambda tree: meta_of(tree).update({5: (I64, 1)}),
    "more values of lists": lambda tree: meta_of(tree, 3).update({5: (I64, 10_000)}),
    "negative values": lambda tree: meta_of(tree, 3).update({5: (I64, -1)}),
    "another codec": lambda tree: meta_of(tree).update({4: (I32, 0)}),
    "another file": lambda tree: chunks_of(tree)[0].update({1: text("other.parquet")}),
    "chunks twice": lambda tree: tree[GROUPS][1][1][0].update(
        {COLUMNS: (LIST, (STRUCT, [chunks_of(tree)[0]] * 4))}
    ),
    "encrypted": lambda tree: tree.update({ENCRYPTION: (STRUCT, {1: (STRUCT, {})})}),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_wrong_footer_is_an_error_or_loses_no_row(name: str, tmp_path: Path) -> None:
    (file,) = write(write_settings(tmp_path, IDS), numbered(300))
    expected = rows_in([file])
    file = changed(file, CONTRADICTIONS[name])

    try:
        report = rewritten(tmp_path, [file])
    except LakeError:
        return
    assert report.copied == 0
    assert rows_in(report.files) == expected


def test_random_footers_are_errors_or_give_the_rows_that_decoding_gives(tmp_path: Path) -> None:
    (file,) = write(write_settings(tmp_path, IDS), numbered(40))
    data, expected = path_of(file).read_bytes(), rows_in([file])
    chance, copied, tried = random.Random(5), 0, 0
    while tried < 150:
        found = mutated(data, chance)
        if found is None:
            continue
        tried += 1
        other = with_bytes(file, found)
        try:
            report = rewritten(tmp_path, [other])
        except LakeError:
            continue
        copied += report.copied
        if report.copied:
            assert rows_in(report.files) == expected
    assert 0 < copied < tried


OFFSETS: Sequence[tuple[int, Any]] = (
    *((I64, value) for value in (0, 77, -5, 2**63 - 1)),
    *((BINARY, b"abc"), (LIST, (I32, [1]))),
)


@pytest.mark.parametrize("offset", OFFSETS)
def test_offsets_that_no_reader_needs_may_be_wrong(offset: tuple[int, Any], tmp_path: Path) -> None:
    (file,) = write(write_settings(tmp_path, IDS), numbered(300))
    file = changed(file, lambda tree: tree[GROUPS][1][1][0].update({5: offset}))
    if offset[0] == I64:
        file = changed(file, lambda tree: chunks_of(tree)[0].update({2: offset}))

    report = rewritten(tmp_path, [file, file])

    assert report.copied == 2
    (copied,) = report.files
    assert rows_in([copied]) == rows_in([file, file])
    groups = structs_of(footer_of(copied), GROUPS)
    assert [group[5].value for group in groups] == list(copied.split_offsets)
    assert {chunk[2].value for group in groups for chunk in structs_of(group, COLUMNS)} == {0}


def test_columns_of_another_codec_or_without_their_bloom_filter_are_decoded(tmp_path: Path) -> None:
    plain = write_settings(
        tmp_path, IDS, write__parquet__dict_encoding_enabled__column__text="false"
    )
    (file,) = write(plain, numbered(300))
    (by_dictionary,) = write(write_settings(tmp_path, IDS), numbered(300))

    codec = rewritten(tmp_path, [file], write__parquet__compression_codec="gzip")
    bloom = {"write__parquet__bloom_filter_enabled__column__text": "true"}
    filtered = rewritten(tmp_path, [file], **bloom)
    again = rewritten(tmp_path, filtered.files, **bloom)
    without = rewritten(tmp_path, [by_dictionary], **bloom)

    assert (codec.copied, codec.decoded) == (0, {"codec": 1})
    assert pq.read_metadata(path_of(codec.files[0])).row_group(0).column(0).compression == "GZIP"
    assert (filtered.copied, filtered.decoded) == (0, {"bloom-filters": 1})
    assert (again.copied, again.decoded) == (1, {})
    assert (without.copied, without.decoded) == (1, {})
    assert rows_in(again.files) == rows_in([file])


def test_row_groups_that_are_too_large_are_decoded(tmp_path: Path) -> None:
    files = [write(write_settings(tmp_path, IDS), numbered(rows, rows))[0] for rows in (100, 900)]

    # The new row group is too large too.
    report = rewritten(tmp_path, files, most=row_groups(files[1])[0] - 1)

    assert (report.copied, report.decoded) == (1, {"size": 1})
    assert rows_in(report.files) == rows_in(files)


def test_columns_of_very_many_pages_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = write_settings(tmp_path, IDS, write__parquet__page_row_limit="100")
    (file,) = write(pages, numbered(1000))

    monkeypatch.setattr(source, "_MOST_PAGES", 10)
    copied = rewritten(tmp_path, [file])
    monkeypatch.setattr(source, "_MOST_PAGES", 9)
    decoded = rewritten(tmp_path, [file])

    assert (copied.copied, decoded.copied, decoded.decoded) == (1, 0, {"pages": 1})
    assert rows_in(decoded.files) == rows_in([file])


def test_files_of_java_and_of_pyarrow_become_one_of_pyarrow(tmp_path: Path) -> None:
    files = [write(write_settings(tmp_path, IDS), numbered(300, at))[0] for at in (0, 300)]
    java = "parquet-mr version 1.15.2 (build 1)"
    mine = [changed(file, lambda tree: tree.update({CREATED_BY: text(java)})) for file in files]

    (same,) = rewritten(tmp_path, mine).files
    (other,) = write(write_settings(tmp_path, IDS), numbered(300, 600))
    (mixed,) = rewritten(tmp_path, [*mine, other]).files

    assert pq.read_metadata(path_of(same)).created_by == java
    assert pq.read_metadata(path_of(mixed)).created_by.startswith("parquet-cpp-arrow")


def test_a_copy_whose_footer_is_not_what_was_copied_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = write(write_settings(tmp_path, IDS), numbered(300))
    before = set(tmp_path.iterdir())
    whole = target.write_struct

    def with_other_offsets(struct: Any) -> bytes:
        struct = deepcopy(struct)
        for group in structs_of(struct, GROUPS):
            for chunk in structs_of(group, COLUMNS):
                meta = chunk[META_DATA].value
                meta[9] = Field(I64, meta[9].value + 1)
        return whole(struct)

    monkeypatch.setattr(target, "write_struct", with_other_offsets)

    with pytest.raises(LakeError, match="is not what was copied"):
        rewritten(tmp_path, [file])
    assert set(tmp_path.iterdir()) == before


def fields(depth: int) -> st.SearchStrategy[Field]:
    kinds: Mapping[int, st.SearchStrategy[Any]] = {
        TRUE: st.none(),
        FALSE: st.none(),
        BYTE: st.binary(min_size=1, max_size=1),
        **{
            kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            for kind, bits in ((I16, 16), (I32, 32), (I64, 64))
        },
        DOUBLE: st.binary(min_size=8, max_size=8),
        UUID: st.binary(min_size=16, max_size=16),
        BINARY: st.binary(max_size=20),
    }
    some = st.sampled_from(sorted(kinds)).flatmap(
        lambda kind: kinds[kind].map(lambda v: Field(kind, v))
    )
    if not depth:
        return some
    item = fields(0).filter(lambda found: found.kind not in (TRUE, FALSE))
    lists = st.builds(
        lambda kind, one, count: Field(kind, Items((one.kind,), [one.value] * count)),
        st.sampled_from([LIST, SET]),
        item,
        st.integers(0, 20),
    )
    maps = st.builds(
        lambda one, two: Field(MAP, Items((one.kind, two.kind), [(one.value, two.value)])),
        item,
        item,
    )
    return st.one_of(some, lists, maps, structs(depth - 1).map(lambda found: Field(STRUCT, found)))


def structs(depth: int = 2) -> st.SearchStrategy[dict[int, Field]]:
    return st.dictionaries(st.integers(-(2**15), 2**15 - 1), fields(depth), max_size=6)


@given(structs())
def test_fields_that_are_not_known_are_written_as_they_were_read(struct: dict[int, Field]) -> None:
    data = write_struct(struct)

    assert read_struct(b"x" + data + b"y", 1) == (struct, 1 + len(data))
    for size in range(len(data)):
        with pytest.raises(ThriftError):
            read_struct(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"\x19\xf5\xff\xff\xff\xff\x0f",
        b"\x1b\xff\xff\xff\xff\x0f\x55",
        b"\x18\xff\xff\xff\xff\x0f",
        b"\x15" + b"\xff" * 11 + b"\x00",
        b"\x1c" * 100 + b"\x00" * 101,
        b"\x19" + b"\x19" * 100 + b"\x00" * 101,
        b"\x1e\x00",
        b"\x15\x02\x05\x02\x02\x00",
    ],
)
def test_hostile_structs_are_errors(data: bytes) -> None:
    with pytest.raises(ThriftError):
        read_struct(data)
