"""The schemas of manifests and manifest lists: Arrow columns in memory, Avro records in files.

Format: https://iceberg.apache.org/spec/#manifests and #manifest-lists; the order and the documentation of
the fields are those of Iceberg Java 1.11.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

EXISTING = 0
ADDED = 1
DELETED = 2

DATA_FILE_ID = 2
PARTITION_ID = 102
_BLOCK_SIZE_ID = 105


def _pairs(value: pa.DataType) -> pa.DataType:
    return pa.list_(pa.struct([("key", pa.int32()), ("value", value)]))


_COUNTS, _BOUNDS = _pairs(pa.int64()), _pairs(pa.binary())

# The partition's type depends on the spec: `lake.core.spec.types.single_values.partition_struct`.
_PARTITION = pa.struct([])
ENTRY_COLUMNS: Mapping[str, pa.DataType] = {
    "status": pa.int32(),
    "snapshot_id": pa.int64(),
    "sequence_number": pa.int64(),
    "file_sequence_number": pa.int64(),
    "content": pa.int32(),
    "file_path": pa.string(),
    "file_format": pa.string(),
    "partition": _PARTITION,
    "record_count": pa.int64(),
    "file_size_in_bytes": pa.int64(),
    "column_sizes": _COUNTS,
    "value_counts": _COUNTS,
    "null_value_counts": _COUNTS,
    "nan_value_counts": _COUNTS,
    "lower_bounds": _BOUNDS,
    "upper_bounds": _BOUNDS,
    "key_metadata": pa.binary(),
    "split_offsets": pa.list_(pa.int64()),
    "equality_ids": pa.list_(pa.int32()),
    "sort_order_id": pa.int32(),
    "first_row_id": pa.int64(),
    "referenced_data_file": pa.string(),
    "content_offset": pa.int64(),
    "content_size_in_bytes": pa.int64(),
}

# The columns with a value for each column of the table. They are most of a manifest's bytes.
METRIC_COLUMNS = tuple(name for name, kind in ENTRY_COLUMNS.items() if kind in (_COUNTS, _BOUNDS))

MANIFEST_COLUMNS: Mapping[str, pa.DataType] = {
    "manifest_path": pa.string(),
    "manifest_length": pa.int64(),
    "partition_spec_id": pa.int32(),
    "content": pa.int32(),
    "sequence_number": pa.int64(),
    "min_sequence_number": pa.int64(),
    "added_snapshot_id": pa.int64(),
    "added_files_count": pa.int32(),
    "existing_files_count": pa.int32(),
    "deleted_files_count": pa.int32(),
    "added_rows_count": pa.int64(),
    "existing_rows_count": pa.int64(),
    "deleted_rows_count": pa.int64(),
    "partitions": pa.list_(
        pa.struct(
            [
                ("contains_null", pa.bool_()),
                ("contains_nan", pa.bool_()),
                ("lower_bound", pa.binary()),
                ("upper_bound", pa.binary()),
            ]
        )
    ),
    "key_metadata": pa.binary(),
    "first_row_id": pa.int64(),
}

MANIFEST_SCHEMA = pa.schema(list(MANIFEST_COLUMNS.items()))

# The path of a column in a flattened file (`lake.core.io.avro.decode`).
ENTRY_PATHS: Mapping[str, str] = {
    "status": "0",
    "snapshot_id": "1",
    "sequence_number": "3",
    "file_sequence_number": "4",
    "content": "2.134",
    "file_path": "2.100",
    "file_format": "2.101",
    "record_count": "2.103",
    "file_size_in_bytes": "2.104",
    "column_sizes": "2.108",
    "value_counts": "2.109",
    "null_value_counts": "2.110",
    "nan_value_counts": "2.137",
    "lower_bounds": "2.125",
    "upper_bounds": "2.128",
    "key_metadata": "2.131",
    "split_offsets": "2.132",
    "equality_ids": "2.135",
    "sort_order_id": "2.140",
    "first_row_id": "2.142",
    "referenced_data_file": "2.143",
    "content_offset": "2.144",
    "content_size_in_bytes": "2.145",
}
PARTITION_PATH = f"{DATA_FILE_ID}.{PARTITION_ID}."
MANIFEST_PATHS: Mapping[str, str] = {
    "manifest_path": "500",
    "manifest_length": "501",
    "partition_spec_id": "502",
    "content": "517",
    "sequence_number": "515",
    "min_sequence_number": "516",
    "added_snapshot_id": "503",
    "added_files_count": "504",
    "existing_files_count": "505",
    "deleted_files_count": "506",
    "added_rows_count": "512",
    "existing_rows_count": "513",
    "deleted_rows_count": "514",
    "partitions": "507",
    "key_metadata": "519",
    "first_row_id": "520",
}
# Fields of data files in earlier versions of the specification and in metadata tables: deprecated, or
# stored elsewhere.
_DROPPED_PATHS = frozenset({"2.105", "2.106", "2.107", "2.111", "2.141"})
# The fields of list items: field id in the file → name in the Arrow column.
ITEM_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("117", "119", "121", "138", "126", "129"), "key"),
    **dict.fromkeys(("118", "120", "122", "139", "127", "130"), "value"),
    "509": "contains_null",
    "518": "contains_nan",
    "510": "lower_bound",
    "511": "upper_bound",
}


def unknown_manifest_fields(columns: Iterable[str]) -> list[str]:
    """Return the ids of a manifest list's fields that `MANIFEST_COLUMNS` does not have."""
    return sorted(set(columns).difference(MANIFEST_PATHS.values()))


