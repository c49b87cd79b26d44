"""Files are laid out as the ``write.parquet.*``, ``write.orc.*`` and ``write.avro.*`` properties of a table say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)
from support.cli.command_line import CommandLine
from support.tables.random_rows import read, read_settings, write, write_settings

from lake.core.base.errors import InvalidRequestError
from lake.core.spec.types.arrow_schema import arrow_schema

ROWS = 50_000
NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType(), required=False),
    NestedField(
        3, "place", StructType(NestedField(4, "code", StringType(), required=False)), required=False
    ),
    NestedField(5, "tags", ListType(6, StringType(), element_required=False), required=False),
    NestedField(
        7, "counts", MapType(8, StringType(), 9, LongType(), value_required=False), required=False
    ),
    NestedField(10, "dotted.name", LongType(), required=False),
    NestedField(11, "yes", BooleanType(), required=False),
    NestedField(12, "price", DecimalType(9, 2), required=False),
    NestedField(13, "key", UUIDType(), required=False),
)
PATHS = {
    "id": "id",
    "name": "name",
    "place.code": "place.code",
    "tags.element": "tags.list.element",
    "counts.key": "counts.key_value.key",
    "counts.value": "counts.key_value.value",
    "dotted.name": "dotted.name",
    "price": "price",
    "key": "key",
}


def nested(rows: int = ROWS) -> pa.RecordBatch:
    numbers = range(rows)
    columns = [
        pa.array(numbers),
        [f"name {number}" for number in numbers],
        [{"code": f"c{number}"} for number in numbers],
        [[f"t{number}"] for number in numbers],
        [[(f"k{number}", number)] for number in numbers],
        numbers,
        [number % 2 == 0 for number in numbers],
        pa.array(numbers, pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
        [number.to_bytes(16, "big") for number in numbers],
    ]
    schema = arrow_schema(NESTED)
    arrays = [
        column.cast(item.type) if isinstance(column, pa.Array) else pa.array(column, item.type)
        for column, item in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def written(tmp_path: Path, rows: pa.RecordBatch, **properties: str) -> tuple[Any, str]:
    """Return a file's entry, and where it is."""
    chosen = write_settings(tmp_path, NESTED, **properties)
    (file,) = write(chosen, rows)
    assert read(read_settings(NESTED), file).equals(pa.Table.from_batches([rows]))
    return file, file.path.removeprefix("file://")


def chunks(path: str) -> dict[str, Any]:
    """Return a file's first row group by the paths of its columns."""
    group = pq.read_metadata(path).row_group(0)
    found = [group.column(index) for index in range(group.num_columns)]
    return {chunk.path_in_schema: chunk for chunk in found}


def test_a_parquet_file_has_a_page_index_and_pages_of_limited_rows(tmp_path: Path) -> None:
    _, plain = written(tmp_path / "a", nested())
    _, small = written(tmp_path / "b", nested(), write__parquet__page_row_limit="100")

    for path in (plain, small):
        assert all(chunk.has_column_index for chunk in chunks(path).values())
        assert all(chunk.has_offset_index for chunk in chunks(path).values())
    # Each page has an entry of some 10 bytes in the offset index of its column.
    pages = len(chunks(small)) * ROWS // 100
    assert index_bytes(plain) < 3 * 200 * len(chunks(plain))
    assert 8 * pages < index_bytes(small) < 60 * pages


