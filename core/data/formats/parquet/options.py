"""Convert a table's properties to options of the Parquet writer.

Names, defaults and meanings are those of Iceberg's `TableProperties`; see `Parquet.WriteBuilder` in Iceberg Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.types import BooleanType, IcebergType, ListType, MapType, NestedField, StructType

from lake.core.base.units import whole_number
from lake.core.spec.properties.table_properties import (
    PARQUET_BLOOM_BYTES,
    PARQUET_BLOOM_FPP_OF_COLUMN,
    PARQUET_BLOOM_NDV_OF_COLUMN,
    PARQUET_BLOOM_OF_COLUMN,
    PARQUET_CODEC,
    PARQUET_DICTIONARY_BYTES,
    PARQUET_DICTIONARY_OF_COLUMN,
    PARQUET_LEVEL,
    PARQUET_PAGE_BYTES,
    PARQUET_PAGE_ROWS,
    PARQUET_PAGE_VERSION,
    PARQUET_STATS_OF_COLUMN,
)
from lake.core.spec.properties.values import Setting, refused_value

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
    "none": "none",
}
# The codecs whose level Iceberg Java sets, and Hadoop's names for the levels of gzip.
_WITH_LEVEL = ("gzip", "brotli", "zstd")
_GZIP_LEVELS = {
    "BEST_SPEED": 1,
    "TWO": 2,
    "THREE": 3,
    "FOUR": 4,
    "FIVE": 5,
    "SIX": 6,
    "SEVEN": 7,
    "EIGHT": 8,
    "BEST_COMPRESSION": 9,
}
_DEFAULT_LEVEL = "DEFAULT_COMPRESSION"
_PAGE_VERSIONS = {"v1": "1.0", "v2": "2.0"}
# The size of a block of a split-block Bloom filter, and the largest filter that PyArrow writes.
_LEAST_BLOOM_BYTES, _MOST_BLOOM_BYTES = 32, 128 * 1024 * 1024
# Iceberg Java does not have these settings for delete files.
OF_DATA_FILES_ONLY = (
    "write.parquet.bloom-filter-",
    PARQUET_STATS_OF_COLUMN.name,
    PARQUET_DICTIONARY_OF_COLUMN.name,
)


def writer_options(schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of `pyarrow.parquet.ParquetWriter`.

    Args:
        schema: the columns of the files.
        properties: the table's properties; those with ``write.parquet.*`` are used.

    Raises:
        InvalidRequestError: the value of a property is not valid.
    """
    columns = _Columns(schema, properties)
    codec = PARQUET_CODEC.of(properties)
    return {
        "version": "2.6",
        "compression": _CODECS[codec],
        "compression_level": _level(codec, PARQUET_LEVEL.of(properties)),
        "data_page_version": _PAGE_VERSIONS[PARQUET_PAGE_VERSION.of(properties)],
        "data_page_size": PARQUET_PAGE_BYTES.of(properties),
        "max_rows_per_page": PARQUET_PAGE_ROWS.of(properties),
        "dictionary_pagesize_limit": PARQUET_DICTIONARY_BYTES.of(properties),
        "use_dictionary": columns.enabled(PARQUET_DICTIONARY_OF_COLUMN),
        "write_statistics": columns.enabled(PARQUET_STATS_OF_COLUMN),
        "bloom_filter_options": columns.bloom_filters() or None,
        "write_page_index": True,
        "write_page_checksum": True,
        "store_decimal_as_integer": True,
        "store_schema": False,
    }


def leaf_paths(schema: Schema) -> list[str]:
    """Return the paths of a schema's primitive fields, as PyArrow writes them."""
    return [path for _, path, _ in _leaves(schema.fields, ())]


def _level(codec: str, text: str | None) -> int | None:
    """Return the compression level; None for the codec's default."""
    if text is None or codec not in _WITH_LEVEL or text == _DEFAULT_LEVEL:
        return None
    level = _GZIP_LEVELS.get(text) if codec == "gzip" else None
    level = whole_number(text) if level is None else level
    least = pa.Codec.minimum_compression_level(codec)
    most = pa.Codec.maximum_compression_level(codec)
    if level is None or not least <= level <= most:
        raise refused_value(PARQUET_LEVEL.name, text, f"a level of {codec}, from {least} to {most}")
    return level


class _Columns:
    """Evaluates properties that contain column names."""

    def __init__(self, schema: Schema, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._leaves = {
            schema.find_column_name(number) or path: (path, kind)
            for number, path, kind in _leaves(schema.fields, ())
        }

    def enabled(self, setting: Setting[bool]) -> bool | list[str]:
        """Return the paths of the columns for which a setting is true, or True for all columns."""
        setting.check(self._properties)
        off = {name for name in self._leaves if not setting.of(self._properties, name)}
        if not off:
            return True
        return [path for name, (path, _) in self._leaves.items() if name not in off]

    def bloom_filters(self) -> dict[str, dict[str, Any]]:
        """Return the size of each Bloom filter, by the path of its column.

        PyArrow folds a filter to the size that a row group needs, so a large one only uses more memory.
        """
        for setting in (
            PARQUET_BLOOM_OF_COLUMN,
            PARQUET_BLOOM_FPP_OF_COLUMN,
            PARQUET_BLOOM_NDV_OF_COLUMN,
        ):
            setting.check(self._properties)
        # The size of a filter must be a power of two.
        limit = PARQUET_BLOOM_BYTES.of(self._properties)
        limit = min(max(limit, _LEAST_BLOOM_BYTES), _MOST_BLOOM_BYTES)
        limit = 1 << (limit.bit_length() - 1)
        return {
            path: self._bloom_filter(name, limit)
            for name, (path, kind) in self._leaves.items()
            # The format does not define a hash of booleans.
            if PARQUET_BLOOM_OF_COLUMN.of(self._properties, name)
            and not isinstance(kind, BooleanType)
        }

    def _bloom_filter(self, name: str, limit: int) -> dict[str, Any]:
        positives = PARQUET_BLOOM_FPP_OF_COLUMN.of(self._properties, name)
        most = max(1, int(limit * _values_per_byte(positives)))
        values = PARQUET_BLOOM_NDV_OF_COLUMN.of(self._properties, name) or most
        return {"fpp": positives, "ndv": min(values, most)}


def _values_per_byte(false_positives: float) -> float:
    """Return the number of distinct values for each byte of a filter.

    Source: https://parquet.apache.org/docs/file-format/bloomfilter/#sizing-an-sbbf.
    """
    return -log(1 - false_positives ** (1 / 8))


def _leaves(
    fields: tuple[NestedField, ...], above: tuple[str, ...]
) -> Iterator[tuple[int, str, IcebergType]]:
    """Yield the id of each primitive field, its path in Parquet as PyArrow writes it, and its type."""
    for item in fields:
        path, kind = (*above, item.name), item.field_type
        if isinstance(kind, StructType):
            yield from _leaves(kind.fields, path)
        elif isinstance(kind, ListType):
            yield from _leaves((kind.element_field,), (*path, "list"))
        elif isinstance(kind, MapType):
            yield from _leaves((kind.key_field, kind.value_field), (*path, "key_value"))
        else:
            yield item.field_id, ".".join(path), kind
