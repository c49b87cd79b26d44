"""Arrow types for Iceberg's primitive types."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from lake.core.spec.types.specification_types import VariantType

_UUID_BYTES = 16

ARROW_TYPES: Mapping[IcebergType, pa.DataType] = {
    BooleanType(): pa.bool_(),
    IntegerType(): pa.int32(),
    LongType(): pa.int64(),
    FloatType(): pa.float32(),
    DoubleType(): pa.float64(),
    DateType(): pa.date32(),
    TimeType(): pa.time64("us"),
    TimestampType(): pa.timestamp("us"),
    TimestamptzType(): pa.timestamp("us", tz="UTC"),
    TimestampNanoType(): pa.timestamp("ns"),
    TimestamptzNanoType(): pa.timestamp("ns", tz="UTC"),
    StringType(): pa.string(),
    BinaryType(): pa.binary(),
    UUIDType(): pa.binary(_UUID_BYTES),
    UnknownType(): pa.null(),
}
# lake does not read or write values of these types, only NULLs.
_OF_NULLS = (VariantType, GeometryType, GeographyType)


def primitive_type(field_type: IcebergType) -> pa.DataType | None:
    """Return the Arrow type of a primitive Iceberg type; None if it is not known."""
    if (found := ARROW_TYPES.get(field_type)) is not None:
        return found
    if isinstance(field_type, FixedType):
        return pa.binary(len(field_type))
    if isinstance(field_type, DecimalType):
        return pa.decimal128(field_type.precision, field_type.scale)
    if isinstance(field_type, _OF_NULLS):
        return pa.null()
    return None
