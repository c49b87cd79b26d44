"""Iceberg's types as Spark's, and the exact Arrow types in which Spark takes their values from Python.

Spark 4.2 and later refuse a batch whose types, nullability and time zone are not exactly these.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import types as spark

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.spec.types.arrow_schema import arrow_type, parts_of

# Spark 4.0 has no type for a time of day.
_TIME = getattr(spark, "TimeType", None)
_TYPES: Mapping[IcebergType, tuple[spark.DataType, pa.DataType]] = {
    BooleanType(): (spark.BooleanType(), pa.bool_()),
    IntegerType(): (spark.IntegerType(), pa.int32()),
    LongType(): (spark.LongType(), pa.int64()),
    FloatType(): (spark.FloatType(), pa.float32()),
    DoubleType(): (spark.DoubleType(), pa.float64()),
    DateType(): (spark.DateType(), pa.date32()),
    StringType(): (spark.StringType(), pa.string()),
    BinaryType(): (spark.BinaryType(), pa.binary()),
    UUIDType(): (spark.StringType(), pa.string()),
    TimestamptzType(): (spark.TimestampType(), pa.timestamp("us", tz="UTC")),
    TimestampType(): (spark.TimestampNTZType(), pa.timestamp("us")),
    **({TimeType(): (_TIME(), pa.time64("ns"))} if _TIME else {}),
}
# The types that only Spark has come last.
_WRITTEN = (
    *(pair for kind, pair in _TYPES.items() if kind != UUIDType()),
    (spark.ByteType(), pa.int8()),
    (spark.ShortType(), pa.int16()),
    (spark.VarcharType(1), pa.string()),
    (spark.CharType(1), pa.string()),
    (spark.NullType(), pa.null()),
)


def spark_schema(schema: Schema) -> spark.StructType:
    """Return the schema of a DataFrame with a table's columns.

    Raises:
        RefusedError: a column has a type that Spark does not have, or does not take from Python.
    """
    return _spark_struct(schema.fields, "")


def _spark_struct(fields: Sequence[NestedField], path: str) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(item.name, _spark_type(item, path), nullable=item.optional)
            for item in fields
        ]
    )


def _spark_type(field: NestedField, path: str) -> spark.DataType:
    kind, name = field.field_type, f"{path}{field.name}"
    if isinstance(kind, StructType):
        return _spark_struct(kind.fields, f"{name}.")
    if isinstance(kind, ListType):
        element = _spark_type(kind.element_field, f"{name}.")
        return spark.ArrayType(element, containsNull=kind.element_field.optional)
    if isinstance(kind, MapType):
        key, value = (_spark_type(item, f"{name}.") for item in (kind.key_field, kind.value_field))
        return spark.MapType(key, value, valueContainsNull=kind.value_field.optional)
    if isinstance(kind, DecimalType):
        return spark.DecimalType(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return spark.BinaryType()
    if kind in _TYPES and not (path and isinstance(kind, UUIDType)):
        return _TYPES[kind][0]
    raise RefusedError(
        f"column {name} is of the type {kind}, which this Spark does not take from Python",
        hint="name other columns in the option select",
    )


def batch_of(batch: pa.RecordBatch, schema: Schema, frame: spark.StructType) -> pa.RecordBatch:
    """Return rows that were read with a schema as a DataFrame takes them, whose columns may be NULL more often."""
    wanted = pa.schema(
        [
            _arrow_field(item).with_nullable(column.nullable)
            for item, column in zip(schema.fields, frame.fields, strict=True)
        ]
    )
    columns = [
        _uuid_texts(column) if isinstance(item.field_type, UUIDType) else column.cast(field.type)
        for column, item, field in zip(batch.columns, schema.fields, wanted, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _arrow_field(field: NestedField) -> pa.Field:
    return pa.field(field.name, _arrow_type(field.field_type), nullable=field.optional)


def _arrow_type(kind: IcebergType) -> pa.DataType:
    fields = [_arrow_field(item) for item in parts_of(kind)]
    if isinstance(kind, StructType):
        return pa.struct(fields)
    if isinstance(kind, ListType):
        return pa.list_(fields[0])
    if isinstance(kind, MapType):
        return pa.map_(*fields)
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return pa.binary() if isinstance(kind, FixedType) else _TYPES[kind][1]


def _uuid_texts(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    texts = [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
    return pa.array(texts, pa.string())


def frame_columns(frame: spark.StructType, schema: Schema) -> pa.Schema:
    """Return the columns of a DataFrame as they are written to a table with a schema.

    Raises:
        RefusedError: a column has a type that Iceberg does not have.
    """
    found = [pa.field(item.name, _written_type(item.dataType, item.name)) for item in frame.fields]
    fixed = _fixed(schema)
    return pa.schema(
        [
            item.with_type(arrow_type(fixed[item.name])) if _is_bytes(item, fixed) else item
            for item in found
        ]
    )


def table_batch(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return rows of a DataFrame as they are written: with the UUIDs, texts in Spark, as bytes of their length.

    Raises:
        BadInputError: a text is not a UUID, or bytes have another length.
    """
    fixed = _fixed(schema)
    columns = [
        _fixed_bytes(column, item.name, arrow_type(fixed[item.name]))
        if _is_bytes(item, fixed)
        else column
        for item, column in zip(batch.schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _fixed(schema: Schema) -> Mapping[str, UUIDType | FixedType]:
    """Return the types of the columns whose values are bytes of one length."""
    kinds = {item.name: item.field_type for item in schema.fields}
    return {name: kind for name, kind in kinds.items() if isinstance(kind, UUIDType | FixedType)}


def _is_bytes(item: pa.Field, fixed: Mapping[str, UUIDType | FixedType]) -> bool:
    text = pa.types.is_string(item.type) and isinstance(fixed.get(item.name), UUIDType)
    return text or (pa.types.is_binary(item.type) and item.name in fixed)


def _written_type(kind: spark.DataType, name: str) -> pa.DataType:
    if isinstance(kind, spark.StructType):
        fields = [(item.name, _written_type(item.dataType, f"{name}.{item.name}")) for item in kind]
        return pa.struct(fields)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(_written_type(kind.elementType, f"{name}.element"))
    if isinstance(kind, spark.MapType):
        key, value = kind.keyType, kind.valueType
        return pa.map_(_written_type(key, f"{name}.key"), _written_type(value, f"{name}.value"))
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    for own, found in _WRITTEN:
        if isinstance(kind, type(own)):
            return found
    raise RefusedError(
        f"column {name} is {kind.simpleString()}, a type that Iceberg does not have",
        hint="cast it, or leave it out",
    )


def _fixed_bytes(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Return bytes, or UUIDs as texts, as bytes of one length."""
    if pa.types.is_binary(column.type):
        try:
            return column.cast(kind)
        except pa.ArrowInvalid as error:
            length = kind.byte_width
            raise BadInputError(
                f"column {name} has a value that is not {length} bytes long"
            ) from error
    values = []
    for text in column.to_pylist():
        try:
            values.append(None if text is None else uuid.UUID(text).bytes)
        except ValueError as error:
            raise BadInputError(f"column {name} has {text!r}, which is not a UUID") from error
    return pa.array(values, kind)