def unknown_entry_fields(columns: Iterable[str]) -> list[str]:
    """Return the ids of a manifest's fields that `ENTRY_COLUMNS` does not have."""
    unknown = set(columns).difference(ENTRY_PATHS.values(), _DROPPED_PATHS)
    ids = (path.rpartition(".")[2] for path in unknown if not path.startswith(PARTITION_PATH))
    return sorted(ids)


@dataclass(frozen=True, slots=True)
class ManifestLayout:
    """The encoding of a file's records.

    Args:
        avro: the Avro record schema.
        iceberg_json: the same schema as an Iceberg schema's JSON.
        columns: the Arrow columns it stores, in the file's order.
    """

    avro: Mapping[str, Any]
    iceberg_json: str
    columns: tuple[str, ...]


@lru_cache(maxsize=64)
def entry_layout(partition: StructType, format_version: int) -> ManifestLayout:
    """Return the encoding of a manifest's entries."""
    fields = _entry_fields(partition, format_version)
    data_file = _data_file_fields(partition, format_version)
    columns = [field.name for field in (*fields[:-1], *data_file)]
    return _layout(fields, "manifest_entry", [name for name in columns if name in ENTRY_COLUMNS])


@lru_cache(maxsize=8)
def manifest_layout(format_version: int) -> ManifestLayout:
    """Return the encoding of a manifest list's rows."""
    fields = _manifest_fields(format_version)
    return _layout(fields, "manifest_file", [field.name for field in fields])


def _layout(fields: Sequence[NestedField], name: str, columns: Sequence[str]) -> ManifestLayout:
    schema = Schema(*fields)
    converted: Any = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)
    names: Counter[str] = Counter()
    records = [_named_apart(field, names) for field in converted["fields"]]
    return ManifestLayout(
        {**converted, "fields": records}, schema.model_dump_json(), tuple(columns)
    )


def spec_json(fields: Iterable[Any]) -> str:
    """Return a partition spec's fields as JSON."""
    return json.dumps([field.model_dump(by_alias=True, mode="json") for field in fields])


def _named_apart(avro_type: Any, names: Counter[str]) -> Any:
    """Give each definition of a named type a name of its own, as Avro requires.

    A reference to the first definition would be valid too, but PyIceberg does not read it.
    """
    if isinstance(avro_type, list):
        return [_named_apart(branch, names) for branch in avro_type]
    if not isinstance(avro_type, dict):
        return avro_type
    found = {key: _named_apart(value, names) for key, value in avro_type.items()}
    if avro_type.get("type") in ("fixed", "record"):
        names[avro_type["name"]] += 1
        if (count := names[avro_type["name"]]) > 1:
            found["name"] = f"{avro_type['name']}_{count}"
    return found


def _field(
    field_id: int,
    name: str,
    field_type: IcebergType,
    doc: str | None = None,
    *,
    required: bool = False,
) -> NestedField:
    return NestedField(field_id, name, field_type, required=required, doc=doc)


def _map(key_id: int, value_id: int, value: IcebergType) -> MapType:
    return MapType(key_id, IntegerType(), value_id, value, value_required=True)


def _entry_fields(partition: StructType, format_version: int) -> list[NestedField]:
    data_file = StructType(*_data_file_fields(partition, format_version))
    fields = [_field(0, "status", IntegerType(), required=True)]
    fields.append(_field(1, "snapshot_id", LongType(), required=format_version == 1))
    if format_version > 1:
        fields.append(_field(3, "sequence_number", LongType()))
        fields.append(_field(4, "file_sequence_number", LongType()))
    fields.append(_field(DATA_FILE_ID, "data_file", data_file, required=True))
    return fields