def index_bytes(path: str) -> int:
    """Return the number of bytes between a file's last page and its footer."""
    data = Path(path).read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    ends = [
        (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
        for chunk in chunks(path).values()
    ]
    return footer - max(ends)


def test_bloom_filters_are_written_where_the_table_asks_for_them(tmp_path: Path) -> None:
    asked = {f"write__parquet__bloom_filter_enabled__column__{name}": "true" for name in PATHS}

    _, path = written(
        tmp_path, nested(), **asked, write__parquet__bloom_filter_enabled__column__yes="true"
    )

    found = {name for name, chunk in chunks(path).items() if chunk.bloom_filter_offset}
    assert found == set(PATHS.values())


@pytest.mark.slow
def test_a_bloom_filter_is_as_large_as_the_table_allows(tmp_path: Path) -> None:
    one = {"write__parquet__bloom_filter_enabled__column__id": "true"}
    sizes = []
    for number, more in enumerate(
        [
            {"write__parquet__bloom_filter_ndv__column__id": "1000"},
            {"write__parquet__bloom_filter_max_bytes": "4096"},
            {"write__parquet__bloom_filter_fpp__column__id": "0.5"},
            {},
        ]
    ):
        _, path = written(tmp_path / str(number), nested(), **one, **more)
        sizes.append(chunks(path)["id"].bloom_filter_length)

    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]
    assert sizes[1] <= 4096 + 64
    # 50,000 values at 1 % false positives need 60,500 bytes: the next power of two.
    assert 65_536 <= sizes[-1] <= 65_536 + 64


def test_columns_without_statistics_have_no_figures(tmp_path: Path) -> None:
    off = {
        "write__parquet__stats_enabled__column__name": "false",
        "write__parquet__stats_enabled__column__tags__element": "false",
    }
    file, path = written(tmp_path, nested(), **off)

    found = {name for name, chunk in chunks(path).items() if not chunk.is_stats_set}
    assert found == {"name", "tags.list.element"}
    assert 2 not in file.lower_bounds
    assert 2 not in file.null_value_counts
    assert 1 in file.lower_bounds


def test_columns_without_a_dictionary_have_none(tmp_path: Path) -> None:
    rows = nested(1000)
    name = "write__parquet__dict_encoding_enabled__column__counts__key"
    _, path = written(tmp_path, rows, **{name: "false"})

    found = {name for name, chunk in chunks(path).items() if not chunk.has_dictionary_page}
    assert found == {"counts.key_value.key", "yes"}


SPREAD = Schema(
    NestedField(1, "unique", LongType(), required=False),
    NestedField(2, "in fours", LongType(), required=False),
    NestedField(3, "in thirties", LongType(), required=False),
    NestedField(4, "few", StringType(), required=False),
    NestedField(5, "long", StringType(), required=False),
    NestedField(6, "mostly NULL", LongType(), required=False),
    NestedField(7, "NULL", LongType(), required=False),
    NestedField(8, "off", StringType(), required=False),
    NestedField(
        9, "place", StructType(NestedField(10, "code", LongType(), required=False)), required=False
    ),
)


