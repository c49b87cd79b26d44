"""Types that lake cannot read are found at every level."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeometryType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from lake.core.base.errors import RefusedError
from lake.core.spec.types.unsupported_columns import refuse_unsupported


def struct(kind: IcebergType) -> StructType:
    return StructType(NestedField(12, "x", kind, required=False))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (GeometryType(), "c"),
        (struct(GeometryType()), "c.x"),
        (ListType(11, GeometryType(), element_required=False), "c.element"),
        (ListType(11, struct(GeometryType()), element_required=False), "c.element.x"),
        (MapType(10, StringType(), 11, GeometryType(), value_required=False), "c.value"),
        (MapType(10, StringType(), 11, struct(GeometryType()), value_required=False), "c.value.x"),
    ],
)
def test_a_column_is_named_by_its_path(kind: IcebergType, name: str) -> None:
    with pytest.raises(RefusedError, match=f"column {name} is of the type geometry,"):
        refuse_unsupported(Schema(NestedField(1, "c", kind, required=False)))


@pytest.mark.parametrize(
    "kind",
    [
        ListType(11, LongType(), element_required=False),
        MapType(10, StringType(), 11, struct(LongType()), value_required=False),
    ],
)
def test_other_nested_columns_are_let_through(kind: IcebergType) -> None:
    refuse_unsupported(Schema(NestedField(1, "c", kind, required=False)))
