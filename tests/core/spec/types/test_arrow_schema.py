"""Schemas of some of a table's columns."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField, StringType, StructType

from lake.core.spec.types.arrow_schema import top_columns


def field(number: int, name: str, kind: object) -> NestedField:
    return NestedField(number, name, kind, required=False)


def test_the_column_that_contains_a_field_is_found_by_its_id() -> None:
    inner = StructType(field(4, "c", IntegerType()))
    schema = Schema(
        field(1, "id", IntegerType()), field(2, "a.b", StringType()), field(3, "a", inner)
    )

    def names(*ids: int) -> list[str]:
        return [item.name for item in top_columns(schema, ids).fields]

    # Without ids, one column is read for the number of rows.
    assert names() == ["id"]
    assert names(2) == ["a.b"]
    assert names(1, 3) == ["id", "a"]