def spread(rows: int) -> pa.RecordBatch:
    numbers = np.arange(rows)
    few = pa.array(["red", None, "green"]).take(pa.array(numbers % 3))
    columns = [
        pa.array(numbers * 7919 % rows),
        pa.array(numbers // 4),
        pa.array(numbers % (rows // 30)),
        few,
        pa.array([f"{number % (rows // 30):0100}" for number in range(rows)]),
        pa.array(numbers % 10, mask=numbers % 100 != 0),
        pa.nulls(rows, pa.int64()),
        few,
        pa.StructArray.from_arrays([pa.array(numbers)], fields=list(arrow_schema(SPREAD)[-1].type)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(SPREAD))


@pytest.mark.parametrize(
    ("rows", "without"),
    [(150_000, {"unique", "in fours", "long", "off"}), (100_000, {"off"})],
    ids=["large", "small"],
)
def test_values_that_repeat_rarely_get_no_dictionary_in_large_row_groups(
    tmp_path: Path, rows: int, without: set[str]
) -> None:
    """A dictionary of 5,000 long texts would be too large; nested columns are written as before."""
    options = {"dict_encoding_enabled__column__off": "false", "dict_size_bytes": "262144"}
    chosen = write_settings(
        tmp_path, SPREAD, **{f"write__parquet__{name}": text for name, text in options.items()}
    )
    (file,) = write(chosen, spread(rows))

    assert read(read_settings(SPREAD), file).equals(pa.Table.from_batches([spread(rows)]))
    found = chunks(file.path.removeprefix("file://"))
    assert {name for name, chunk in found.items() if not chunk.has_dictionary_page} == without


def test_the_version_of_pages_is_the_tables(tmp_path: Path) -> None:
    _, first = written(tmp_path / "a", nested(1000))
    _, second = written(tmp_path / "b", nested(1000), write__parquet__page_version="v2")

    assert Path(first).read_bytes() != Path(second).read_bytes()
    assert "RLE" in chunks(second)["yes"].encodings


def test_orc_files_have_the_bloom_filters_that_the_table_asks_for(tmp_path: Path) -> None:
    sizes = []
    for number, names in enumerate(["", "id", "id, place.code,tags.element,no such column"]):
        properties = {
            "write__format__default": "orc",
            "write__orc__bloom__filter__columns": names,
            "write__orc__bloom__filter__fpp": "0.01",
        }
        file, path = written(tmp_path / str(number), nested(5000), **properties)
        sizes.append(file.size_bytes)
        assert orc.ORCFile(path).nrows == 5000

    # A filter of 5,000 values at 1 % has some 6,000 bytes.
    assert sizes[1] - sizes[0] > 4000
    assert sizes[2] - sizes[1] > 8000


@pytest.mark.parametrize(("codec", "levels"), [("gzip", ["1", "9"]), ("zstd", ["-5", "19"])])
def test_avro_files_are_packed_at_the_tables_level(
    tmp_path: Path, codec: str, levels: list[str]
) -> None:
    sizes = []
    for level in levels:
        properties = {
            "write__format__default": "avro",
            "write__avro__compression_codec": codec,
            "write__avro__compression_level": level,
        }
        file, _ = written(tmp_path / level, nested(5000), **properties)
        sizes.append(file.size_bytes)

    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    "properties",
    [
        {"write__parquet__page_row_limit": "0"},
        {"write__parquet__page_version": "v3"},
        {"write__parquet__compression_level": "99"},
        {"write__parquet__bloom_filter_max_bytes": "lots"},
        {"write__parquet__bloom_filter_enabled__column__id": "yes"},
        {
            "write__parquet__bloom_filter_enabled__column__id": "true",
            "write__parquet__bloom_filter_fpp__column__id": "1",
        },
        {"write__parquet__stats_enabled__column__id": "1"},
        {"write__orc__bloom__filter__fpp": "2", "write__format__default": "orc"},
        {"write__orc__compression_strategy": "best", "write__format__default": "orc"},
        {"write__avro__compression_level": "10", "write__format__default": "avro"},
    ],
    ids=str,
)
def test_values_that_a_property_cannot_have_are_refused(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequestError):
        write(write_settings(tmp_path, NESTED, **properties), nested(1))


@pytest.mark.parametrize("deletes", ["position", "equality"])
def test_delete_files_have_their_own_layout(
    lake: CommandLine, warehouse: Path, tmp_path: Path, deletes: str
) -> None:
    rows = pa.table({"id": range(1000), "name": [f"n{number}" for number in range(1000)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    properties = {
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.parquet.stats-enabled.column.name": "false",
        "write.parquet.compression-codec": "gzip",
        "write.delete.parquet.compression-codec": "snappy",
        "write.delete.parquet.page-row-limit": "10",
    }
    options = [part for item in properties.items() for part in ("--property", "=".join(item))]
    lake.ok("ingest", "db.t", tmp_path / "rows.parquet", "--create", *options)

    upsert = ["--upsert", "--key", "id", "--deletes", deletes]
    lake.ok("ingest", "db.t", tmp_path / "rows.parquet", *upsert)

    folder = warehouse / "db" / "t" / "data"
    (delete,) = folder.glob("*-deletes.parquet")
    data = next(path for path in folder.glob("*.parquet") if path != delete)
    assert {chunk.compression for chunk in chunks(str(data)).values()} == {"GZIP"}
    assert chunks(str(data))["id"].bloom_filter_offset
    found = chunks(str(delete))
    assert all(chunk.has_offset_index and chunk.is_stats_set for chunk in found.values())
    assert not any(chunk.bloom_filter_offset for chunk in found.values())
    assert {chunk.compression for chunk in found.values()} == {"SNAPPY"}
    # A hundred pages of ten rows.
    assert index_bytes(str(delete)) > len(found) * 100 * 8