def _data_file_fields(partition: StructType, format_version: int) -> list[NestedField]:
    content = "Contents of the file: 0=data, 1=position deletes, 2=equality deletes"
    tuple_doc = "Partition data tuple, schema based on the partition spec"
    fields = (
        []
        if format_version == 1
        else [_field(134, "content", IntegerType(), content, required=True)]
    )
    fields += [
        _field(100, "file_path", StringType(), "Location URI with FS scheme", required=True),
        _field(
            101,
            "file_format",
            StringType(),
            "File format name: avro, orc, or parquet",
            required=True,
        ),
        _field(PARTITION_ID, "partition", partition, tuple_doc, required=True),
        _field(103, "record_count", LongType(), "Number of records in the file", required=True),
        _field(104, "file_size_in_bytes", LongType(), "Total file size in bytes", required=True),
    ]
    if format_version == 1:
        fields.append(_field(_BLOCK_SIZE_ID, "block_size_in_bytes", LongType(), required=True))
    fields += _METRICS
    if format_version > 1:
        fields.append(_EQUALITY_IDS)
    fields.append(_field(140, "sort_order_id", IntegerType(), "Sort order ID"))
    if format_version > 2:  # noqa: PLR2004 - format version 3 brought row lineage
        doc = "The first row ID assigned to the first row in the data file"
        fields.append(_field(142, "first_row_id", LongType(), doc))
    if format_version > 1:
        fields.append(_field(143, "referenced_data_file", StringType(), _REFERENCED))
    if format_version > 2:  # noqa: PLR2004 - format version 3 brought deletion vectors
        fields.append(_field(144, "content_offset", LongType(), _OFFSET))
        fields.append(_field(145, "content_size_in_bytes", LongType(), _LENGTH))
    return fields


_REFERENCED = (
    "Fully qualified location (URI with FS scheme) of a data file that all deletes reference"
)
_OFFSET = "The offset in the file where the content starts"
_LENGTH = "The length of referenced content stored in the file"
_METRICS = [
    _field(
        108, "column_sizes", _map(117, 118, LongType()), "Map of column id to total size on disk"
    ),
    _field(
        109,
        "value_counts",
        _map(119, 120, LongType()),
        "Map of column id to total count, including null and NaN",
    ),
    _field(
        110, "null_value_counts", _map(121, 122, LongType()), "Map of column id to null value count"
    ),
    _field(
        137,
        "nan_value_counts",
        _map(138, 139, LongType()),
        "Map of column id to number of NaN values in the column",
    ),
    _field(125, "lower_bounds", _map(126, 127, BinaryType()), "Map of column id to lower bound"),
    _field(128, "upper_bounds", _map(129, 130, BinaryType()), "Map of column id to upper bound"),
    _field(131, "key_metadata", BinaryType(), "Encryption key metadata blob"),
    _field(
        132, "split_offsets", ListType(133, LongType(), element_required=True), "Splittable offsets"
    ),
]
_EQUALITY_IDS = _field(
    135,
    "equality_ids",
    ListType(136, IntegerType(), element_required=True),
    "Equality comparison field IDs",
)

_SUMMARY = StructType(
    _field(
        509,
        "contains_null",
        BooleanType(),
        "True if any file has a null partition value",
        required=True,
    ),
    _field(518, "contains_nan", BooleanType(), "True if any file has a nan partition value"),
    _field(510, "lower_bound", BinaryType(), "Partition lower bound for all files"),
    _field(511, "upper_bound", BinaryType(), "Partition upper bound for all files"),
)
_PARTITIONS = _field(
    507, "partitions", ListType(508, _SUMMARY, element_required=True), "Summary for each partition"
)
_KEY_METADATA = _field(519, "key_metadata", BinaryType(), "Encryption key metadata blob")


def _manifest_fields(format_version: int) -> list[NestedField]:
    newer = format_version > 1
    fields = [
        _field(500, "manifest_path", StringType(), "Location URI with FS scheme", required=True),
        _field(501, "manifest_length", LongType(), "Total file size in bytes", required=True),
        _field(502, "partition_spec_id", IntegerType(), "Spec ID used to write", required=True),
    ]
    if newer:
        fields += _SEQUENCE
    fields.append(
        _field(
            503,
            "added_snapshot_id",
            LongType(),
            "Snapshot ID that added the manifest",
            required=True,
        )
    )
    files = [
        _field(504, "added_files_count", IntegerType(), "Added entry count", required=newer),
        _field(505, "existing_files_count", IntegerType(), "Existing entry count", required=newer),
        _field(506, "deleted_files_count", IntegerType(), "Deleted entry count", required=newer),
    ]
    rows = [
        _field(512, "added_rows_count", LongType(), "Added rows count", required=newer),
        _field(513, "existing_rows_count", LongType(), "Existing rows count", required=newer),
        _field(514, "deleted_rows_count", LongType(), "Deleted rows count", required=newer),
    ]
    fields += [*files, *rows, _PARTITIONS] if newer else [*files, _PARTITIONS, *rows]
    fields.append(_KEY_METADATA)
    if format_version > 2:  # noqa: PLR2004 - format version 3 brought row lineage
        doc = "Starting row ID to assign to new rows in ADDED data files"
        fields.append(_field(520, "first_row_id", LongType(), doc))
    return fields


_SEQUENCE = [
    _field(
        517, "content", IntegerType(), "Contents of the manifest: 0=data, 1=deletes", required=True
    ),
    _field(
        515,
        "sequence_number",
        LongType(),
        "Sequence number when the manifest was added",
        required=True,
    ),
    _field(
        516,
        "min_sequence_number",
        LongType(),
        "Lowest sequence number in the manifest",
        required=True,
    ),
]
