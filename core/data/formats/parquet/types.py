"""Find Parquet types that Arrow's schema does not have: VARIANT, GEOMETRY, GEOGRAPHY, INTERVAL and ENUM.

Source: https://github.com/apache/parquet-format/blob/master/LogicalTypes.md.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from lake.core.data.columns.int96 import schema_of_file, with_leaf_types
from lake.core.data.columns.logical_types import LogicalType

_VARIANT = re.compile(r" \(Variant(\(\d+\))?\) \{")
_ENUM = "ENUM"
# Parquet stores them as bytes with another meaning.
_MARKED = frozenset({"GEOMETRY", "GEOGRAPHY", "INTERVAL"})


def source_schema(parquet: Any) -> pa.Schema:
    """Return the schema of a source file with `Int96Type`, `LogicalType`, and strings for ENUM."""
    columns = parquet.schema
    meanings = [_meaning(columns.column(index)) for index in range(len(columns))]

    def marked(index: int, kind: pa.DataType) -> pa.DataType:
        meaning = meanings[index]
        if meaning == _ENUM:
            return pa.string()
        return LogicalType(kind, f"Parquet's {meaning}") if meaning in _MARKED else kind

    schema = schema_of_file(parquet)
    if not {_ENUM, *_MARKED}.intersection(meanings):
        return schema
    return with_leaf_types(schema, len(columns), marked)


def _meaning(column: Any) -> str:
    """Return the name of a column's logical type; INTERVAL is only a converted type."""
    name = str(column.logical_type.type)
    return str(column.converted_type) if name in {"NONE", "UNKNOWN"} else name


def variant_columns(parquet: Any) -> list[str]:
    """Return the names of the VARIANT columns and nested fields."""
    # PyArrow contains the annotation of a group only in the schema's text, a line for each group and each leaf.
    text, columns = str(parquet.schema), parquet.schema
    if _VARIANT.search(text) is None:
        return []
    found, leaf, groups = list[str](), 0, list[int]()
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(" "))
        if line.endswith(";"):
            # A name may contain dots, and what looks like the end of a line.
            path = columns.column(min(leaf, len(columns) - 1)).path
            found += [path.rsplit(".", max((depth - group) // 2, 1))[0] for group in groups]
            leaf, groups = leaf + 1, []
        elif _VARIANT.search(line):
            groups.append(depth)
    return found
